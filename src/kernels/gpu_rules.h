/* What the kernels of the CUDA module can run and what scratch they take. Free of CUDA: the library
 * has these rules too, so that planning asks what the session will ask, on a machine without a GPU.
 *
 * A kernel of src/kernels/cuda/ takes its can_run and workspace from here, and has a row in
 * gpu_rules.c. */
#ifndef STATOR_KERNELS_GPU_RULES_H
#define STATOR_KERNELS_GPU_RULES_H

#include "kernels/problem.h"
#include "kernels/scatter.h"

typedef struct gpu_rule {
    const char *name; /* "cudnn.attention" */
    ir_op_t op;       /* IR_OP_END: every op */
    bool (*can_run)(const kern_problem_t *problem, const char **out_reason);
    size_t (*workspace)(const kern_problem_t *problem, int n_threads);
} gpu_rule_t; /* as in kern_impl_t */

/* NULL: the module has no kernel of this name for the op. */
const gpu_rule_t *gpu_rule_find(const char *name, ir_op_t op);

bool gpu_matmul_can_run(const kern_problem_t *problem, const char **out_reason);
size_t gpu_matmul_workspace(const kern_problem_t *problem, int n_threads);
bool gpu_conv_can_run(const kern_problem_t *problem, const char **out_reason);
size_t gpu_conv_workspace(const kern_problem_t *problem, int n_threads);
bool gpu_attention_can_run(const kern_problem_t *problem, const char **out_reason);
size_t gpu_attention_workspace(const kern_problem_t *problem, int n_threads);
bool gpu_attention_grad_can_run(const kern_problem_t *problem, const char **out_reason);
size_t gpu_attention_grad_workspace(const kern_problem_t *problem, int n_threads);
kern_scatter_t gpu_scatter_plan(const kern_problem_t *problem);
bool gpu_scatter_can_run(const kern_problem_t *problem, const char **out_reason);
size_t gpu_scatter_workspace(const kern_problem_t *problem, int n_threads);
bool gpu_nest_can_run(const kern_problem_t *problem, const char **out_reason);
size_t gpu_nest_workspace(const kern_problem_t *problem, int n_threads);

/* Attention over the keys that some query sees, as a vendor library is asked for it. */
typedef struct gpu_seen {
    kern_attention_t
        a; /* s: how many these are; offset: counted from the first; causal, window: only
                          * where they still hide a key */
    int64_t first, keys; /* the first of them, of all keys in memory */
} gpu_seen_t;
gpu_seen_t gpu_attention_seen(const kern_attention_t *a);

/* The first part of the backward pass's scratch: one f32 a row of queries. */
size_t gpu_attention_row_bytes(const kern_attention_t *a);
/* can_run, workspace and launches of a loop nest (kernels/emit) in one go. */
bool gpu_nest(const kern_problem_t *problem, size_t *out_workspace, uint32_t *out_launches,
              const char **out_reason);

#endif

/* Reference kernels of the regions: their bodies node by node (body.h). */
#include <string.h>

#include "kernels/reference/body.h"
#include "kernels/reference/reference.h"

static const ir_graph_t *body_of(const kern_problem_t *problem) {
    return kern_attr(problem, "body")->graph;
}

static size_t fused_workspace(const kern_problem_t *problem, int n_threads) {
    return ref_body_workspace(body_of(problem), n_threads);
}

static st_status_t fused_prepare(const kern_problem_t *problem, int n_threads,
                                 void **out_prepared) {
    ref_body_t *made;
    TRY(ref_body_create(body_of(problem), n_threads, &made));
    *out_prepared = made;
    return ST_OK;
}

static void fused_release(void *prepared) {
    ref_body_destroy(prepared);
}

static st_status_t fused(const kern_call_t *call) {
    return ref_body_run(call->prepared, call, call->in, call->out, call->workspace);
}

/* ---- repeat ---- */

enum { ALIGNMENT = 64 };

typedef struct repeat_made {
    ref_body_t *body;
    st_arena_t arena;
    const void **in;
    void **out;
    size_t *next; /* [carried] offset of the next carry after the body's workspace */
    size_t body_bytes;
} repeat_made_t;

static size_t repeat_workspace(const kern_problem_t *problem, int n_threads) {
    size_t bytes = st_size_align(ref_body_workspace(body_of(problem), n_threads), ALIGNMENT);
    int64_t carried = kern_int(problem, "carried");
    for (int64_t j = 0; j < carried; j++)
        bytes = st_size_add(bytes, st_size_align(ir_type_bytes(&problem->in[j]), ALIGNMENT));
    return bytes;
}

static void repeat_release(void *prepared) {
    repeat_made_t *made = prepared;
    ref_body_destroy(made->body);
    st_arena_clear(&made->arena);
    st_free(made);
}

static st_status_t repeat_prepare(const kern_problem_t *problem, int n_threads,
                                  void **out_prepared) {
    repeat_made_t *made = st_calloc(1, sizeof *made);
    st_status_t status = ST_OK;
    if (!made) return st_no_memory(sizeof *made, "a loop");
    size_t carried = (size_t)kern_int(problem, "carried");
    made->in = st_arena_array(&made->arena, problem->n_in, sizeof *made->in);
    made->out = st_arena_array(&made->arena, problem->n_out, sizeof *made->out);
    made->next = st_arena_array(&made->arena, carried, sizeof *made->next);
    if (!made->in || !made->out || !made->next) TRY_GOTO(st_no_memory(0, "a loop"), fail);
    made->body_bytes = st_size_align(ref_body_workspace(body_of(problem), n_threads), ALIGNMENT);
    size_t at = made->body_bytes;
    for (size_t j = 0; j < carried; j++) {
        made->next[j] = at;
        at += st_size_align(ir_type_bytes(&problem->in[j]), ALIGNMENT);
    }
    TRY_GOTO(ref_body_create(body_of(problem), n_threads, &made->body), fail);
    *out_prepared = made;
    return ST_OK;
fail:
    repeat_release(made);
    return status;
}

/* Slice i of a stack of slices of `type`. */
static void *slice(void *stack, const ir_type_t *type, int64_t i) {
    ir_type_t each = ir_type_drop_first(type);
    return stack ? (char *)stack + (size_t)i * ir_type_bytes(&each) : NULL;
}

static void copy_bytes(void *to, const void *from, size_t bytes) {
    if (bytes && to != from) memcpy(to, from, bytes);
}

/* The carries live in the results; the body makes the next ones beside them. */
static st_status_t repeat(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    repeat_made_t *made = call->prepared;
    const int64_t trip = kern_int(p, "trip"), carried = kern_int(p, "carried");
    const int64_t scanned = kern_int(p, "scanned");
    const bool reverse = kern_int(p, "reverse") != 0;
    for (int64_t j = 0; j < carried; j++)
        copy_bytes(call->out[j], call->in[j], ir_type_bytes(&p->in[j]));
    for (int64_t n = 0; n < trip; n++) {
        int64_t i = reverse ? trip - 1 - n : n;
        for (uint32_t j = 0; j < p->n_in; j++)
            made->in[j] = j < carried ? call->out[j]
                          : j < carried + scanned
                              ? slice((void *)(uintptr_t)call->in[j], &p->in[j], i)
                              : call->in[j];
        for (uint32_t k = 0; k < p->n_out; k++)
            made->out[k] = k < carried ? (char *)call->workspace + made->next[k]
                                       : slice(call->out[k], &p->out[k], i);
        st_status_t status = ref_body_run(made->body, call, made->in, made->out, call->workspace);
        if (status != ST_OK) return st_error_context(status, "iteration %lld", (long long)i);
        for (int64_t j = 0; j < carried; j++)
            copy_bytes(call->out[j], made->out[j], ir_type_bytes(&p->in[j]));
    }
    return ST_OK;
}

/* ---- cond ---- */

static const char *const branches[] = {"else", "then"};

typedef struct cond_made {
    ref_body_t *bodies[2]; /* by the condition */
} cond_made_t;

static size_t cond_workspace(const kern_problem_t *problem, int n_threads) {
    size_t most = 0;
    for (int i = 0; i < 2; i++) {
        size_t bytes = ref_body_workspace(kern_attr(problem, branches[i])->graph, n_threads);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void cond_release(void *prepared) {
    cond_made_t *made = prepared;
    for (int i = 0; i < 2; i++) ref_body_destroy(made->bodies[i]);
    st_free(made);
}

static st_status_t cond_prepare(const kern_problem_t *problem, int n_threads, void **out_prepared) {
    cond_made_t *made = st_calloc(1, sizeof *made);
    if (!made) return st_no_memory(sizeof *made, "a condition");
    for (int i = 0; i < 2; i++) {
        st_status_t status =
            ref_body_create(kern_attr(problem, branches[i])->graph, n_threads, &made->bodies[i]);
        if (status == ST_OK) continue;
        cond_release(made);
        return status;
    }
    *out_prepared = made;
    return ST_OK;
}

static st_status_t cond(const kern_call_t *call) {
    const cond_made_t *made = call->prepared;
    int which = *(const unsigned char *)call->in[0] != 0;
    return ref_body_run(made->bodies[which], call, call->in + 1, call->out, call->workspace);
}

static const kern_impl_t ref_impl_repeat = {.name = "cpu.repeat.reference",
                                            .op = IR_OP_REPEAT,
                                            .reference = true,
                                            .workspace = repeat_workspace,
                                            .prepare = repeat_prepare,
                                            .release = repeat_release,
                                            .launch = repeat};
static const kern_impl_t ref_impl_cond = {.name = "cpu.cond.reference",
                                          .op = IR_OP_COND,
                                          .reference = true,
                                          .workspace = cond_workspace,
                                          .prepare = cond_prepare,
                                          .release = cond_release,
                                          .launch = cond};
static const kern_impl_t ref_impl_fused = {.name = "cpu.fused.reference",
                                           .op = IR_OP_FUSED,
                                           .reference = true,
                                           .workspace = fused_workspace,
                                           .prepare = fused_prepare,
                                           .release = fused_release,
                                           .launch = fused};

extern ref_array_t kern_reference_region;
ref_array_t kern_reference_region = {&ref_impl_fused, &ref_impl_repeat, &ref_impl_cond, NULL};

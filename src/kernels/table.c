/* The kernel table: each file contributes an array of implementations; here they become one ordered
 * list an op: vendor library, our own vectorized loops of the processor's level, reference.
 *
 * The lists are built once, on first use, into static storage. */
#include "kernels/table.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "device/cpu/team.h"
#include "device/module.h"
#include "kernels/emit/single.h"
#include "kernels/gpu_rules.h"
#include "kernels/nest/plan.h"
#ifdef STATOR_HAVE_ONEDNN
#include "kernels/onednn/onednn.h"
#endif

typedef const kern_impl_t *const kern_array_t[];

#define REFERENCE_FILES(X) \
    X(elementwise)         \
    X(shape)               \
    X(index) X(reduce) X(contract) X(pool) X(attention) X(norm) X(loss) X(source) X(state) X(region)
#define CPU_FILES(X) \
    X(unary)         \
    X(binary)        \
    X(copy)          \
    X(index)         \
    X(reduce)        \
    X(matmul)        \
    X(conv) X(pool) X(attention) X(softmax) X(norm) X(batch_norm) X(optimizer) X(fused) X(small)

#define DECLARE(file) extern kern_array_t kern_reference_##file;
REFERENCE_FILES(DECLARE)
#undef DECLARE
#define DECLARE(file) extern kern_array_t kern_cpu_##file##_base;
CPU_FILES(DECLARE)
#undef DECLARE
#ifdef __x86_64__
#define DECLARE(file) extern kern_array_t kern_cpu_##file##_v3;
CPU_FILES(DECLARE)
#undef DECLARE
#define DECLARE(file) extern kern_array_t kern_cpu_##file##_v4;
CPU_FILES(DECLARE)
#undef DECLARE
#endif

typedef const kern_impl_t *const *kern_arrays_t;

static const kern_arrays_t reference_arrays[] = {
#define ROW(file) kern_reference_##file,
    REFERENCE_FILES(ROW)
#undef ROW
        NULL};
static const kern_arrays_t base_arrays[] = {
#define ROW(file) kern_cpu_##file##_base,
    CPU_FILES(ROW)
#undef ROW
        NULL};
#ifdef __x86_64__
static const kern_arrays_t v3_arrays[] = {
#define ROW(file) kern_cpu_##file##_v3,
    CPU_FILES(ROW)
#undef ROW
        NULL};
static const kern_arrays_t v4_arrays[] = {
#define ROW(file) kern_cpu_##file##_v4,
    CPU_FILES(ROW)
#undef ROW
        NULL};
#endif
#ifdef STATOR_HAVE_ONEDNN
static const kern_arrays_t onednn_arrays[] = {kern_onednn, NULL};
#endif

enum { MAX_IMPLS = 8 };
typedef const kern_impl_t *kern_lists_t[IR_OP_END][MAX_IMPLS + 1];
static kern_lists_t lists, module_lists;
static const char *level;
static char libraries[64];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void append(kern_lists_t to, const kern_arrays_t *arrays) {
    for (; *arrays; arrays++) {
        for (kern_arrays_t impl = *arrays; *impl; impl++) {
            const kern_impl_t **list = to[(*impl)->op];
            int n = 0;
            while (list[n]) n++;
            ASSERT(n < MAX_IMPLS);
            list[n] = *impl;
        }
    }
}

/* ---- processor levels ---- */

static bool has_base(void) {
    return true;
}
#ifdef __x86_64__
static bool has_v3(void) {
    unsigned a, b, c, d; /* clang 14 knows no "f16c" */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
static bool has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

/* The best first; the last runs everywhere. */
static const struct level_row {
    const char *name, *needs;
    bool (*has)(void);
    const kern_arrays_t *arrays;
} levels[] = {
#ifdef __x86_64__
    {"v4", "avx512f, bw, cd, dq and vl", has_v4, v4_arrays},
    {"v3", "avx2, fma, bmi2 and f16c", has_v3, v3_arrays},
#endif
    {"base", "", has_base, base_arrays},
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

static void build_for(const struct level_row *row) {
    memset(lists, 0, sizeof lists);
#ifdef STATOR_HAVE_ONEDNN
    append(lists, onednn_arrays);
    kern_onednn_version(libraries, sizeof libraries);
#endif
    append(lists, row->arrays);
    append(lists, reference_arrays);
    level = row->name;
}

static void build(void) {
    const struct level_row *row = levels;
    while (!row->has()) row++;
    build_for(row);
}

st_status_t kern_set_level(const char *name) {
    pthread_once(&once, build);
    for (size_t i = 0; i < N_LEVELS; i++) {
        if (strcmp(levels[i].name, name) != 0) continue;
        if (!levels[i].has())
            return FAIL(ST_UNSUPPORTED, "this processor has no %s, which level %s needs",
                        levels[i].needs, name);
        build_for(&levels[i]);
        return ST_OK;
    }
    return FAIL(ST_INVALID, "processor level '%s' is not known: base, v3 or v4", name);
}

/* Once, when a plan or a test first asks; a module that does not open gives no kernels, and opening
 * the device says why. */
static void build_module(void) {
    const dev_module_t *module;
    if (dev_module_open("cuda", &module) != ST_OK) return;
    append(module_lists, (const kern_arrays_t *)module->kernels);
}

const kern_impl_t *const *kern_list(const char *device, ir_op_t op) {
    static const kern_impl_t *const none[] = {NULL};
    static pthread_once_t module_once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
    if ((unsigned)op >= IR_OP_END) return none;
    if (strcmp(device, "cpu") == 0) return lists[op];
    if (strcmp(device, "cuda") != 0) return none;
    pthread_once(&module_once, build_module);
    return module_lists[op];
}

const kern_impl_t *kern_find_on(const char *device, ir_op_t op, const char *name) {
    for (const kern_impl_t *const *impl = kern_list(device, op); *impl; impl++)
        if (strcmp((*impl)->name, name) == 0) return *impl;
    return NULL;
}

const kern_impl_t *kern_find(const char *name) {
    pthread_once(&once, build);
    for (int op = 0; op < IR_OP_END; op++)
        for (const kern_impl_t *const *impl = lists[op]; *impl; impl++)
            if (strcmp((*impl)->name, name) == 0) return *impl;
    return NULL;
}

st_status_t kern_choose(const char *device, const kern_problem_t *problem, bool reference_only,
                        const kern_impl_t **out_impl) {
    *out_impl = NULL;
    char reasons[400] = "";
    size_t used = 0;
    for (const kern_impl_t *const *impl = kern_list(device, problem->op); *impl; impl++) {
        const char *reason = "";
        if (reference_only && !(*impl)->reference) continue;
        if (!(*impl)->can_run || (*impl)->can_run(problem, &reason)) {
            *out_impl = *impl;
            return ST_OK;
        }
        if (used < sizeof reasons)
            used += (size_t)snprintf(reasons + used, sizeof reasons - used, "; %s: %s",
                                     (*impl)->name, reason);
    }
    const ir_op_def_t *def = ir_op_def(problem->op);
    return FAIL(ST_UNSUPPORTED, "no kernel on %s for %s%s", device, def ? def->name : "?", reasons);
}

bool kern_known_on_gpu(const char *kernel, ir_op_t op) {
    return gpu_rule_find(kernel, op) != NULL;
}

static st_status_t gpu_sums_hash(const kern_problem_t *problem, uint64_t *out_hash) {
    emit_problem_t made;
    const char *reason;
    TRY(emit_problem_create(problem, &made, &reason));
    st_status_t status = ST_OK;
    if (made.schedule)
        *out_hash = emit_sums_hash(made.schedule);
    else
        status = FAIL(ST_INTERNAL, "a nest that planning refuses: %s", reason);
    emit_problem_clear(&made);
    return status;
}

static st_status_t cpu_sums_hash(const kern_problem_t *problem, uint64_t *out_hash) {
    nest_t *nest;
    nx_plan_t *plan;
    const char *reason;
    TRY(nest_build(kern_attr(problem, "body")->graph, &nest, &reason));
    if (!nest) return FAIL(ST_INTERNAL, "a nest that planning refuses: %s", reason);
    TRY(nx_plan_create(nest, &plan));
    *out_hash = nx_sums_hash(plan);
    nx_plan_destroy(plan);
    return ST_OK;
}

st_status_t kern_sums_hash(const char *device, const char *name, const kern_problem_t *problem,
                           uint64_t *out_hash) {
    const bool cpu = strcmp(device, "cpu") == 0;
    if (cpu && strcmp(name, "cpu.fused.nest") == 0) return cpu_sums_hash(problem, out_hash);
    const gpu_rule_t *rule = cpu ? NULL : gpu_rule_find(name, problem->op);
    if (rule && rule->can_run == gpu_nest_can_run) return gpu_sums_hash(problem, out_hash);
    *out_hash = st_hash64(name, strlen(name), (uint64_t)problem->op + 1);
    return ST_OK;
}

bool kern_runs_on_gpu(const char *kernel, const kern_problem_t *problem, size_t *out_workspace,
                      uint32_t *out_launches, const char **out_reason) {
    const gpu_rule_t *rule = gpu_rule_find(kernel, problem->op);
    *out_reason = "there is no such kernel for the op";
    if (!rule) return false;
    if (rule->can_run == gpu_nest_can_run) /* scheduled once, not for each question */
        return gpu_nest(problem, out_workspace, out_launches, out_reason);
    if (rule->can_run && !rule->can_run(problem, out_reason)) return false;
    *out_workspace = rule->workspace ? rule->workspace(problem, 1) : 0;
    return true;
}

st_status_t kern_run_once(const kern_problem_t *problem, const void *const *in, void *const *out) {
    const kern_impl_t *impl;
    TRY(kern_choose("cpu", problem, false, &impl));
    return kern_run_impl(impl, problem, 1, in, out);
}

st_status_t kern_run_impl(const kern_impl_t *impl, const kern_problem_t *problem, int n_threads,
                          const void *const *in, void *const *out) {
    st_status_t status = ST_OK;
    dev_team_t *team = NULL;
    void *workspace = NULL, *prepared = NULL;
    size_t bytes = impl->workspace ? impl->workspace(problem, n_threads) : 0;
    if (bytes == ST_SIZE_TOO_LARGE)
        return FAIL(ST_DOES_NOT_FIT, "the scratch space of kernel '%s' overflows 64 bits",
                    impl->name);
    TRY_GOTO(dev_team_create(n_threads, &team), done);
    workspace = st_aligned_alloc(64, bytes ? bytes : 64);
    if (!workspace) {
        status = st_no_memory(bytes, "a kernel's scratch space");
        goto done;
    }
    if (impl->prepare) TRY_GOTO(impl->prepare(problem, n_threads, &prepared), done);
    kern_call_t call = {.problem = problem,
                        .in = in,
                        .out = out,
                        .workspace = workspace,
                        .prepared = prepared,
                        .team = team};
    status = impl->launch(&call);
done:
    if (prepared && impl->release) impl->release(prepared);
    st_free(workspace);
    dev_team_destroy(team);
    return status;
}

const char *kern_cpu_level(void) {
    pthread_once(&once, build);
    return level;
}

const char *kern_libraries(void) {
    pthread_once(&once, build);
    return libraries;
}

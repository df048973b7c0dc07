/* cpu.fused.nest: fused bodies that are loop nests (kernels/nest/plan.h).
 *
 *   workspace  [ uniform values | slots, partial sums | errors | a thread's registers … ]
 *
 * A launch goes phase by phase: uniform values, then the chunks of all passes over the team, then
 * the partial sums of the chunks are joined in order. Prepared are the plan and the rows of its
 * instructions; nothing is allocated in a launch. */
#include "kernels/cpu/fused.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "ir/convert.h"

/* ---- what can run ---- */

static const char *unsupported(const nest_t *nest) {
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        const nest_stmt_t *s = &nest->stmts[i];
        nx_inst_t inst;
        if (s->kind == NEST_LOAD && !cpu_tile_load(s->access.dtype, NX_REAL, false))
            return "an operand's element type has no loads";
        if (s->kind != NEST_OP) continue;
        nx_describe(nest, i, &inst);
        if (s->op == IR_OP_CAST && inst.flag == NX_SAME) continue;
        if (!cpu_tile_op(inst.code, inst.flag, inst.type, false))
            return "an elementwise op of the body has no tile instruction for its type";
    }
    for (uint32_t i = 0; i < nest->n_stores; i++)
        if (!cpu_tile_store(nest->stores[i].access.dtype, NX_REAL, false))
            return "a result's element type has no stores";
    return NULL;
}

static bool can_run(const kern_problem_t *problem, const char **out_reason) {
    nest_t *nest;
    if (nest_build(kern_attr(problem, "body")->graph, &nest, out_reason) != ST_OK) {
        *out_reason = "out of memory";
        return false;
    }
    if (!nest) return false;
    *out_reason = unsupported(nest);
    nest_destroy(nest);
    return *out_reason == NULL;
}

/* ---- layout of the workspace ---- */

typedef struct layout {
    size_t shared, errors, threads, thread_bytes, temporary, views, bytes;
} layout_t;

static layout_t layout_of(const nx_plan_t *plan, int n_threads) {
    layout_t l;
    int64_t columns = 1;
    size_t views = 0;
    for (uint32_t i = 0; i < plan->n_passes; i++) {
        columns = cpu_max(columns, plan->passes[i].cols);
        if (plan->passes[i].n_views > views) views = plan->passes[i].n_views;
    }
    l.shared = st_size_align(st_size_mul(plan->nest->n_stmts, sizeof(fused_uniform_t)), 64);
    l.errors = st_size_add(l.shared, plan->shared_bytes);
    l.threads = st_size_align(
        st_size_add(l.errors, st_size_mul((size_t)n_threads, sizeof(fused_error_t))), 64);
    l.temporary = st_align_up(plan->register_bytes, 64);
    l.views = l.temporary + st_align_up((size_t)columns * sizeof(double), 64);
    l.thread_bytes = st_align_up(l.views + views * sizeof(fused_here_t), 4096);
    l.bytes = st_size_add(l.threads, st_size_mul((size_t)n_threads, l.thread_bytes));
    return l;
}

static st_status_t make_plan(const kern_problem_t *problem, nx_plan_t **out_plan) {
    nest_t *nest;
    const char *reason;
    *out_plan = NULL;
    TRY(nest_build(kern_attr(problem, "body")->graph, &nest, &reason));
    if (!nest) return FAIL(ST_INTERNAL, "a body that can_run refuses: %s", reason);
    return nx_plan_create(nest, out_plan);
}

static size_t workspace(const kern_problem_t *problem, int n_threads) {
    nx_plan_t *plan;
    if (make_plan(problem, &plan) != ST_OK) return ST_SIZE_TOO_LARGE;
    size_t bytes = layout_of(plan, n_threads).bytes;
    nx_plan_destroy(plan);
    return bytes;
}

/* ---- preparing ---- */

typedef struct prepared {
    nx_plan_t *plan;
    layout_t layout;
    nx_inst_t *uniform_ops; /* [n_stmts] */
    fused_strips_t *strips; /* [n_passes] */
} prepared_t;

static void release(void *arg) {
    prepared_t *prepared = arg;
    if (!prepared) return;
    nx_plan_destroy(prepared->plan);
    st_free(prepared);
}

typedef void (*any_row_t)(void);

static st_status_t resolve(const nx_plan_t *plan, const nx_pass_t *pass, nx_inst_t *inst) {
    nx_type_t dst = pass->views[inst->dst].type;
    (void)plan;
    if (inst->code >= NX_DIFF_MUL_ADD && inst->code < NX_LOAD)
        inst->run = (any_row_t)cpu_tile_many(inst->code, pass->f64);
    else if (inst->code < NX_LOAD)
        inst->run = (any_row_t)cpu_tile_op(inst->code, inst->flag, inst->type, pass->f64);
    else if (inst->code == NX_LOAD || inst->code == NX_GATHER)
        inst->run = (any_row_t)cpu_tile_load(inst->dtype, dst, pass->f64);
    else if (inst->code == NX_STORE)
        inst->run = (any_row_t)cpu_tile_store(inst->dtype, inst->type, pass->f64);
    else if (inst->code == NX_FINISH)
        inst->run = (any_row_t)cpu_tile_finish(pass->f64);
    else if (inst->code >= NX_SUM && inst->code <= NX_MIN)
        inst->run_data = cpu_tile_reduction(inst->code, inst->n_src, inst->type, pass->f64);
    else
        return ST_OK;
    return inst->run || inst->run_data
               ? ST_OK
               : FAIL(ST_INTERNAL, "instruction %u of a nest has no row", inst->code);
}

static st_status_t prepare(const kern_problem_t *problem, int n_threads, void **out_prepared) {
    st_status_t status = ST_OK;
    *out_prepared = NULL;
    prepared_t *made = st_calloc(1, sizeof *made);
    if (!made) return st_no_memory(sizeof *made, "a prepared nest");
    TRY_GOTO(make_plan(problem, &made->plan), fail);
    nx_plan_t *plan = made->plan;
    const nest_t *nest = plan->nest;
    made->layout = layout_of(plan, n_threads);
    made->uniform_ops = st_arena_array(&plan->arena, nest->n_stmts + 1, sizeof *made->uniform_ops);
    made->strips = st_arena_array(&plan->arena, plan->n_passes + 1, sizeof *made->strips);
    if (!made->uniform_ops || !made->strips)
        TRY_GOTO(st_no_memory(nest->n_stmts * sizeof(nx_inst_t), "a prepared nest"), fail);
    for (uint32_t i = 0; i < plan->n_passes; i++) {
        for (uint32_t k = 0; k < plan->passes[i].n_insts; k++)
            TRY_GOTO(resolve(plan, &plan->passes[i], &plan->passes[i].insts[k]), fail);
        const nx_pass_t *pass = &plan->passes[i];
        TRY_GOTO(
            cpu_fused_strips(pass, &nest->domains[pass->domain], &plan->arena, &made->strips[i]),
            fail);
    }
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        if (plan->uniform_at[i] == NEST_NONE || nest->stmts[i].kind != NEST_OP) continue;
        nx_inst_t *inst = &made->uniform_ops[i];
        nx_describe(nest, i, inst);
        inst->run = (any_row_t)cpu_tile_op(inst->code, inst->flag, inst->type, true);
    }
    *out_prepared = made;
    return ST_OK;
fail:
    release(made);
    return status;
}

/* ---- uniform values ---- */

static int64_t wrapped(ir_dtype_t dtype, int64_t value) {
    int64_t storage = 0;
    ir_element_store_i64(dtype, &storage, 0, value);
    return ir_element_load_i64(dtype, &storage, 0);
}

static st_status_t bad_access(const fused_job_t *job, uint32_t stmt, int64_t index,
                              int64_t position) {
    const nest_access_t *access = &job->plan->nest->stmts[stmt].access;
    return kern_bad_index(index, position, access->index_dim, access->index_extent);
}

static st_status_t uniform_load(const fused_job_t *job, uint32_t stmt) {
    const nest_stmt_t *s = &job->plan->nest->stmts[stmt];
    fused_uniform_t *u = &job->uniforms[stmt];
    int64_t at = s->access.offset;
    if (s->access.index != NEST_NONE) {
        int64_t index = fused_index(&s->access, job->uniforms[s->access.index].i);
        if (index < 0) return bad_access(job, stmt, job->uniforms[s->access.index].i, 0);
        at += index * s->access.index_stride;
    }
    const char *memory = fused_memory(job, &s->access);
    u->d = ir_element_load(s->access.dtype, memory, (size_t)at);
    u->i = ir_element_load_i64(s->access.dtype, memory, (size_t)at);
    return ST_OK;
}

static void uniform_random(const fused_job_t *job, uint32_t stmt) {
    const nest_stmt_t *s = &job->plan->nest->stmts[stmt];
    const fused_uniform_t *u = job->uniforms;
    int64_t part = s->n_args > 2 ? u[s->args[2]].i : 0;
    uint64_t element =
        (uint64_t)s->access.offset + (uint64_t)part * (uint64_t)s->access.index_stride;
    job->uniforms[stmt].d = (double)st_uniform24(
        kern_random_word(u[s->args[0]].i, s->integer, u[s->args[1]].i, (int64_t)element));
}

static void uniform_op(const fused_job_t *job, const nx_inst_t *inst, uint32_t stmt) {
    const nest_stmt_t *s = &job->plan->nest->stmts[stmt];
    fused_uniform_t *u = &job->uniforms[stmt];
    const void *src[NEST_MAX_ARGS];
    if (s->op == IR_OP_CAST && inst->flag == NX_SAME) {
        *u = job->uniforms[s->args[0]];
        return;
    }
    for (uint32_t k = 0; k < NEST_MAX_ARGS; k++) {
        uint32_t arg = s->args[k < s->n_args ? k : 0];
        bool integer = nx_type_of(&job->plan->nest->stmts[arg]) == NX_INT;
        src[k] = integer ? (const void *)&job->uniforms[arg].i : &job->uniforms[arg].d;
    }
    bool integer = nx_type_of(s) == NX_INT;
    void *to = integer ? (void *)&u->i : &u->d;
    ((tile_row_t)inst->run)(to, src[0], 1, src[1], 1, src[2], 1, 1);
    if (integer) {
        if (s->op == IR_OP_CAST && inst->flag == NX_REAL_TO_INT) {
            int64_t storage = 0; /* saturates */
            ir_element_store(s->dtype, &storage, 0, job->uniforms[s->args[0]].d);
            u->i = ir_element_load_i64(s->dtype, &storage, 0);
        }
        u->i = wrapped(s->dtype, u->i);
    }
}

static st_status_t uniform_values(const fused_job_t *job, const prepared_t *prepared) {
    const nest_t *nest = job->plan->nest;
    for (uint32_t n = 0; n < job->phase->n_uniforms; n++) {
        uint32_t i = job->phase->uniforms[n];
        if (i >= nest->n_stmts) {
            const nest_store_t *store = &nest->stores[i - nest->n_stmts];
            const fused_uniform_t *u = &job->uniforms[store->value];
            void *to = job->call->out[store->access.tensor];
            if (nx_type_of(&nest->stmts[store->value]) == NX_INT)
                ir_element_store_i64(store->access.dtype, to, 0, u->i);
            else
                ir_element_store(store->access.dtype, to, 0, u->d);
            continue;
        }
        const nest_stmt_t *s = &nest->stmts[i];
        fused_uniform_t *u = &job->uniforms[i];
        if (s->kind == NEST_CONSTANT) {
            u->d = s->real;
            u->i = s->integer;
        } else if (s->kind == NEST_IOTA) {
            u->i = s->access.offset;
        } else if (s->kind == NEST_LOAD) {
            TRY(uniform_load(job, i));
        } else if (s->kind == NEST_RANDOM) {
            uniform_random(job, i);
        } else if (s->kind == NEST_REDUCE) {
            const char *slot = job->shared + job->plan->slots[job->plan->slot_of[i]].offset;
            memcpy(nx_type_of(s) == NX_INT ? (void *)&u->i : &u->d, slot, 8);
        } else {
            uniform_op(job, &prepared->uniform_ops[i], i);
        }
        u->f = (float)u->d;
    }
    return ST_OK;
}

/* ---- phases ---- */

static void run_chunks(void *arg, int64_t begin, int64_t end, int thread) {
    const fused_job_t *job = arg;
    for (int64_t place = begin; place < end; place++) {
        const int64_t *first = job->phase->first_chunk;
        uint32_t low = 0, high = job->phase->n_passes;
        while (high - low > 1) {
            uint32_t middle = (low + high) / 2;
            if (first[middle] <= place)
                low = middle;
            else
                high = middle;
        }
        while (first[low + 1] <= place) low++; /* passes without a chunk */
        cpu_fused_chunk(job, &job->plan->passes[job->phase->first_pass + low], place - first[low],
                        place, thread);
    }
}

typedef struct join {
    const fused_job_t *job;
    const nx_pass_t *pass;
    const nx_partial_t *partial;
} join_t;

enum { JOIN_BLOCK = 256 };

/* Elements [begin, end) of a slot: the chunks' parts in order. */
static void join_block(void *arg, int64_t begin, int64_t end, int thread) {
    const join_t *join = arg;
    const nx_partial_t *partial = join->partial;
    const nx_slot_t *slot = &join->job->plan->slots[partial->slot];
    const bool f64 = join->pass->f64;
    const int64_t n = end - begin;
    union {
        double d[JOIN_BLOCK];
        float f[JOIN_BLOCK];
        int64_t i[JOIN_BLOCK];
    } total;
    nx_type_t type = partial->type;
    const size_t size = type == NX_REAL && !f64 ? 4 : 8;
    (void)thread;
    cpu_fused_fill(&total, partial->code, type, f64, n);
    const tile_reduction_t *rows = cpu_tile_reduction(
        partial->code, 1, type == NX_INT ? NX_INT : NX_REAL, type == NX_WIDE || f64);
    for (int64_t chunk = 0; chunk < join->pass->chunks; chunk++) {
        const char *from = join->job->shared + partial->offset +
                           (size_t)chunk * partial->chunk_bytes + (size_t)begin * size;
        rows->down(&total, from, 1, from, 1, from, 1, n);
    }
    char *to = join->job->shared + slot->offset;
    if (slot->elements == 1 && join->job->plan->nest->stmts[slot->stmt].mask == 0 &&
        type == NX_REAL && !f64) {
        *(double *)to = (double)total.f[0]; /* a uniform slot is f64 */
        return;
    }
    if (type == NX_WIDE && !slot->f64)
        for (int64_t i = 0; i < n; i++) ((float *)to)[begin + i] = (float)total.d[i];
    else
        memcpy(to + (size_t)begin * size, &total, (size_t)n * size);
    if (type == NX_INT) {
        ir_dtype_t dtype = join->job->plan->nest->stmts[slot->stmt].dtype;
        int64_t *v = (int64_t *)to + begin;
        for (int64_t i = 0; i < n; i++) v[i] = wrapped(dtype, v[i]);
    }
}

static void join_partials(const fused_job_t *job) {
    for (uint32_t i = 0; i < job->phase->n_passes; i++) {
        const nx_pass_t *pass = &job->plan->passes[job->phase->first_pass + i];
        for (uint32_t k = 0; k < pass->n_partials; k++) {
            join_t join = {job, pass, &job->plan->partials[pass->first_partial + k]};
            int64_t elements = job->plan->slots[join.partial->slot].elements;
            dev_team_for(job->call->team, elements, JOIN_BLOCK, join_block, &join);
        }
    }
}

static st_status_t first_error(const fused_job_t *job) {
    const fused_error_t *first = &job->errors[0];
    for (int t = 1; t < dev_team_size(job->call->team); t++)
        if (job->errors[t].chunk < first->chunk) first = &job->errors[t];
    if (first->chunk == INT64_MAX) return ST_OK;
    return bad_access(job, first->stmt, first->index, first->position);
}

/* One look at each label, before the statements take it for a class. */
static st_status_t check_labels(const kern_call_t *call, const nest_t *nest) {
    for (uint32_t i = 0; i < nest->n_labels; i++) {
        const nest_labels_t *l = &nest->labels[i];
        st_status_t status =
            kern_check_label_range(l->dtype, call->in[l->operand], l->rows, l->classes, l->ignore);
        if (status != ST_OK)
            return st_error_context(
                status, "%s of the body",
                ir_node_label(kern_attr(call->problem, "body")->graph, l->node));
    }
    return ST_OK;
}

static st_status_t launch(const kern_call_t *call) {
    const prepared_t *prepared = call->prepared;
    const layout_t *l = &prepared->layout;
    char *memory = call->workspace;
    fused_job_t job = {.call = call,
                       .plan = prepared->plan,
                       .strips = prepared->strips,
                       .uniforms = (fused_uniform_t *)memory,
                       .shared = memory + l->shared,
                       .threads = memory + l->threads,
                       .thread_bytes = l->thread_bytes,
                       .temporary = l->temporary,
                       .views = l->views,
                       .errors = (fused_error_t *)(memory + l->errors)};
    TRY(check_labels(call, prepared->plan->nest));
    for (int t = 0; t < dev_team_size(call->team); t++) job.errors[t].chunk = INT64_MAX;
    for (uint32_t i = 0; i < prepared->plan->n_phases; i++) {
        job.phase = &prepared->plan->phases[i];
        TRY(uniform_values(&job, prepared));
        dev_team_for(call->team, job.phase->first_chunk[job.phase->n_passes], 1, run_chunks, &job);
        TRY(first_error(&job));
        join_partials(&job);
    }
    return ST_OK;
}

static const kern_impl_t cpu_impl_fused = {.name = "cpu.fused.nest",
                                           .op = IR_OP_FUSED,
                                           .can_run = can_run,
                                           .workspace = workspace,
                                           .prepare = prepare,
                                           .release = release,
                                           .launch = launch};

extern cpu_array_t KERN_SYMBOL(kern_cpu_fused);
cpu_array_t KERN_SYMBOL(kern_cpu_fused) = {&cpu_impl_fused, NULL};

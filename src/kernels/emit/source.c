/* CUDA C of a schedule's kernels.
 *
 * Statements are written where their axes' loops are: uniform values first, then what rows know,
 * then elements. Nothing is included, and names are few: compiling one kernel takes tens of
 * milliseconds. */
#include "kernels/emit/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ir/op.h"
#include "kernels/emit/writer.h"

/* ---- slices of a kernel ---- */

static void mark(writer_t *w, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    if (w->needed[v]) return;
    w->needed[v] = true;
    if (emit_is_result(w->s, w->k->level, v) || emit_is_stored_uniform(w, v)) return;
    for (uint32_t j = 0; j < stmt->n_args; j++) mark(w, stmt->args[j]);
    if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE) mark(w, stmt->access.index);
}

static bool in_row(const writer_t *w, nest_value_t v) {
    return w->k->shape == EMIT_ROWS && emit_stmt(w, v)->kind == NEST_REDUCE &&
           !emit_is_result(w->s, w->k->level, v);
}

/* What the kernel needs, and how many row reductions lie before each. */
void emit_find_slice(writer_t *w) {
    const emit_kernel_t *k = w->k;
    uint32_t n = w->nest->n_stmts;
    memset(w->needed, 0, n * sizeof *w->needed);
    memset(w->written, 0, n * sizeof *w->written);
    memset(w->stage, 0, n * sizeof *w->stage);
    for (uint32_t i = 0; i < k->n_stores; i++) mark(w, w->nest->stores[k->stores[i]].value);
    for (uint32_t i = 0; i < k->n_reduces && k->shape != EMIT_FINISH; i++)
        mark(w, emit_reduced(w, k->reduces[i]));
    for (nest_value_t v = 0; v < n && k->shape == EMIT_UNIFORM; v++)
        if (w->s->uniform[v] != UINT64_MAX && w->s->level[v] == k->level) mark(w, v);
    for (nest_value_t v = 0; v < n; v++) {
        const nest_stmt_t *stmt = emit_stmt(w, v);
        if (!w->needed[v] || emit_is_result(w->s, w->k->level, v) || emit_is_stored_uniform(w, v))
            continue;
        for (uint32_t j = 0; j < stmt->n_args; j++) {
            nest_value_t arg = in_row(w, v) ? emit_reduced(w, v) : stmt->args[j];
            if (w->stage[arg] > w->stage[v]) w->stage[v] = w->stage[arg];
        }
        if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE &&
            w->stage[stmt->access.index] > w->stage[v])
            w->stage[v] = w->stage[stmt->access.index];
        if (in_row(w, v)) w->stage[v]++;
    }
}

st_status_t emit_within(writer_t *w, uint32_t mask, uint8_t stage) {
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        if (!w->needed[v] || w->written[v] || w->stage[v] > stage || in_row(w, v)) continue;
        if (emit_stmt(w, v)->mask & ~mask) continue;
        TRY(emit_statement(w, v));
        w->written[v] = true;
    }
    return ST_OK;
}

/* Marks in want[] what of the slice `v` needs at element level. */
static void want_elements(writer_t *w, bool *want, nest_value_t v) {
    const nest_stmt_t *stmt = emit_stmt(w, v);
    if (want[v] || w->written[v]) return;
    want[v] = true;
    if (emit_is_result(w->s, w->k->level, v) || emit_is_stored_uniform(w, v)) return;
    for (uint32_t j = 0; j < stmt->n_args; j++) want_elements(w, want, stmt->args[j]);
    if (stmt->kind == NEST_LOAD && stmt->access.index != NEST_NONE)
        want_elements(w, want, stmt->access.index);
}

static st_status_t put_wanted(writer_t *w, const bool *want) {
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (want[v]) TRY(emit_statement(w, v));
    return ST_OK;
}

/* ---- sinks ---- */

void emit_store(writer_t *w, uint32_t index) {
    const nest_store_t *store = &w->nest->stores[index];
    const nest_access_t *a = &store->access;
    const char *type = emit_tensor_type(a->dtype);
    uint32_t tensor = w->nest->n_operands + a->tensor;
    bool along = w->k->vector_axis >= 0 && (store->mask >> w->k->vector_axis & 1);
    if (along && emit_along_vector(w, store->value) && emit_access_vector(w->k, a)) {
        emit_put(w, "store<%u>((%s *)", w->k->vector, type);
        emit_pointer(w, tensor);
        emit_put(w, " + ");
        emit_position(w, a, store->mask);
        emit_put(w, ", s%u%s);\n", emit_number(w, store->value),
                 emit_is_kept(w, store->value) ? "[e]" : "");
        return;
    }
    if (along) emit_put(w, "EACH ");
    emit_put(w, "((%s *)", type);
    emit_pointer(w, tensor);
    emit_put(w, ")[");
    emit_position(w, a, store->mask);
    if (along) emit_put(w, " + v * (%s)%" PRId64, w->index, a->stride[w->k->vector_axis]);
    emit_put(w, "] = to<%s>(", type);
    emit_name(w, store->value);
    emit_put(w, ");\n");
}

const char *emit_combiner(const writer_t *w, nest_value_t v) {
    static const struct {
        ir_op_t op;
        const char *name;
    } rows[] = {{IR_OP_REDUCE_SUM, "Sum"},
                {IR_OP_REDUCE_PROD, "Product"},
                {IR_OP_REDUCE_MAX, "Maximum"},
                {IR_OP_REDUCE_MIN, "Minimum"}};
    size_t i = 0;
    if (w->s->pair[v] != NEST_NONE) return "Chan"; /* peaks have functions of their own */
    while (rows[i].op != emit_stmt(w, v)->op) ASSERT(++i < sizeof rows / sizeof rows[0]);
    return rows[i].name;
}

void emit_accumulate(writer_t *w, nest_value_t v, const char *element) {
    const uint32_t number = emit_number(w, v);
    emit_put(w, "EACH a%u%s = %s::of(a%u%s, (%s)", number, element, emit_combiner(w, v), number,
             element, emit_sum_type(w, v));
    emit_name(w, emit_reduced(w, v));
    emit_put(w, ");\n");
}

void emit_partial(writer_t *w, nest_value_t v) {
    emit_work(w, emit_sum_type(w, v), w->s->grid[v].partial);
}

/* ---- kernels ---- */

static st_status_t put_uniform(writer_t *w) {
    emit_put(w, "if (threadIdx.x) return;\n");
    TRY(emit_within(w, 0, 255));
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (w->s->uniform[v] != UINT64_MAX && w->s->level[v] == w->k->level)
            emit_put(w, "*(%s *)(p.work + %" PRIu64 "ull) = s%u;\n", emit_value_type(w, v),
                     w->s->uniform[v], v);
    for (uint32_t i = 0; i < w->k->n_stores; i++) emit_store(w, w->k->stores[i]);
    return ST_OK;
}

st_status_t emit_flat(writer_t *w, const char *limit) {
    emit_put(w, "if (n >= %s) return;\n", limit);
    emit_axes(w, w->k->mask, "n");
    TRY(emit_within(w, w->k->mask, 255));
    for (uint32_t i = 0; i < w->k->n_stores; i++) emit_store(w, w->k->stores[i]);
    return ST_OK;
}

static st_status_t put_flat(writer_t *w) {
    char limit[48];
    snprintf(limit, sizeof limit, "(%s)%" PRId64, w->index,
             emit_points(w, w->k->mask) / w->k->vector);
    emit_put(w, "const %s n = (%s)blockIdx.x * %d + threadIdx.x;\n", w->index, w->index,
             EMIT_BLOCK);
    return emit_flat(w, limit);
}

/* Begins a loop over the vectors of a row that the thread has. */
static void put_row_loop(writer_t *w) {
    const emit_kernel_t *k = w->k;
    int64_t vectors = emit_points(w, k->cols) / k->vector;
    if (k->chunks) {
        emit_put(w, "_Pragma(\"unroll\") for (int e = 0; e < %u; ++e) {\n", k->chunks);
        emit_put(w, "const %s c = e * %u + lane;\n", w->index, k->group);
        emit_put(w, "if (c < (%s)%" PRId64 ") {\n", w->index, vectors);
    } else {
        emit_put(w, "_Pragma(\"unroll 4\") for (%s c = lane; c < (%s)%" PRId64 "; c += %u) {{\n",
                 w->index, w->index, vectors, k->group);
    }
    emit_axes(w, k->cols, "c");
}

/* Loads along the row that stay in registers: those whose position needs no row reduction. */
static st_status_t put_kept_loads(writer_t *w, bool *want) {
    bool any = false;
    memset(want, 0, w->nest->n_stmts * sizeof *want);
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        if (!w->needed[v] || !emit_is_kept(w, v)) continue;
        emit_put(w, "%s s%u[%u]", emit_value_type(w, v), v, w->k->chunks);
        emit_put(w, emit_along_vector(w, v) ? "[%u];\n" : ";\n", w->k->vector);
        want_elements(w, want, v);
        any = true;
    }
    if (!any) return ST_OK;
    put_row_loop(w);
    TRY(put_wanted(w, want));
    emit_put(w, "}}\n");
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (want[v] && emit_is_kept(w, v)) w->written[v] = true;
    return ST_OK;
}

/* Is `v` a row reduction that stage `stage` accumulates? */
static bool in_stage(const writer_t *w, nest_value_t v, uint8_t stage) {
    return w->needed[v] && in_row(w, v) && w->stage[v] == stage + 1 && !emit_comes_along(w->s, v);
}

/* A maximum and the exponentials less it, all elements of a vector at once. */
static void put_peak(writer_t *w, nest_value_t v) {
    const nest_value_t of = emit_reduced(w, v);
    const bool along = emit_along_vector(w, of);
    emit_put(w, along ? "a%u.add<V>(s%u%s);\n" : "EACH a%u.add<1>(&s%u%s);\n", v,
             emit_number(w, of), emit_is_kept(w, of) ? "[e]" : "");
}

/* The results of a stage's reductions, the same in all threads of the row. */
static void put_row_results(writer_t *w, nest_value_t v) {
    const emit_kernel_t *k = w->k;
    const nest_value_t pair = w->s->pair[v];
    const char *type = emit_value_type(w, v);
    w->written[v] = true;
    if (pair == NEST_NONE) {
        emit_put(w, "const %s s%u = %s_all<%s", type, v, k->group == 32 ? "warp" : "block",
                 emit_combiner(w, v));
        if (k->group != 32) emit_put(w, ", %u", k->group);
        emit_put(w, ">(a%u);\n", v);
        return;
    }
    emit_put(w, "const Peak<%s> p%u = ", type, v);
    if (k->group == 32)
        emit_put(w, "warp_peak(a%u);\n", v);
    else
        emit_put(w, "block_peak<%u>(a%u);\n", k->group, v);
    emit_put(w, "const %s s%u = p%u.most, s%u = p%u.total();\n", type, pair, v, v, v);
    w->written[pair] = true;
}

static st_status_t put_row_stage(writer_t *w, uint8_t stage, bool *want) {
    const uint32_t n = w->nest->n_stmts;
    memset(want, 0, n * sizeof *want);
    for (nest_value_t v = 0; v < n; v++) {
        if (!in_stage(w, v, stage)) continue;
        const char *type = emit_sum_type(w, v);
        if (w->s->pair[v] == NEST_NONE)
            emit_put(w, "%s a%u = %s::first<%s>();\n", type, v, emit_combiner(w, v), type);
        else
            emit_put(w, "Peak<%s> a%u;\na%u.clear();\n", type, v, v);
        want_elements(w, want, emit_reduced(w, v));
    }
    put_row_loop(w);
    TRY(put_wanted(w, want));
    for (nest_value_t v = 0; v < n; v++) {
        if (!in_stage(w, v, stage)) continue;
        if (w->s->pair[v] == NEST_NONE)
            emit_accumulate(w, v, "");
        else
            put_peak(w, v);
    }
    emit_put(w, "}}\n");
    for (nest_value_t v = 0; v < n; v++)
        if (in_stage(w, v, stage)) put_row_results(w, v);
    return emit_within(w, w->k->rows, (uint8_t)(stage + 1));
}

static bool is_column_sum(const writer_t *w, nest_value_t v) {
    return (emit_stmt(w, emit_reduced(w, v))->mask & w->k->cols) != 0;
}

static st_status_t put_row_sinks(writer_t *w, bool *want) {
    const emit_kernel_t *k = w->k;
    bool any = false;
    memset(want, 0, w->nest->n_stmts * sizeof *want);
    for (uint32_t i = 0; i < k->n_stores; i++) {
        const nest_store_t *store = &w->nest->stores[k->stores[i]];
        if (!(store->mask & k->cols)) continue;
        want_elements(w, want, store->value);
        any = true;
    }
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        if (!is_column_sum(w, k->reduces[i])) continue;
        want_elements(w, want, emit_reduced(w, k->reduces[i]));
        any = true;
    }
    if (any) {
        put_row_loop(w);
        TRY(put_wanted(w, want));
        for (uint32_t i = 0; i < k->n_stores; i++)
            if (w->nest->stores[k->stores[i]].mask & k->cols) emit_store(w, k->stores[i]);
        for (uint32_t i = 0; i < k->n_reduces; i++)
            if (is_column_sum(w, k->reduces[i])) emit_accumulate(w, k->reduces[i], "[e][v]");
        emit_put(w, "}}\n");
    }
    emit_put(w, "if (lane == 0) {\n");
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (w->needed[v] && in_row(w, v) && w->s->grid[v].of_row)
            emit_put(w, "((%s *)(p.work + %" PRIu64 "ull))[row] = s%u;\n", emit_sum_type(w, v),
                     w->s->grid[v].result, v);
    for (uint32_t i = 0; i < k->n_stores; i++)
        if (!(w->nest->stores[k->stores[i]].mask & k->cols)) emit_store(w, k->stores[i]);
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        if (is_column_sum(w, k->reduces[i])) continue;
        emit_partial(w, k->reduces[i]);
        emit_put(w, "[row] = ");
        emit_name(w, emit_reduced(w, k->reduces[i]));
        emit_put(w, ";\n");
    }
    emit_put(w, "}\n");
    return ST_OK;
}

static st_status_t put_rows(writer_t *w, bool *want) {
    const emit_kernel_t *k = w->k;
    uint8_t stages = 0;
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++)
        if (w->needed[v] && w->stage[v] > stages) stages = w->stage[v];
    emit_put(w, "const int lane = threadIdx.x %% %u;\n", k->group);
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        if (!is_column_sum(w, v)) continue;
        emit_put(w, "%s a%u[%u][V];\n", emit_sum_type(w, v), v, k->chunks);
        emit_put(
            w,
            "_Pragma(\"unroll\") for (int e = 0; e < %u; ++e) EACH a%u[e][v] = %s::first<%s>();\n",
            k->chunks, v, emit_combiner(w, v), emit_sum_type(w, v));
    }
    emit_put(w,
             "for (%s row = (%s)blockIdx.x * %" PRId64 " + threadIdx.x / %u; row < (%s)%" PRId64
             "; row += (%s)gridDim.x * %" PRId64 ") {\n",
             w->index, w->index, k->splits, k->group, w->index, emit_points(w, k->rows), w->index,
             k->splits);
    emit_axes(w, k->rows, "row");
    TRY(emit_within(w, k->rows, 0));
    if (w->persistent) TRY(put_kept_loads(w, want));
    for (uint8_t stage = 0; stage < stages; stage++) TRY(put_row_stage(w, stage, want));
    TRY(put_row_sinks(w, want));
    emit_put(w, "}\n");
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        if (!is_column_sum(w, v)) continue;
        emit_put(
            w, "_Pragma(\"unroll\") for (int e = 0; e < %u; ++e) {\nconst %s c = e * %u + lane;\n",
            k->chunks, w->index, k->group);
        emit_put(w, "if (c < (%s)%" PRId64 ") EACH ", w->index,
                 emit_points(w, k->cols) / k->vector);
        emit_partial(w, v);
        emit_put(w, "[(%s)blockIdx.x * %" PRId64 " + c * V + v] = a%u[e][v];\n}\n", w->index,
                 emit_points(w, k->cols), v);
    }
    return ST_OK;
}

/* ---- the whole ---- */

static void put_data(writer_t *w) {
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_stmt(w, v);
        if (stmt->kind != NEST_LOAD || stmt->access.tensor != NEST_NONE) continue;
        emit_put(w, "__device__ const unsigned char b%u[] __attribute__((aligned(16))) = {", v);
        const unsigned char *bytes = stmt->access.data;
        for (size_t i = 0; i < stmt->access.data_bytes; i++) emit_put(w, "%u,", bytes[i]);
        emit_put(w, "};\n#define d%u ((const %s *)b%u)\n", v, emit_tensor_type(stmt->access.dtype),
                 v);
    }
}

static st_status_t check_types(const writer_t *w) {
    for (nest_value_t v = 0; v < w->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = emit_stmt(w, v);
        if (stmt->kind != NEST_LOAD) continue;
        if (!emit_tensor_type(stmt->access.dtype))
            return FAIL(ST_UNSUPPORTED, "a nest over %s", ir_dtype_text(stmt->access.dtype));
    }
    for (uint32_t i = 0; i < w->nest->n_stores; i++)
        if (!emit_tensor_type(w->nest->stores[i].access.dtype))
            return FAIL(ST_UNSUPPORTED, "a nest over %s",
                        ir_dtype_text(w->nest->stores[i].access.dtype));
    return ST_OK;
}

static bool is_far(const nest_t *nest, const nest_access_t *a, uint32_t domain) {
    int64_t end = a->offset + a->index_extent * a->index_stride;
    for (uint32_t i = 0; i < nest->domains[domain].n_axes; i++)
        end += nest->domains[domain].axes[i].extent * a->stride[i];
    return end >= (int64_t)1 << 30 || end <= -((int64_t)1 << 30);
}

/* Whether an index of any loop, load or store may not fit into 32 bits. */
static bool is_large(const nest_t *nest) {
    for (uint32_t d = 0; d < nest->n_domains; d++)
        if (nest_points(&nest->domains[d], ~0u) >= (int64_t)1 << 30) return true;
    for (uint32_t v = 0; v < nest->n_stmts; v++) {
        const nest_stmt_t *stmt = &nest->stmts[v];
        if (stmt->kind == NEST_LOAD && stmt->domain != NEST_NONE &&
            is_far(nest, &stmt->access, stmt->domain))
            return true;
    }
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        const nest_store_t *store = &nest->stores[i];
        if (store->domain != NEST_NONE && is_far(nest, &store->access, store->domain)) return true;
    }
    return false;
}

static st_status_t put_kernel(writer_t *w, uint32_t index, bool *want) {
    const emit_kernel_t *k = &w->s->kernels[index];
    w->k = k;
    w->persistent = k->shape == EMIT_ROWS && k->keep;
    emit_put(w, "extern \"C\" __global__ void __launch_bounds__(%u", emit_threads(k));
    if (k->resident > 1) emit_put(w, ", %u", k->resident);
    emit_put(w, ") k%u(const __grid_constant__ Params p) {\n", index);
    const uint32_t n_joined = emit_n_joined(w->s, index);
    if (n_joined) {
        TRY(emit_together(w, index, 1 + n_joined));
        emit_put(w, "}\n");
        return ST_OK;
    }
    emit_put(w, "enum { V = %u };\n", k->vector);
    if (k->shape == EMIT_LINES || k->shape == EMIT_FINISH)
        emit_put(w, "const unsigned block = blockIdx.x;\n");
    emit_find_slice(w);
    static st_status_t (*const shapes[])(writer_t *) = {[EMIT_UNIFORM] = put_uniform,
                                                        [EMIT_FLAT] = put_flat,
                                                        [EMIT_COLUMNS] = emit_columns,
                                                        [EMIT_LINES] = emit_lines,
                                                        [EMIT_FINISH] = emit_finish};
    if (k->shape == EMIT_ROWS)
        TRY(put_rows(w, want));
    else
        TRY(shapes[k->shape](w));
    emit_put(w, "}\n");
    return ST_OK;
}

st_status_t emit_source(const emit_schedule_t *schedule, char **out_source) {
    *out_source = NULL;
    uint32_t n = schedule->nest->n_stmts + 1;
    text_t text = {0};
    bool *flags = st_calloc(3 * (size_t)n, sizeof *flags);
    uint8_t *stages = st_calloc(n, sizeof *stages);
    st_status_t status = ST_OK;
    if (!flags || !stages) TRY_GOTO(st_no_memory(n, "the source of a nest"), done);
    writer_t w = {.s = schedule,
                  .nest = schedule->nest,
                  .out = &text,
                  .needed = flags,
                  .written = flags + n,
                  .stage = stages,
                  .index = is_large(schedule->nest) ? "long long" : "int"};
    TRY_GOTO(check_types(&w), done);
    emit_put(&w, "#define N_TENSORS %u\n%s", schedule->nest->n_operands + schedule->nest->n_results,
             emit_prelude);
    put_data(&w);
    for (uint32_t i = 0; i < schedule->n_kernels; i += 1 + emit_n_joined(schedule, i))
        TRY_GOTO(put_kernel(&w, i, flags + 2 * n), done);
    if (text.failed) status = st_no_memory(text.capacity, "the source of a nest");
done:
    st_free(flags);
    st_free(stages);
    if (status == ST_OK)
        *out_source = text.data;
    else
        st_free(text.data);
    return status;
}

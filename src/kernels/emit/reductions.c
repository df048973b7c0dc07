/* Kernels that end in partial results: LINES, COLUMNS, and FINISH, which joins them (schedule.h).
 *
 * A pair, a sum with the squares around its mean, is one accumulator. A thread sums what its first
 * element leaves of the others and the squares of that, which loses nothing where the mean is
 * large: the first is one of those summed, so the squares are at most 1 + n times what is wanted of
 * them. A block's threads go over to one element, to which all add up without a division; count,
 * mean and centred squares follow, and those of blocks join by Chan's formula (prelude.cuh). */
#include <inttypes.h>

#include "kernels/emit/writer.h"

static bool is_pair(const writer_t *w, nest_value_t v) {
    return w->s->pair[v] != NEST_NONE;
}

static bool any_pair(const writer_t *w) {
    bool any = false;
    for (uint32_t i = 0; i < w->k->n_reduces; i++) any |= is_pair(w, w->k->reduces[i]);
    return any;
}

/* Declares the accumulators a<v>, `n` of each ("": one), and the count of elements. */
static void put_accumulators(writer_t *w, const char *n) {
    for (uint32_t i = 0; i < w->k->n_reduces; i++) {
        nest_value_t v = w->k->reduces[i];
        const char *type = emit_sum_type(w, v), *each = n[0] ? "EACH " : "";
        const char *element = n[0] ? "[v]" : "";
        const uint32_t number = emit_number(w, v);
        if (is_pair(w, v))
            emit_put(w, "Shifted<%s> h%u%s;\n%sh%u%s.clear();\n", type, number, n, each, number,
                     element);
        else
            emit_put(w, "%s a%u%s;\n%sa%u%s = %s::first<%s>();\n", type, number, n, each, number,
                     element, emit_combiner(w, v), type);
    }
    if (any_pair(w)) emit_put(w, "%s count = 0;\n", w->index);
}

/* Adds the element at hand; of `each` vector element an own accumulator, or all into one. */
static void put_element(writer_t *w, bool each) {
    for (uint32_t i = 0; i < w->k->n_reduces; i++) {
        nest_value_t v = w->k->reduces[i];
        if (!is_pair(w, v)) {
            emit_accumulate(w, v, each ? "[v]" : "");
            continue;
        }
        emit_put(w, "EACH h%u%s.add((%s)", emit_number(w, v), each ? "[v]" : "",
                 emit_sum_type(w, v));
        emit_name(w, emit_reduced(w, v));
        emit_put(w, each ? ", count == 0);\n" : ", count + v == 0);\n");
    }
    if (any_pair(w)) emit_put(w, "count += %s;\n", each ? "1" : "V");
}

static void put_result(writer_t *w, nest_value_t v, const char *at) {
    emit_work(w, emit_sum_type(w, v), w->s->grid[v].result);
    emit_put(w, "[%s]", at);
}

/* What a block has of `at`: results if there is one part, else part `split` of them. */
static void put_part(writer_t *w, nest_value_t v, const char *element, int64_t points,
                     const char *at) {
    const uint32_t number = emit_number(w, v);
    if (!is_pair(w, v)) {
        emit_partial(w, v);
        emit_put(w, "[split * (%s)%" PRId64 " + %s] = a%u%s;\n", w->index, points, at, number,
                 element);
        return;
    }
    emit_put(w, "{\n");
    if (w->s->grid[v].n_partials == 1) {
        put_result(w, w->s->pair[v], at);
        emit_put(w, " = a%u%s.mean * a%u%s.n;\n", number, element, number, element);
        put_result(w, v, at);
        emit_put(w, " = a%u%s.squares;\n}\n", number, element);
        return;
    }
    for (int plane = 0; plane < 2; plane++) {
        emit_partial(w, v);
        emit_put(w, "[(2 * split + %d) * (%s)%" PRId64 " + %s] = a%u%s.%s;\n", plane, w->index,
                 points, at, number, element, plane ? "squares" : "mean");
    }
    emit_put(w, "}\n");
}

st_status_t emit_lines(writer_t *w) {
    const emit_kernel_t *k = w->k;
    int64_t vectors = emit_points(w, k->cols) / k->vector;
    int64_t part = (vectors + k->splits - 1) / k->splits;
    if (k->rows)
        emit_put(w, "const %s line = block / %" PRId64 "u, split = block %% %" PRId64 "u;\n",
                 w->index, k->splits, k->splits);
    else
        emit_put(w, "const %s line = 0, split = block;\n", w->index);
    if (emit_points(w, k->rows) == 0) emit_put(w, "if (line >= 0) return;\n");
    emit_axes(w, k->rows, "line");
    TRY(emit_within(w, k->rows, 255));
    put_accumulators(w, "");
    emit_put(w, "const %s part = ", w->index);
    emit_own(w, part);
    emit_put(w, ", vectors = ");
    emit_own(w, vectors);
    emit_put(w, ";\n%s last = (split + 1) * part;\nif (last > vectors) last = vectors;\n",
             w->index);
    emit_put(w,
             "_Pragma(\"unroll 4\") for (%s c = split * part + threadIdx.x; c < last; c += %d) {\n",
             w->index, EMIT_BLOCK);
    emit_axes(w, k->cols, "c");
    TRY(emit_within(w, k->mask, 255));
    put_element(w, false);
    emit_put(w, "}\n");
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        const uint32_t number = emit_number(w, v);
        if (is_pair(w, v))
            emit_put(w,
                     "const Moments<%s> a%u = block_moments<%d>(h%u, count, last > split * part ? "
                     "(last - split * part) * V : 0);\n",
                     emit_sum_type(w, v), number, EMIT_BLOCK, number);
        else
            emit_put(w, "a%u = block_all<%s, %d>(a%u);\n", number, emit_combiner(w, v), EMIT_BLOCK,
                     number);
        emit_put(w, "if (threadIdx.x == 0) ");
        put_part(w, v, "", emit_points(w, k->rows), "line");
    }
    return ST_OK;
}

st_status_t emit_columns(writer_t *w) {
    const emit_kernel_t *k = w->k;
    int64_t kept = emit_points(w, k->rows), n = emit_points(w, k->cols);
    int64_t part = (n + k->splits - 1) / k->splits;
    const uint32_t x = k->group, y = EMIT_BLOCK / k->group;
    emit_put(w, "const int x = threadIdx.x %% %u, y = threadIdx.x / %u;\n", x, x);
    emit_put(w,
             "const %s column = (%s)(blockIdx.x / %" PRId64
             "u) * %u + x, split = blockIdx.x %% %" PRId64 "u;\n",
             w->index, w->index, k->splits, x, k->splits);
    put_accumulators(w, "[V]");
    emit_put(w, "const %s begin = split * (%s)%" PRId64 ";\n", w->index, w->index, part);
    emit_put(w, "%s last = begin + (%s)%" PRId64 ";\n", w->index, w->index, part);
    emit_put(w, "if (last > (%s)%" PRId64 ") last = %" PRId64 ";\n", w->index, n, n);
    emit_put(w, "if (column < (%s)%" PRId64 ") {\n", w->index, kept / k->vector);
    emit_axes(w, k->rows, "column");
    TRY(emit_within(w, k->rows, 255));
    emit_put(w, "_Pragma(\"unroll 4\") for (%s o = begin + y; o < last; o += %u) {\n", w->index, y);
    emit_axes(w, k->cols, "o");
    TRY(emit_within(w, k->mask, 255));
    put_element(w, true);
    for (uint32_t i = 0; i < k->n_stores; i++) emit_store(w, k->stores[i]);
    emit_put(w, "}\n}\n");
    for (uint32_t i = 0; i < k->n_reduces; i++) {
        nest_value_t v = k->reduces[i];
        if (is_pair(w, v))
            emit_put(
                w,
                "Moments<%s> a%u[V];\ncolumns_of_block<V, %u, %u>(h%u, count, last > begin ? last "
                "- begin : 0, x, y, a%u);\n",
                emit_sum_type(w, v), v, x, y, v, v);
        else
            emit_put(w, "rows_of_block<%s, V, %u, %u>(a%u, x, y);\n", emit_combiner(w, v), x, y, v);
        emit_put(w, "if (y == 0 && column < (%s)%" PRId64 ") EACH ", w->index, kept / k->vector);
        put_part(w, v, "[v]", kept, "column * V + v");
    }
    return ST_OK;
}

/* Elements of part `s` of a pair. */
static void put_part_count(writer_t *w) {
    const emit_kernel_t *k = w->k;
    emit_put(w, "max((%s)0, min((%s)%" PRId64 ", (%s)%" PRId64 " - (%s)%" PRId64 " * s))", w->index,
             w->index, k->part, w->index, k->reduced, w->index, k->part);
}

/* Joins the parts of one reduction, of each point by `group` threads. */
static void put_join(writer_t *w, nest_value_t v) {
    const emit_kernel_t *k = w->k;
    const int64_t n = emit_points(w, k->mask);
    const bool whole = emit_finish_whole(k), pair = is_pair(w, v);
    const char *type = emit_sum_type(w, v), *join = emit_combiner(w, v);
    emit_put(w, pair ? "{\ntypedef Moments<%s> T;\n" : "{\ntypedef %s T;\n", type);
    emit_put(w, "T a[1] = {%s::first<T>()};\n", join);
    emit_put(w, "if (point < (%s)%" PRId64 ")\n_Pragma(\"unroll 8\") for (%s s = y; s < ", w->index,
             n, w->index);
    emit_own(w, w->s->grid[v].n_partials);
    emit_put(w, "; s += %u) a[0] = %s::of(a[0], ", k->group, join);
    if (pair) {
        emit_put(w, "T{(%s)", type);
        put_part_count(w);
    }
    for (int plane = 0; plane < (pair ? 2 : 1); plane++) {
        emit_put(w, pair ? ", " : "");
        emit_partial(w, v);
        if (pair)
            emit_put(w, "[(2 * s + %d) * (%s)%" PRId64 " + point]", plane, w->index, n);
        else
            emit_put(w, "[s * (%s)%" PRId64 " + point]", w->index, n);
    }
    emit_put(w, pair ? "});\n" : ");\n");
    if (whole)
        emit_put(w, "a[0] = block_all<%s, %d>(a[0]);\n", join, EMIT_BLOCK);
    else
        emit_put(w, "rows_of_block<%s, 1, 32, %u>(a, x, y);\n", join, k->group);
    emit_put(w, "if (y == 0 && point < (%s)%" PRId64 ") {\n", w->index, n);
    if (pair) {
        put_result(w, w->s->pair[v], "point");
        emit_put(w, " = a[0].mean * a[0].n;\n");
    }
    put_result(w, v, "point");
    emit_put(w, pair ? " = a[0].squares;\n}\n}\n" : " = a[0];\n}\n}\n");
}

st_status_t emit_finish(writer_t *w) {
    const emit_kernel_t *k = w->k;
    const bool whole = emit_finish_whole(k);
    emit_put(w, "const int x = %s, y = %s;\n", whole ? "0" : "threadIdx.x % 32",
             whole ? "threadIdx.x" : "threadIdx.x / 32");
    emit_put(w, "const %s point = %s;\n", w->index, whole ? "block" : "(long long)block * 32 + x");
    for (uint32_t i = 0; i < k->n_reduces; i++) put_join(w, k->reduces[i]);
    if (!k->n_stores) return ST_OK;
    /* the thread that has just made a point's results goes on with what comes of them */
    emit_put(w, "if (y != 0 || point >= (%s)%" PRId64 ") return;\n", w->index,
             emit_points(w, k->mask));
    emit_axes(w, k->mask, "point");
    TRY(emit_within(w, k->mask, 255));
    for (uint32_t i = 0; i < k->n_stores; i++) emit_store(w, k->stores[i]);
    return ST_OK;
}

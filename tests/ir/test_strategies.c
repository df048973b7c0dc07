/* Partition rules: for every op and every way its inputs may arrive, each strategy that its rule
 * lists gives on ranks the types and the values that the op gives as a whole. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/eval.h"
#include "ir/samples.h"

enum { MAX_OPTIONS = 2 + 3 * IR_MAX_RANK };

static bool divides(int64_t granules, int64_t size) {
    return granules == 0 ? size == 0 : size % granules == 0;
}

/* Ways a value may arrive: whole, partial (numbers only), split on any dim in 1, 4 or all granules.
 */
static uint32_t options_of(const ir_type_t *type, ir_placement_t *options) {
    uint32_t n = 0;
    options[n++] = IR_PLACE_REPLICATE;
    if (type->dtype != IR_BOOL) options[n++] = IR_PLACE_PARTIAL;
    for (int32_t dim = 0; dim < type->rank; dim++) {
        options[n++] = IR_PLACE_SPLIT(dim, type->dims[dim]);
        if (divides(4, type->dims[dim]) && type->dims[dim] != 4)
            options[n++] = IR_PLACE_SPLIT(dim, 4);
        if (type->dims[dim] > 1) options[n++] = IR_PLACE_SPLIT(dim, 1);
    }
    return n;
}

static ir_part_t part_of(const ir_type_t *type, ir_placement_t placement, int64_t rank, int64_t n) {
    ir_part_t part = {placement, 0, 0};
    if (placement.kind == IR_SPLIT)
        ir_split_range(type->dims[placement.dim], placement.granules, rank, n, &part.begin,
                       &part.extent);
    return part;
}

static ir_type_t local_type(const ir_type_t *type, ir_part_t part) {
    ir_type_t local = *type;
    if (part.placement.kind == IR_SPLIT) local.dims[part.placement.dim] = part.extent;
    return local;
}

/* A rank's elements of a value. A partial one is a seventh of it, which the last rank completes. */
static double *local_data(const ir_type_t *type, const double *data, ir_part_t part, int64_t rank,
                          int64_t n_ranks) {
    ir_type_t local = local_type(type, part);
    int64_t n = ir_type_elements(&local), index[IR_MAX_RANK];
    double *mine = calloc((size_t)n + 1, sizeof *mine);
    assert_non_null(mine);
    for (int64_t i = 0; i < n; i++) {
        eval_unravel(&local, i, index);
        if (part.placement.kind == IR_SPLIT) index[part.placement.dim] += part.begin;
        mine[i] = data[eval_ravel(type, index)];
        if (part.placement.kind != IR_PARTIAL) continue;
        double share = rank + 1 < n_ranks ? 1.0 / 7 : 1 - (double)(n_ranks - 1) / 7;
        mine[i] *= share;
    }
    return mine;
}

static void check_placement(const ir_type_t *type, ir_placement_t placement) {
    if (placement.kind != IR_SPLIT) return;
    assert_true(placement.dim >= 0 && placement.dim < type->rank);
    assert_true(divides(placement.granules, type->dims[placement.dim]));
}

static void assert_close(double a, double b) {
    assert_false(isnan(a));
    assert_true(fabs(a - b) <= 1e-9 * (1 + fabs(b)));
}

/* Runs the node rank by rank and compares with `whole`. */
static void check_ranks(const sampled_t *s, const ir_strategy_t *strategy, const double *whole,
                        int64_t n_ranks) {
    const ir_op_def_t *def = ir_op_def(s->ctx.op);
    int64_t n_out = ir_type_elements(&s->out);
    double *sum = calloc((size_t)n_out + 1, sizeof *sum);
    st_arena_t arena = {0};
    for (int64_t rank = 0; rank < n_ranks; rank++) {
        ir_type_t in[SAMPLE_INPUTS], out;
        ir_part_t in_part[SAMPLE_INPUTS],
            out_part = part_of(&s->out, strategy->out[0], rank, n_ranks);
        double *data[SAMPLE_INPUTS] = {NULL};
        for (uint32_t j = 0; j < s->ctx.n_inputs; j++) {
            in_part[j] = part_of(&s->in[j], strategy->in[j], rank, n_ranks);
            in[j] = local_type(&s->in[j], in_part[j]);
            data[j] = local_data(&s->in[j], s->data[j], in_part[j], rank, n_ranks);
        }
        uint32_t n_attrs = ir_op_n_attrs(def);
        ir_attr_t *attrs = st_arena_copy(&arena, s->ctx.attrs, n_attrs * sizeof *attrs);
        assert_non_null(attrs);
        if (def->localize)
            assert_int_equal(def->localize(&s->ctx, in_part, &out_part, &arena, attrs), ST_OK);
        ir_op_ctx_t ctx = {s->ctx.op, s->ctx.n_inputs, 1, in, attrs, ""};
        if (def->shape(&ctx, &out) != ST_OK) fail_msg("%s", st_last_error());
        ir_type_t expected = local_type(&s->out, out_part);
        assert_true(ir_type_equal(&out, &expected));

        double *mine = eval_op(&ctx, (const double *const *)data);
        assert_non_null(mine);
        double *right = local_data(&s->out, whole, out_part, rank, n_ranks);
        for (int64_t i = 0; i < ir_type_elements(&out); i++) {
            if (strategy->out[0].kind == IR_PARTIAL)
                sum[i] += mine[i];
            else
                assert_close(mine[i], right[i]);
        }
        free(mine);
        free(right);
        for (int j = 0; j < SAMPLE_INPUTS; j++) free(data[j]);
    }
    for (int64_t i = 0; i < n_out && strategy->out[0].kind == IR_PARTIAL; i++)
        assert_close(sum[i], whole[i]);
    free(sum);
    st_arena_clear(&arena);
}

static const int64_t rank_counts[] = {1, 3, 5};

/* Integer division of partial sums would not be exact, so numbers that are indices stay whole. */
static bool meaningful(const sampled_t *s, const ir_strategy_t *strategy) {
    for (uint32_t j = 0; j < s->ctx.n_inputs; j++)
        if (strategy->in[j].kind == IR_PARTIAL && !ir_dtype_is_float(s->in[j].dtype)) return false;
    return true;
}

static void check_strategies(const sampled_t *s, const ir_placement_t *have, const double *whole,
                             size_t *n_listed) {
    ir_strategy_list_t list = {.have = have};
    ir_op_def(s->ctx.op)->strategies(&s->ctx, &list);
    *n_listed += list.n;
    for (uint32_t i = 0; i < list.n; i++) {
        const ir_strategy_t *strategy = &list.items[i];
        bool all_whole = strategy->out[0].kind == IR_REPLICATE;
        check_placement(&s->out, strategy->out[0]);
        for (uint32_t j = 0; j < s->ctx.n_inputs; j++) {
            check_placement(&s->in[j], strategy->in[j]);
            all_whole &= strategy->in[j].kind == IR_REPLICATE;
        }
        assert_false(all_whole); /* that is the caller's to add */
        assert_true(meaningful(s, strategy));
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(strategy, &list.items[k], sizeof *strategy);
        for (size_t r = 0; r < sizeof rank_counts / sizeof rank_counts[0]; r++)
            check_ranks(s, strategy, whole, rank_counts[r]);
    }
}

typedef struct tally {
    size_t n_samples[IR_OP_END], n_listed[IR_OP_END];
} tally_t;

static void visit_strategies(const sample_t *sample, void *user) {
    tally_t *tally = user;
    sampled_t s;
    sampled_make(sample, &s);
    double *whole = eval_op(&s.ctx, (const double *const *)s.data);
    assert_non_null(whole);
    ir_placement_t options[SAMPLE_INPUTS][MAX_OPTIONS], have[SAMPLE_INPUTS] = {{0}};
    uint32_t n_options[SAMPLE_INPUTS] = {1, 1, 1}, n_combinations = 1;
    for (uint32_t j = 0; j < s.ctx.n_inputs; j++) {
        n_options[j] = options_of(&s.in[j], options[j]);
        n_combinations *= n_options[j];
    }
    for (uint32_t c = 0; c < n_combinations; c++) {
        uint32_t rest = c;
        for (uint32_t j = 0; j < s.ctx.n_inputs; j++, rest /= n_options[j - 1])
            have[j] = options[j][rest % n_options[j]];
        check_strategies(&s, have, whole, &tally->n_listed[s.ctx.op]);
    }
    tally->n_samples[s.ctx.op]++;
    free(whole);
    sampled_free(&s);
}

static void listed_strategies_give_the_whole_on_ranks(void **state) {
    (void)state;
    static tally_t tally;
    samples_each(visit_strategies, &tally);
    for (int op = IR_OP_NEG; op <= IR_OP_SUM_SQUARES; op++) {
        if (!ir_op_def((ir_op_t)op)) continue;
        if (!tally.n_samples[op] || !tally.n_listed[op])
            fail_msg("%s: %zu samples, %zu strategies", ir_op_def((ir_op_t)op)->name,
                     tally.n_samples[op], tally.n_listed[op]);
    }
}

/* A source may be made in parts although nothing arrives split: localize alone must know how. */
static void visit_sources(const sample_t *sample, void *user) {
    size_t *n = user;
    if (sample->op > IR_OP_RANDOM_UNIFORM) return;
    sampled_t s;
    sampled_make(sample, &s);
    double *whole = eval_op(&s.ctx, (const double *const *)s.data);
    ir_placement_t options[MAX_OPTIONS];
    uint32_t n_options = options_of(&s.out, options);
    for (uint32_t i = 0; i < n_options; i++) {
        if (options[i].kind != IR_SPLIT) continue;
        ir_strategy_t strategy = {.out = {options[i]}};
        for (size_t r = 0; r < sizeof rank_counts / sizeof rank_counts[0]; r++)
            check_ranks(&s, &strategy, whole, rank_counts[r]);
        ++*n;
    }
    free(whole);
    sampled_free(&s);
}

static void sources_are_made_in_parts(void **state) {
    (void)state;
    size_t n = 0;
    samples_each(visit_sources, &n);
    assert_true(n > 20);
}

/* Lists and elements are rewritten in memory of their own, single numbers in their place. */
static bool has_lists(const ir_op_def_t *def) {
    for (uint32_t a = 0; def->attrs && def->attrs[a].key; a++)
        if (def->attrs[a].kind == IR_ATTR_INTS || def->attrs[a].kind == IR_ATTR_DATA) return true;
    return false;
}

/* Rewriting attributes takes memory, the lack of which is reported. */
static void visit_without_memory(const sample_t *sample, void *user) {
    size_t *n = user;
    const ir_op_def_t *def = ir_op_def(sample->op);
    if (!def->localize || !has_lists(def)) return;
    sampled_t s;
    sampled_make(sample, &s);
    ir_part_t in[SAMPLE_INPUTS] = {{{0}, 0, 0}};
    for (int32_t dim = 0; dim < s.out.rank; dim++) {
        ir_part_t out = part_of(&s.out, IR_PLACE_SPLIT(dim, s.out.dims[dim]), 0, 3);
        uint32_t n_attrs = ir_op_n_attrs(def);
        ir_attr_t attrs[SAMPLE_ARGS];
        assert_true(n_attrs <= SAMPLE_ARGS);
        memcpy(attrs, s.ctx.attrs, n_attrs * sizeof *attrs);
        st_arena_t arena = {0};
        st_memory_fail_after(0, true);
        st_status_t status = def->localize(&s.ctx, in, &out, &arena, attrs);
        st_memory_fail_after(-1, false);
        assert_int_equal(status, ST_NO_MEMORY);
        st_arena_clear(&arena);
        ++*n;
    }
    sampled_free(&s);
}

static void lack_of_memory_is_reported(void **state) {
    (void)state;
    size_t n = 0;
    samples_each(visit_without_memory, &n);
    assert_true(n > 30);
}

/* ---- single decisions ---- */

#define R IR_PLACE_REPLICATE
#define P IR_PLACE_PARTIAL
#define S(dim, granules) IR_PLACE_SPLIT(dim, granules)
#define TYPE(dtype, ...)                                                                          \
    ir_type_make(IR_##dtype, (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                 (const int64_t[]){__VA_ARGS__})
#define INTS(key, ...)                                 \
    IR_ARG_INTS(key, ((const int64_t[]){__VA_ARGS__}), \
                sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* Whether the rule, given `have`, lists in → out. */
static bool lists(const sample_t *sample, const ir_placement_t *have, const ir_placement_t *in,
                  ir_placement_t out) {
    sampled_t s;
    sampled_make(sample, &s);
    ir_strategy_list_t list = {.have = have};
    ir_op_def(s.ctx.op)->strategies(&s.ctx, &list);
    bool found = false;
    for (uint32_t i = 0; i < list.n; i++) {
        bool same = ir_placement_equal(list.items[i].out[0], out);
        for (uint32_t j = 0; j < sample->n_inputs; j++)
            same = same && ir_placement_equal(list.items[i].in[j], in[j]);
        found |= same;
    }
    sampled_free(&s);
    return found;
}

static bool passes(const sample_t *sample, ir_placement_t in, ir_placement_t out) {
    return lists(sample, &in, &in, out);
}

static sample_t reshape_of(ir_type_t from, const ir_type_t *to) {
    return (sample_t){IR_OP_RESHAPE, 1, {from}, 1, {IR_ARG_INTS("shape", to->dims, to->rank)}, 0};
}

static void reshape_carries_granules(void **state) {
    (void)state;
    const struct {
        ir_type_t from, to;
        ir_placement_t in, out; /* out partial: no strategy expected */
    } rows[] = {
        {TYPE(F32, 4, 32, 64), TYPE(F32, 128, 64), S(0, 4), S(0, 4)},
        {TYPE(F32, 128, 64), TYPE(F32, 4, 32, 64), S(0, 4), S(0, 4)},
        {TYPE(F32, 128, 64), TYPE(F32, 4, 32, 64), S(0, 128), P},
        {TYPE(F32, 128, 64), TYPE(F32, 4, 32, 64), S(1, 64), S(2, 64)},
        {TYPE(F32, 4, 32, 64), TYPE(F32, 128, 64), S(1, 32), P},
        {TYPE(F32, 8, 128, 2), TYPE(F32, 8, 4, 64), S(1, 4), S(1, 4)},
        {TYPE(F32, 8, 3), TYPE(F32, 1, 8, 1, 3), S(0, 8), S(1, 8)},
        {TYPE(F32, 1, 8, 3), TYPE(F32, 24), S(1, 8), S(0, 8)},
        {TYPE(F32, 1, 32), TYPE(F32, 32), S(0, 1), S(0, 1)},
        {TYPE(F32, 1, 32), TYPE(F32, 1, 1, 32), S(0, 1), S(0, 1)},
        {TYPE(F32, 0, 4), TYPE(F32, 0, 2, 2), S(0, 0), S(0, 0)},
        {TYPE(F32, 8, 0), TYPE(F32, 8, 0, 3), S(0, 8), S(0, 8)},
        {TYPE(F32, 8, 3), TYPE(F32, 24), P, P},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sample_t sample = reshape_of(rows[i].from, &rows[i].to);
        if (rows[i].out.kind == IR_PARTIAL && rows[i].in.kind == IR_SPLIT) {
            sampled_t s;
            sampled_make(&sample, &s);
            ir_strategy_list_t list = {.have = &rows[i].in};
            ir_op_def(IR_OP_RESHAPE)->strategies(&s.ctx, &list);
            assert_int_equal(list.n, 0);
            sampled_free(&s);
        } else if (!passes(&sample, rows[i].in, rows[i].out)) {
            fail_msg("row %zu: the split is not carried over", i);
        }
    }
}

static void reductions_give_partial_sums(void **state) {
    (void)state;
    sample_t sum = {IR_OP_REDUCE_SUM, 1, {TYPE(F32, 8, 3, 2)}, 1, {INTS("axes", 0, 1)}, 0};
    assert_true(passes(&sum, S(0, 8), P));
    assert_true(passes(&sum, S(1, 3), P));
    assert_true(passes(&sum, S(2, 2), S(0, 2)));
    assert_true(passes(&sum, P, P));
    sample_t largest = sum;
    largest.op = IR_OP_REDUCE_MAX;
    assert_false(passes(&largest, S(0, 8), P));
    assert_false(passes(&largest, P, P));
    assert_true(passes(&largest, S(2, 2), S(0, 2)));
    sample_t mean = sum; /* the rank's count is not the global one */
    mean.op = IR_OP_REDUCE_MEAN;
    assert_false(passes(&mean, S(0, 8), P));
    sample_t norm = {IR_OP_SUM_SQUARES, 2, {TYPE(F32, 8, 2), TYPE(F32, 6)}, 0, {{0}}, 0};
    assert_true(lists(&norm, (ir_placement_t[]){S(0, 4), S(0, 6)},
                      (ir_placement_t[]){S(0, 4), S(0, 6)}, P));
    assert_false(lists(&norm, (ir_placement_t[]){S(0, 4), R}, (ir_placement_t[]){S(0, 4), R}, P));
}

static void products_scale_partial_sums(void **state) {
    (void)state;
    sample_t mul = {IR_OP_MUL, 2, {TYPE(F32, 8, 2), TYPE(F32, 2)}, 0, {{0}}, 0};
    assert_true(lists(&mul, (ir_placement_t[]){P, R}, (ir_placement_t[]){P, R}, P));
    assert_true(lists(&mul, (ir_placement_t[]){R, P}, (ir_placement_t[]){R, P}, P));
    assert_false(lists(&mul, (ir_placement_t[]){P, P}, (ir_placement_t[]){P, P}, P));
    assert_true(
        lists(&mul, (ir_placement_t[]){S(0, 8), R}, (ir_placement_t[]){S(0, 8), R}, S(0, 8)));
    sample_t quotient = mul;
    quotient.op = IR_OP_DIV;
    assert_true(lists(&quotient, (ir_placement_t[]){P, R}, (ir_placement_t[]){P, R}, P));
    assert_false(lists(&quotient, (ir_placement_t[]){R, P}, (ir_placement_t[]){R, P}, P));
    sample_t add = mul;
    add.op = IR_OP_ADD;
    assert_true(lists(&add, (ir_placement_t[]){P, P}, (ir_placement_t[]){P, P}, P));
    assert_true(
        lists(&add, (ir_placement_t[]){S(0, 4), P}, (ir_placement_t[]){S(0, 4), R}, S(0, 4)));
    sample_t maximum = mul;
    maximum.op = IR_OP_MAXIMUM;
    assert_false(lists(&maximum, (ir_placement_t[]){P, P}, (ir_placement_t[]){P, P}, P));
    sample_t zeros = {IR_OP_PAD, 1, {TYPE(F32, 4)}, 2, {INTS("low", 1), INTS("high", 0)}, 0};
    assert_true(passes(&zeros, P, P));
    zeros.n_args = 3;
    zeros.args[2] = IR_ARG_FLOAT("value", 1);
    assert_false(passes(&zeros, P, P));
}

static void indices_split_and_add_up(void **state) {
    (void)state;
    sample_t gather = {
        IR_OP_GATHER, 2, {TYPE(F32, 5, 6), TYPE(I64, 8, 2)}, 1, {IR_ARG_INT("axis", 0)}, 5};
    assert_true(
        lists(&gather, (ir_placement_t[]){R, S(0, 8)}, (ir_placement_t[]){R, S(0, 8)}, S(0, 8)));
    assert_true(
        lists(&gather, (ir_placement_t[]){S(1, 6), R}, (ir_placement_t[]){S(1, 6), R}, S(2, 6)));
    assert_false(
        lists(&gather, (ir_placement_t[]){S(0, 5), R}, (ir_placement_t[]){S(0, 5), R}, S(0, 5)));
    sample_t scatter = {IR_OP_SCATTER_ADD,
                        2,
                        {TYPE(F32, 8, 2, 6), TYPE(I64, 8, 2)},
                        2,
                        {IR_ARG_INT("axis", 0), IR_ARG_INT("extent", 5)},
                        5};
    assert_true(
        lists(&scatter, (ir_placement_t[]){S(0, 8), R}, (ir_placement_t[]){S(0, 8), S(0, 8)}, P));
    assert_true(
        lists(&scatter, (ir_placement_t[]){S(2, 6), R}, (ir_placement_t[]){S(2, 6), R}, S(1, 6)));
    assert_true(lists(&scatter, (ir_placement_t[]){P, R}, (ir_placement_t[]){P, R}, P));
}

/* An input proposes its own batch axis; more operands than a strategy tells apart are all alike. */
static void inputs_and_many_operands(void **state) {
    (void)state;
    ir_graph_t *graph;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_b_input(&b, "x", TYPE(F32, 3, 8), 1);
    ir_op_ctx_t ctx = {IR_OP_INPUT, 0, 1, NULL, ir_node(graph, 0)->attrs, "x"};
    ir_strategy_list_t list = {0};
    ir_op_def(IR_OP_INPUT)->strategies(&ctx, &list);
    assert_int_equal(list.n, 1);
    assert_true(ir_placement_equal(list.items[0].out[0], S(1, 8)));

    ir_value_t xs[20];
    ir_type_t in[20];
    ir_placement_t have[20];
    for (int j = 0; j < 20; j++) xs[j] = 0, in[j] = TYPE(F32, 3, 8), have[j] = R;
    ir_b_concat(&b, 20, xs, 0);
    assert_int_equal(b.status, ST_OK);
    have[19] = S(1, 8);
    ctx = (ir_op_ctx_t){IR_OP_CONCAT, 20, 1, in, ir_node(graph, 1)->attrs, ""};
    list = (ir_strategy_list_t){.have = have};
    ir_op_def(IR_OP_CONCAT)->strategies(&ctx, &list);
    assert_int_equal(list.n, 1);
    assert_true(ir_placement_equal(list.items[0].in[0], S(1, 8)));
    assert_true(ir_placement_equal(list.items[0].out[0], S(1, 8)));
    ir_graph_destroy(graph);
}

static void ranges_cover_a_dim_once(void **state) {
    (void)state;
    for (int64_t granules = 0; granules <= 12; granules++) {
        for (int64_t n_ranks = 1; n_ranks <= 7; n_ranks++) {
            int64_t at = 0, begin, extent;
            for (int64_t rank = 0; rank < n_ranks; rank++) {
                ir_split_range(granules * 5, granules, rank, n_ranks, &begin, &extent);
                assert_int_equal(begin, at);
                assert_int_equal(extent % 5, 0);
                at += extent;
            }
            assert_int_equal(at, granules * 5);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_strategies_give_the_whole_on_ranks),
        cmocka_unit_test(sources_are_made_in_parts),
        cmocka_unit_test(lack_of_memory_is_reported),
        cmocka_unit_test(reshape_carries_granules),
        cmocka_unit_test(reductions_give_partial_sums),
        cmocka_unit_test(products_scale_partial_sums),
        cmocka_unit_test(indices_split_and_add_up),
        cmocka_unit_test(inputs_and_many_operands),
        cmocka_unit_test(ranges_cover_a_dim_once),
    };
    return cmocka_run_group_tests_name("strategies", tests, NULL, NULL);
}

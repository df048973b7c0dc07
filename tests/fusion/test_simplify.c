/* Simplify: text in, text out. */
#include "fusion/simplify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "ir/build.h"
#include "ir/codec.h"
#include "ir/convert.h"
#include "ir/text.h"
#include "ir/verify.h"

/* ---- an evaluator of three ops, apart from the kernels ---- */

static int n_evaluated;
static int64_t largest_evaluated;

/* Element of a possibly smaller operand that meets element `flat` of a result of type `out`. */
static size_t meet(const ir_type_t *in, const ir_type_t *out, int64_t flat) {
    int64_t index = 0, stride = 1;
    for (int32_t i = out->rank - 1; i >= 0; i--) {
        int64_t at = flat % out->dims[i];
        int32_t own = i - (out->rank - in->rank);
        flat /= out->dims[i];
        if (own < 0) continue;
        index += in->dims[own] == 1 ? 0 : at * stride;
        stride *= in->dims[own];
    }
    return (size_t)index;
}

static st_status_t evaluate(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                            const void *const *in, void *const *out) {
    const ir_type_t *type = &out_types[0];
    (void)context;
    if (ctx->op != IR_OP_ADD && ctx->op != IR_OP_MUL && ctx->op != IR_OP_GATHER)
        return FAIL(ST_UNSUPPORTED, "no evaluator");
    n_evaluated++;
    int64_t n = ir_type_elements(type);
    if (n > largest_evaluated) largest_evaluated = n;
    for (int64_t i = 0; i < n; i++) {
        if (ctx->op == IR_OP_GATHER) { /* one-dimensional, axis 0 */
            int64_t at = ir_element_load_i64(ctx->in[1].dtype, in[1], (size_t)i);
            if (at >= ctx->in[0].dims[0]) return FAIL(ST_INVALID, "index %d is too large", (int)at);
            ir_element_store(type->dtype, out[0], (size_t)i,
                             ir_element_load(type->dtype, in[0], (size_t)at));
            continue;
        }
        double a = ir_element_load(ctx->in[0].dtype, in[0], meet(&ctx->in[0], type, i));
        double b = ir_element_load(ctx->in[1].dtype, in[1], meet(&ctx->in[1], type, i));
        ir_element_store(type->dtype, out[0], (size_t)i, ctx->op == IR_OP_ADD ? a + b : a * b);
    }
    return ST_OK;
}

static const ir_target_t target = {.name = "test", .evaluate = evaluate};

/* ---- the harness ---- */

static ir_graph_t *parse(const char *text) {
    ir_graph_t *graph;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* `before` and `after` are the statements between the braces; `after` as the printer has it. The
 * result verifies and simplifies to itself. */
static void assert_simplifies(const char *before, const char *after) {
    char text[4096], expected[4096], *printed;
    ir_graph_t *simple, *again;
    snprintf(text, sizeof text, "graph \"g\" producer \"p\" {\n%s}\n", before);
    snprintf(expected, sizeof expected, "graph \"g\" producer \"p\" {\n%s}\n", after);
    ir_graph_t *graph = parse(text);
    if (fuse_simplify(graph, &target, &simple) != ST_OK) fail_msg("%s", st_last_error());
    if (ir_graph_verify(simple) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ir_graph_print(simple, &printed), ST_OK);
    assert_string_equal(printed, expected);
    st_free(printed);
    assert_int_equal(fuse_simplify(simple, &target, &again), ST_OK);
    assert_int_equal(ir_graph_print(again, &printed), ST_OK);
    assert_string_equal(printed, expected);
    st_free(printed);
    ir_graph_destroy(graph);
    ir_graph_destroy(simple);
    ir_graph_destroy(again);
}

#define X "  %0 x = input {dtype=f32, shape=[2,3]} : f32[2,3]\n"
#define OUT(n) "  output \"y\" = %" #n "\n"

static void dead_code_goes_and_effects_stay(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 w = parameter {dtype=f32, shape=[2,3]}\n"
                      "  %2 unused = input {dtype=f32, shape=[1]}\n"
                      "  %3 b = buffer {dtype=f32, shape=[2,3]}\n"
                      "  %4 = exp(%0)\n"
                      "  %5 = neg(%4)\n"
                      "  %6 = tanh(%0)\n"
                      "  update(%3, %6)\n"
                      "  %7 = sin(%0)\n" OUT(7) "  alias \"tied\" = \"w\"\n",
                      X
                      "  %1 w = parameter {dtype=f32, shape=[2,3]} : f32[2,3]\n"
                      "  %2 unused = input {dtype=f32, shape=[1]} : f32[1]\n"
                      "  %3 b = buffer {dtype=f32, shape=[2,3]} : f32[2,3]\n"
                      "  %4 = tanh(%0) : f32[2,3]\n"
                      "  update(%3, %4)\n"
                      "  %5 = sin(%0) : f32[2,3]\n" OUT(5) "  alias \"tied\" = \"w\"\n");
}

static void collectives_stay(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 = all_reduce_start(%0)\n"
                      "  %2 = all_reduce_wait(%1)\n"
                      "  %3 = all_reduce_start(%0)\n"
                      "  %4 = all_reduce_wait(%3)\n" OUT(0),
                      X
                      "  %1 = all_reduce_start(%0) : f32[2,3]\n"
                      "  %2 = all_reduce_wait(%1) : f32[2,3]\n"
                      "  %3 = all_reduce_start(%0) : f32[2,3]\n"
                      "  %4 = all_reduce_wait(%3) : f32[2,3]\n" OUT(0));
}

static void equal_nodes_merge(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 first = exp(%0)\n"
                      "  %2 second = exp(%0)\n"
                      "  %3 = softmax(%1) {axis=0}\n"
                      "  %4 = softmax(%2) {axis=1}\n"
                      "  %5 = softmax(%2) {axis=0}\n"
                      "  %6 = sub(%3, %5)\n"
                      "  %7 = sub(%6, %4)\n" OUT(7),
                      X
                      "  %1 first = exp(%0) : f32[2,3]\n"
                      "  %2 = softmax(%1) {axis=0} : f32[2,3]\n"
                      "  %3 = softmax(%1) {axis=1} : f32[2,3]\n"
                      "  %4 = sub(%2, %2) : f32[2,3]\n"
                      "  %5 = sub(%4, %3) : f32[2,3]\n" OUT(5));
}

static void both_results_of_a_merged_node_are_mapped(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 w = parameter {dtype=f32, shape=[3]}\n"
                      "  %2, %3 = rms_norm(%0, %1)\n"
                      "  %4, %5 = rms_norm(%0, %1)\n"
                      "  %6, %7 = rms_norm(%0, %1) {eps=0.5}\n"
                      "  output \"a\" = %4\n  output \"b\" = %5\n  output \"c\" = %7\n",
                      X
                      "  %1 w = parameter {dtype=f32, shape=[3]} : f32[3]\n"
                      "  %2, %3 = rms_norm(%0, %1) : f32[2,3], f32[2]\n"
                      "  %4, %5 = rms_norm(%0, %1) {eps=0.5} : f32[2,3], f32[2]\n"
                      "  output \"a\" = %2\n  output \"b\" = %3\n  output \"c\" = %5\n");
}

/* One random stream is one value; another id is another. */
/* What forward needs stays forward, with all it needs itself, whoever comes first. */
static void merged_nodes_take_the_earlier_phase(void **state) {
    (void)state;
    assert_simplifies(X
                      "  phase backward\n"
                      "  %1 = exp(%0)\n"
                      "  %2 = neg(%1)\n"
                      "  %3 = sin(%2)\n"
                      "  phase forward\n"
                      "  %4 = exp(%0)\n"
                      "  %5 = neg(%4)\n"
                      "  phase optimizer\n"
                      "  %6 = sin(%5)\n"
                      "  %7 = cos(%6)\n"
                      "  output \"a\" = %3\n"
                      "  output \"b\" = %5\n"
                      "  output \"c\" = %7\n",
                      X
                      "  %1 = exp(%0) : f32[2,3]\n"
                      "  %2 = neg(%1) : f32[2,3]\n"
                      "  phase backward\n"
                      "  %3 = sin(%2) : f32[2,3]\n"
                      "  phase optimizer\n"
                      "  %4 = cos(%3) : f32[2,3]\n"
                      "  output \"a\" = %3\n"
                      "  output \"b\" = %2\n"
                      "  output \"c\" = %4\n");
}

static void random_merges_by_id_only(void **state) {
    (void)state;
    assert_simplifies(
        "  %0 seed = input {dtype=i64, shape=[], batch_axis=-1}\n"
        "  %1 = random_uniform(%0, %0) {dtype=f32, shape=[4], id=1}\n"
        "  %2 = random_uniform(%0, %0) {dtype=f32, shape=[4], id=2}\n"
        "  %3 = random_uniform(%0, %0) {dtype=f32, shape=[4], id=1}\n"
        "  %4 = sub(%1, %2)\n  %5 = sub(%4, %3)\n" OUT(5),
        "  %0 seed = input {dtype=i64, shape=[], batch_axis=-1} : i64[]\n"
        "  %1 = random_uniform(%0, %0) {dtype=f32, shape=[4], id=1} : f32[4]\n"
        "  %2 = random_uniform(%0, %0) {dtype=f32, shape=[4], id=2} : f32[4]\n"
        "  %3 = sub(%1, %2) : f32[4]\n  %4 = sub(%3, %1) : f32[4]\n" OUT(4));
}

static void operations_that_do_nothing_go(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 = reshape(%0) {shape=[2,3]}\n"
                      "  %2 = broadcast(%1) {shape=[2,3]}\n"
                      "  %3 = transpose(%2) {perm=[0,1]}\n"
                      "  %4 = cast(%3) {dtype=f32}\n"
                      "  %5 = slice(%4) {begin=[0,0], end=[2,3], step=[1,1]}\n"
                      "  %6 = pad(%5) {low=[0,0], high=[0,0]}\n"
                      "  %7 = concat(%6) {axis=0}\n"
                      "  %8 = neg(%7)\n  %9 = neg(%8)\n" OUT(9),
                      X OUT(0));
    /* these do something */
    assert_simplifies(X
                      "  %1 = transpose(%0) {perm=[1,0]}\n"
                      "  %2 = slice(%0) {begin=[1,0], end=[-1,3], step=[-1,1]}\n"
                      "  output \"a\" = %1\n  output \"b\" = %2\n",
                      X
                      "  %1 = transpose(%0) {perm=[1,0]} : f32[3,2]\n"
                      "  %2 = slice(%0) {begin=[1,0], end=[-1,3], step=[-1,1]} : f32[2,3]\n"
                      "  output \"a\" = %1\n  output \"b\" = %2\n");
}

static void reshapes_and_broadcasts_compose(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 = reshape(%0) {shape=[6]}\n"
                      "  %2 = reshape(%1) {shape=[3,1,2]}\n"
                      "  %3 = reshape(%2) {shape=[1,6]}\n"
                      "  %4 = broadcast(%3) {shape=[4,6]}\n"
                      "  %5 = broadcast(%4) {shape=[5,4,6]}\n" OUT(5),
                      X
                      "  %1 = reshape(%0) {shape=[1,6]} : f32[1,6]\n"
                      "  %2 = broadcast(%1) {shape=[5,4,6]} : f32[5,4,6]\n" OUT(2));
    assert_simplifies(X "  %1 = reshape(%0) {shape=[6]}\n  %2 = reshape(%1) {shape=[2,3]}\n" OUT(2),
                      X OUT(0));
}

static void transposes_compose(void **state) {
    (void)state;
#define X3 "  %0 x = input {dtype=f32, shape=[2,3,4]} : f32[2,3,4]\n"
    /* first [3,4,2], then [3,2,4]: dims 1, 0, 2 of x */
    assert_simplifies(X3
                      "  %1 = transpose(%0) {perm=[1,2,0]}\n"
                      "  %2 = transpose(%1) {perm=[0,2,1]}\n" OUT(2),
                      X3 "  %1 = transpose(%0) {perm=[1,0,2]} : f32[3,2,4]\n" OUT(1));
    assert_simplifies(X3
                      "  %1 = transpose(%0) {perm=[1,2,0]}\n"
                      "  %2 = transpose(%1) {perm=[2,0,1]}\n" OUT(2),
                      X3 OUT(0));
}

static void products_take_transposes_in(void **state) {
    (void)state;
    assert_simplifies(X3
                      "  %1 w = parameter {dtype=f32, shape=[3,5]}\n"
                      "  %2 = transpose(%0) {perm=[0,2,1]}\n"
                      "  %3 = transpose(%1) {perm=[1,0]}\n"
                      "  %4 = matmul(%2, %3) {transpose_b=true}\n" OUT(4),
                      X3
                      "  %1 w = parameter {dtype=f32, shape=[3,5]} : f32[3,5]\n"
                      "  %2 = matmul(%0, %1) {transpose_a=true} : f32[2,4,5]\n" OUT(2));
    /* this one moves a batch dim */
    assert_simplifies(X3
                      "  %1 w = parameter {dtype=f32, shape=[4,5]}\n"
                      "  %2 = transpose(%0) {perm=[1,0,2]}\n"
                      "  %3 = matmul(%2, %1)\n" OUT(3),
                      X3
                      "  %1 w = parameter {dtype=f32, shape=[4,5]} : f32[4,5]\n"
                      "  %2 = transpose(%0) {perm=[1,0,2]} : f32[3,2,4]\n"
                      "  %3 = matmul(%2, %1) : f32[3,2,5]\n" OUT(3));
}

static void casts_that_lose_nothing_go(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 = cast(%0) {dtype=f64}\n"
                      "  %2 = cast(%1) {dtype=f32}\n"
                      "  %3 = cast(%1) {dtype=bf16}\n"
                      "  output \"a\" = %2\n  output \"b\" = %3\n",
                      X
                      "  %1 = cast(%0) {dtype=bf16} : bf16[2,3]\n"
                      "  output \"a\" = %0\n  output \"b\" = %1\n");
    /* f32 → bf16 → f32 rounds; i8 → f32 → u8 saturates where i8 → u8 wraps */
    assert_simplifies(X
                      "  %1 i = input {dtype=i8, shape=[2]}\n"
                      "  %2 = cast(%0) {dtype=bf16}\n"
                      "  %3 = cast(%2) {dtype=f32}\n"
                      "  %4 = cast(%1) {dtype=f32}\n"
                      "  %5 = cast(%4) {dtype=u8}\n"
                      "  output \"a\" = %3\n  output \"b\" = %5\n",
                      X
                      "  %1 i = input {dtype=i8, shape=[2]} : i8[2]\n"
                      "  %2 = cast(%0) {dtype=bf16} : bf16[2,3]\n"
                      "  %3 = cast(%2) {dtype=f32} : f32[2,3]\n"
                      "  %4 = cast(%1) {dtype=f32} : f32[2]\n"
                      "  %5 = cast(%4) {dtype=u8} : u8[2]\n"
                      "  output \"a\" = %3\n  output \"b\" = %5\n");
}

/* Exhaustive where the source has few values: a chain is dropped only if no value tells. */
static void dropped_cast_chains_change_no_value(void **state) {
    (void)state;
    static const ir_dtype_t small[] = {IR_F8E4M3, IR_F8E5M2, IR_I8,  IR_U8,
                                       IR_BOOL,   IR_F16,    IR_BF16};
    size_t n_dropped = 0;
    for (size_t a = 0; a < sizeof small / sizeof small[0]; a++)
        for (int b = 1; b < IR_DTYPE_END; b++) {
            char text[512];
            ir_graph_t *simple;
            snprintf(text, sizeof text,
                     "graph { %%0 x = input {dtype=%s, shape=[1]} %%1 = cast(%%0) {dtype=%s} "
                     "%%2 = cast(%%1) {dtype=%s} output y = %%2 }",
                     ir_dtype_text(small[a]), ir_dtype_text((ir_dtype_t)b),
                     ir_dtype_text(small[a]));
            ir_graph_t *graph = parse(text);
            assert_int_equal(fuse_simplify(graph, NULL, &simple), ST_OK);
            bool dropped = simple->nodes.n == 1;
            ir_graph_destroy(graph);
            ir_graph_destroy(simple);
            if (!dropped || (ir_dtype_t)b == small[a]) continue;
            n_dropped++;
            size_t bytes = ir_dtype_bytes(small[a]);
            uint32_t n_values = small[a] == IR_BOOL ? 2 : bytes == 1 ? 256 : 65536;
            for (uint32_t bits = 0; bits < n_values; bits++) {
                unsigned char x[8] = {0}, middle[8] = {0}, back[8] = {0};
                memcpy(x, &bits, bytes);
                double value = ir_element_load(small[a], x, 0);
                if (value != value) continue; /* a NaN's bits are not promised */
                ir_element_store((ir_dtype_t)b, middle, 0, value);
                ir_element_store(small[a], back, 0, ir_element_load((ir_dtype_t)b, middle, 0));
                assert_memory_equal(x, back, bytes);
            }
        }
    assert_int_equal(n_dropped, 4 + 4 + 6 + 6 + 10 + 2 + 2);
}

static void neutral_elements_go_where_the_shape_stays(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 = constant {dtype=f32, shape=[], data=0}\n"
                      "  %2 = constant {dtype=f32, shape=[2,3], data=1}\n"
                      "  %3 = add(%0, %1)\n  %4 = add(%1, %3)\n  %5 = sub(%4, %1)\n"
                      "  %6 = mul(%5, %2)\n  %7 = mul(%2, %6)\n  %8 = div(%7, %2)\n"
                      "  %9 = pow(%8, %2)\n" OUT(9),
                      X OUT(0));
    assert_simplifies(
        "  %0 i = input {dtype=i64, shape=[2]}\n"
        "  %1 = constant {dtype=i64, shape=[], data=0}\n"
        "  %2 = add(%0, %1)\n" OUT(2),
        "  %0 i = input {dtype=i64, shape=[2]} : i64[2]\n" OUT(0));
    /* the constant broadcasts x; 1 / x and 0 - x are no identities; neither is x * 2 */
    assert_simplifies(X
                      "  %1 = constant {dtype=f32, shape=[5,2,3], data=0}\n"
                      "  %2 = add(%0, %1)\n"
                      "  %3 = constant {dtype=f32, shape=[], data=1}\n"
                      "  %4 = div(%3, %0)\n"
                      "  %5 = constant {dtype=f32, shape=[], data=0}\n"
                      "  %6 = sub(%5, %0)\n"
                      "  %7 = constant {dtype=f32, shape=[2], data=[1,2]}\n"
                      "  output \"a\" = %2\n  output \"b\" = %4\n  output \"c\" = %6\n",
                      X
                      "  %1 = constant {dtype=f32, shape=[5,2,3], data=0} : f32[5,2,3]\n"
                      "  %2 = add(%0, %1) : f32[5,2,3]\n"
                      "  %3 = constant {dtype=f32, shape=[], data=1} : f32[]\n"
                      "  %4 = div(%3, %0) : f32[2,3]\n"
                      "  %5 = constant {dtype=f32, shape=[], data=0} : f32[]\n"
                      "  %6 = sub(%5, %0) : f32[2,3]\n"
                      "  output \"a\" = %2\n  output \"b\" = %4\n  output \"c\" = %6\n");
}

static void known_conditions_choose(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 = exp(%0)\n"
                      "  %2 = constant {dtype=bool, shape=[], data=false}\n"
                      "  %3 = select(%2, %0, %1)\n" OUT(3),
                      X "  %1 = exp(%0) : f32[2,3]\n" OUT(1));
    assert_simplifies(X
                      "  %1 c = input {dtype=bool, shape=[2,3]}\n"
                      "  %2 = select(%1, %0, %0)\n" OUT(2),
                      X "  %1 c = input {dtype=bool, shape=[2,3]} : bool[2,3]\n" OUT(0));
}

static void splats_stay_splats(void **state) {
    (void)state;
    n_evaluated = 0;
    largest_evaluated = 0;
    /* a million elements by way of one */
    assert_simplifies(
        "  %0 = constant {dtype=f32, shape=[1000,1], data=2}\n"
        "  %1 = broadcast(%0) {shape=[1000,1000]}\n"
        "  %2 = transpose(%1) {perm=[1,0]}\n"
        "  %3 = reshape(%2) {shape=[1000000]}\n"
        "  %4 = slice(%3) {begin=[10], end=[1000000], step=[1]}\n"
        "  %5 = constant {dtype=f32, shape=[], data=1.5}\n"
        "  %6 = mul(%4, %5)\n" OUT(6),
        "  %0 = constant {dtype=f32, shape=[999990], data=3} : f32[999990]\n" OUT(0));
    assert_true(n_evaluated >= 1);
    assert_int_equal(largest_evaluated, 1);
    /* written out in full, found to be equal */
    assert_simplifies("  %0 = constant {dtype=i32, shape=[4], data=[7,7,7,7]}\n" OUT(0),
                      "  %0 = constant {dtype=i32, shape=[4], data=7} : i32[4]\n" OUT(0));
}

static void constants_fold(void **state) {
    (void)state;
    assert_simplifies(
        "  %0 = constant {dtype=f32, shape=[3], data=[1,2,3]}\n"
        "  %1 = constant {dtype=f32, shape=[2,1], data=[10,20]}\n"
        "  %2 = constant {dtype=f32, shape=[], data=0.5}\n"
        "  %3 = add(%0, %1)\n"
        "  %4 = mul(%3, %2)\n"
        "  %5 = reshape(%4) {shape=[3,2]}\n" OUT(5),
        "  %0 = constant {dtype=f32, shape=[3,2], data=[5.5,6,6.5,10.5,11,11.5]} : f32[3,2]\n" OUT(
            0));
    /* a result whose elements turn out equal is a splat */
    assert_simplifies(
        "  %0 = constant {dtype=f32, shape=[3], data=[1,2,3]}\n"
        "  %1 = constant {dtype=f32, shape=[3], data=[3,2,1]}\n"
        "  %2 = add(%0, %1)\n" OUT(2),
        "  %0 = constant {dtype=f32, shape=[3], data=4} : f32[3]\n" OUT(0));
    /* no evaluator, or only a repetition: the node stays */
    assert_simplifies(
        "  %0 = constant {dtype=f32, shape=[2], data=[1,2]}\n"
        "  %1 = exp(%0)\n"
        "  %2 = broadcast(%0) {shape=[3,2]}\n"
        "  output \"a\" = %1\n  output \"b\" = %2\n",
        "  %0 = constant {dtype=f32, shape=[2], data=[1,2]} : f32[2]\n"
        "  %1 = exp(%0) : f32[2]\n"
        "  %2 = broadcast(%0) {shape=[3,2]} : f32[3,2]\n"
        "  output \"a\" = %1\n  output \"b\" = %2\n");
}

static void folding_is_bounded(void **state) {
    (void)state;
    n_evaluated = 0;
    /* 4096 × 8192 f32 is 128 MiB, above the limit of 64 MiB */
    ir_graph_t *graph, *simple;
    static float column[4096], row[8192];
    for (int i = 0; i < 8192; i++) row[i] = (float)i;
    for (int i = 0; i < 4096; i++) column[i] = (float)i;
    assert_int_equal(ir_graph_create("", &graph), ST_OK);
    ir_build_t b = {.graph = graph};
    ir_value_t x =
        ir_b_constant(&b, ir_type_make(IR_F32, 2, (int64_t[]){4096, 1}), column, sizeof column);
    ir_value_t y = ir_b_constant(&b, ir_type_make(IR_F32, 1, (int64_t[]){8192}), row, sizeof row);
    ir_b_output(&b, "y", ir_b_binary(&b, IR_OP_ADD, x, y));
    assert_int_equal(b.status, ST_OK);
    assert_int_equal(fuse_simplify(graph, &target, &simple), ST_OK);
    assert_int_equal(n_evaluated, 0);
    assert_int_equal(simple->nodes.n, 3);
    ir_graph_destroy(graph);
    ir_graph_destroy(simple);
}

static void wrong_constants_are_errors_of_the_graph(void **state) {
    (void)state;
    ir_graph_t *simple = (ir_graph_t *)1;
    ir_graph_t *graph = parse(
        "graph { %0 = constant {dtype=f32, shape=[2], data=[1,2]} %1 = constant {dtype=i64, "
        "shape=[2], "
        "data=[0,5]} %2 pick = gather(%0, %1) {axis=0} output y = %2 }");
    assert_int_equal(fuse_simplify(graph, &target, &simple), ST_INVALID);
    assert_null(simple);
    assert_string_equal(st_last_error(), "node 2 (gather 'pick'): index 5 is too large");
    ir_graph_destroy(graph);
}

static void without_a_target_arithmetic_stays(void **state) {
    (void)state;
    ir_graph_t *simple;
    ir_graph_t *graph = parse(
        "graph { %0 = constant {dtype=f32, shape=[], data=2} %1 = mul(%0, %0) output y = %1 }");
    assert_int_equal(fuse_simplify(graph, NULL, &simple), ST_OK);
    assert_int_equal(simple->nodes.n, 2);
    ir_graph_destroy(graph);
    ir_graph_destroy(simple);
}

static void equal_graphs_give_equal_bytes(void **state) {
    (void)state;
    const char *text =
        "graph { %0 x = input {dtype=f32, shape=[2]} %1 = exp(%0) %2 = exp(%0) %3 = add(%1, %2) "
        "%4 = constant {dtype=f32, shape=[], data=3} %5 = mul(%4, %4) %6 = mul(%3, %5) output y = "
        "%6 }";
    uint8_t *bytes[2];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        ir_graph_t *graph = parse(text), *simple;
        void *shift = st_malloc(1 + (size_t)i * 100000); /* other addresses the second time */
        assert_int_equal(fuse_simplify(graph, &target, &simple), ST_OK);
        assert_int_equal(ir_graph_encode(simple, &bytes[i], &n[i]), ST_OK);
        ir_graph_destroy(graph);
        ir_graph_destroy(simple);
        st_free(shift);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    st_free(bytes[0]);
    st_free(bytes[1]);
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    ir_graph_t *graph = parse(
        "graph { %0 x = input {dtype=f32, shape=[2]} %1 = exp(%0) %2 = exp(%0) %3 = add(%1, %2) "
        "%4 = constant {dtype=f32, shape=[2], data=[3,4]} %5 = mul(%4, %4) %6 = mul(%3, %5) "
        "output y = %6 }");
    st_status_t status;
    int64_t n = 0;
    do {
        ir_graph_t *simple = NULL;
        st_memory_fail_after(n++, false);
        status = fuse_simplify(graph, &target, &simple);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        ir_graph_destroy(simple);
        assert_true(n < 1000);
    } while (status != ST_OK);
    assert_true(n > 10);
    ir_graph_destroy(graph);
}

#define BODY_IN "input {dtype=f32, shape=[3], batch_axis=-1} : f32[3]\n"

/* Of two carries, three stacks and four operands one of each is read; the second carry lives, since
 * the first is made from it, the third does not. The body is simplified by itself. */
static void bodies_are_trimmed(void **state) {
    (void)state;
    assert_simplifies(
        X
        "  %a = constant {dtype=f32, shape=[3], data=1}\n"
        "  %dead = exp(%a)\n"
        "  %p, %q, %r, %s, %t = repeat(%a, %a, %dead, %0, %dead) {trip=2, carried=3, scanned=1,\n"
        "  body=graph {\n"
        "    %a a = " BODY_IN "    %b b = " BODY_IN "    %c c = " BODY_IN "    %x x = " BODY_IN
        "    %u u = " BODY_IN
        "    %n = neg(%b)\n    %m = neg(%n)\n    %s = add(%a, %m)\n    %v = add(%b, %x)\n"
        "    %w = mul(%c, %u)\n"
        "    output a = %s\n    output b = %v\n    output c = %w\n    output old = %a\n"
        "    output other = %w\n  }}\n"
        "  output \"y\" = %p\n",
        X
        "  %1 = constant {dtype=f32, shape=[3], data=1} : f32[3]\n"
        "  %2, %3 = repeat(%1, %1, %0) {body=graph {\n"
        "    %0 a = " BODY_IN "    %1 b = " BODY_IN "    %2 x = " BODY_IN
        "    %3 = add(%0, %1) : f32[3]\n    %4 = add(%1, %2) : f32[3]\n"
        "    output \"a\" = %3\n    output \"b\" = %4\n"
        "  }, trip=2, carried=2, scanned=1} : f32[3], f32[3]\n" OUT(2));
}

static void branches_are_trimmed_together(void **state) {
    (void)state;
    assert_simplifies(
        "  %0 x = input {dtype=f32, shape=[3]} : f32[3]\n"
        "  %1 f = input {dtype=bool, shape=[], batch_axis=-1} : bool[]\n"
        "  %a = sin(%0)\n  %b = cos(%0)\n  %c = tanh(%0)\n"
        "  %p, %q = cond(%1, %a, %b, %c) {then=graph {\n"
        "    %a a = " BODY_IN "    %b b = " BODY_IN "    %c c = " BODY_IN
        "    output p = %a\n    output q = %c\n  }, else=graph {\n"
        "    %a a = " BODY_IN "    %b b = " BODY_IN "    %c c = " BODY_IN
        "    output p = %b\n    output q = %c\n  }}\n"
        "  output \"y\" = %p\n",
        "  %0 x = input {dtype=f32, shape=[3]} : f32[3]\n"
        "  %1 f = input {dtype=bool, shape=[], batch_axis=-1} : bool[]\n"
        "  %2 = sin(%0) : f32[3]\n  %3 = cos(%0) : f32[3]\n"
        "  %4 = cond(%1, %2, %3) {then=graph {\n"
        "    %0 a = " BODY_IN "    %1 b = " BODY_IN
        "    output \"p\" = %0\n  }, else=graph {\n"
        "    %0 a = " BODY_IN "    %1 b = " BODY_IN
        "    output \"p\" = %1\n  }} : f32[3]\n" OUT(4));
}

/* ---- chains of views ---- */

#define K "  %0 k = input {dtype=f32, shape=[2,4,6,8]} : f32[2,4,6,8]\n"

static void chains_of_views_are_read_as_one(void **state) {
    (void)state;
    assert_simplifies(K /* the keys of all heads transposed as one batch */
                      "  %1 = reshape(%0) {shape=[8,6,8]}\n"
                      "  %2 = transpose(%1) {perm=[0,2,1]}\n"
                      "  %3 = reshape(%2) {shape=[2,4,8,6]}\n" OUT(3),
                      K "  %1 = transpose(%0) {perm=[0,1,3,2]} : f32[2,4,8,6]\n" OUT(1));
    assert_simplifies(K /* there and back */
                      "  %1 = transpose(%0) {perm=[0,2,1,3]}\n"
                      "  %2 = reshape(%1) {shape=[2,6,32]}\n"
                      "  %3 = reshape(%2) {shape=[2,6,4,8]}\n"
                      "  %4 = transpose(%3) {perm=[0,2,1,3]}\n" OUT(4),
                      K OUT(0));
    assert_simplifies(
        "  %0 x = input {dtype=f32, shape=[1,6,1,8]} : f32[1,6,1,8]\n"
        "  %1 = transpose(%0) {perm=[2,1,0,3]}\n"
        "  %2 = reshape(%1) {shape=[6,8]}\n" OUT(2), /* nothing moves */
        "  %0 x = input {dtype=f32, shape=[1,6,1,8]} : f32[1,6,1,8]\n"
        "  %1 = reshape(%0) {shape=[6,8]} : f32[6,8]\n" OUT(1));
    /* not one view, or not shorter */
    const char *kept = K
        "  %1 = transpose(%0) {perm=[0,2,1,3]} : f32[2,6,4,8]\n"
        "  %2 = reshape(%1) {shape=[2,6,32]} : f32[2,6,32]\n"
        "  %3 = transpose(%2) {perm=[0,2,1]} : f32[2,32,6]\n" OUT(3);
    assert_simplifies(kept, kept);
}

static void slices_go_to_where_their_elements_are(void **state) {
    (void)state;
    assert_simplifies(K
                      "  %1 = slice(%0) {begin=[0,1,0,0], end=[2,4,6,8], step=[1,1,1,2]}\n"
                      "  %2 = slice(%1) {begin=[0,1,0,1], end=[2,3,6,4], step=[1,1,1,2]}\n" OUT(2),
                      K
                      "  %1 = slice(%0) {begin=[0,2,0,2], end=[2,4,6,7], step=[1,1,1,4]} : "
                      "f32[2,2,6,2]\n" OUT(1));
    assert_simplifies(X
                      "  %1 = exp(%0)\n  %2 = concat(%0, %1) {axis=1}\n"
                      "  %3 = slice(%2) {begin=[0,3], end=[2,6], step=[1,1]}\n" OUT(3),
                      X "  %1 = exp(%0) : f32[2,3]\n" OUT(1));
    assert_simplifies(X
                      "  %1 = broadcast(%0) {shape=[4,2,3]}\n"
                      "  %2 = slice(%1) {begin=[1,0,1], end=[3,2,2], step=[1,1,1]}\n" OUT(2),
                      X
                      "  %1 = slice(%0) {begin=[0,1], end=[2,2], step=[1,1]} : f32[2,1]\n"
                      "  %2 = broadcast(%1) {shape=[2,2,1]} : f32[2,2,1]\n" OUT(2));
    assert_simplifies(X
                      "  %1 = slice(%0) {begin=[0,0], end=[2,1], step=[1,1]}\n"
                      "  %2 = slice(%0) {begin=[0,1], end=[2,2], step=[1,1]}\n"
                      "  %3 = slice(%0) {begin=[0,2], end=[2,3], step=[1,1]}\n"
                      "  %4 = concat(%1, %2, %3) {axis=1}\n" OUT(4),
                      X OUT(0));
    assert_simplifies(X
                      "  %1 = constant {dtype=i64, shape=[2], data=[-2,2]}\n"
                      "  %2 = gather(%0, %1) {axis=1}\n" OUT(2),
                      X
                      "  %1 = slice(%0) {begin=[0,1], end=[2,3], step=[1,1]} : f32[2,2]\n" OUT(1));
}

static void transposes_leave_elementwise_ops(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 = transpose(%0) {perm=[1,0]}\n  %2 = tanh(%1)\n"
                      "  %3 = transpose(%2) {perm=[1,0]}\n" OUT(3),
                      X "  %1 = tanh(%0) : f32[2,3]\n" OUT(1));
    assert_simplifies(X
                      "  %1 z = input {dtype=f32, shape=[2,3]}\n"
                      "  %2 = transpose(%0) {perm=[1,0]}\n  %3 = transpose(%1) {perm=[1,0]}\n"
                      "  %4 = sub(%2, %3)\n" OUT(4),
                      X
                      "  %1 z = input {dtype=f32, shape=[2,3]} : f32[2,3]\n"
                      "  %2 = sub(%0, %1) : f32[2,3]\n"
                      "  %3 = transpose(%2) {perm=[1,0]} : f32[3,2]\n" OUT(3));
}

static void broadcasts_are_not_computed_with(void **state) {
    (void)state;
    assert_simplifies(
        X
        "  %1 v = input {dtype=f32, shape=[3]}\n"
        "  %2 = broadcast(%1) {shape=[2,3]}\n  %3 = exp(%2)\n  %4 = mul(%0, %3)\n" OUT(4),
        X
        "  %1 v = input {dtype=f32, shape=[3]} : f32[3]\n"
        "  %2 = exp(%1) : f32[3]\n  %3 = mul(%0, %2) : f32[2,3]\n" OUT(3));
    assert_simplifies(X
                      "  %1 = broadcast(%0) {shape=[4,2,3]}\n"
                      "  %2 = reduce_max(%1) {axes=[0]}\n"
                      "  %3 = reduce_sum(%1) {axes=[0], keep=true}\n"
                      "  %4 = reduce_sum(%1) {axes=[0,1]}\n"
                      "  output \"a\" = %2\n  output \"b\" = %3\n  output \"c\" = %4\n",
                      X
                      "  %1 = broadcast(%0) {shape=[4,2,3]} : f32[4,2,3]\n"
                      "  %2 = reshape(%0) {shape=[1,2,3]} : f32[1,2,3]\n"
                      "  %3 = constant {dtype=f32, shape=[], data=4} : f32[]\n"
                      "  %4 = mul(%2, %3) : f32[1,2,3]\n"
                      "  %5 = reduce_sum(%1) {axes=[0,1]} : f32[3]\n"
                      "  output \"a\" = %0\n  output \"b\" = %4\n  output \"c\" = %5\n");
}

/* Gradients take operands of one shape: what they need repeated stays so. */
static void ops_that_do_not_repeat_keep_broadcasts(void **state) {
    (void)state;
    const char *kept = X
        "  %1 v = input {dtype=f32, shape=[3]} : f32[3]\n"
        "  %2 = broadcast(%1) {shape=[2,3]} : f32[2,3]\n"
        "  %3 = relu_grad(%2, %0) : f32[2,3]\n" OUT(3);
    assert_simplifies(kept, kept);
}

static void signs_and_choices(void **state) {
    (void)state;
    assert_simplifies(X
                      "  %1 z = input {dtype=f32, shape=[2,3]}\n  %2 = neg(%1)\n"
                      "  %3 = add(%2, %0)\n  %4 = sub(%0, %2)\n  %5 = neg(%0)\n  %6 = mul(%5, %2)\n"
                      "  %7 = square(%5)\n  %8 = abs(%5)\n  %9 = relu(%8)\n"
                      "  output \"a\" = %3\n  output \"b\" = %4\n  output \"c\" = %6\n"
                      "  output \"d\" = %7\n  output \"e\" = %9\n",
                      X
                      "  %1 z = input {dtype=f32, shape=[2,3]} : f32[2,3]\n"
                      "  %2 = sub(%0, %1) : f32[2,3]\n  %3 = add(%0, %1) : f32[2,3]\n"
                      "  %4 = mul(%0, %1) : f32[2,3]\n  %5 = square(%0) : f32[2,3]\n"
                      "  %6 = abs(%0) : f32[2,3]\n"
                      "  output \"a\" = %2\n  output \"b\" = %3\n  output \"c\" = %4\n"
                      "  output \"d\" = %5\n  output \"e\" = %6\n");
    assert_simplifies(X
                      "  %1 z = input {dtype=f32, shape=[2,3]}\n  %2 = eq(%0, %1)\n"
                      "  %3 = logical_not(%2)\n  %4 = lt(%0, %1)\n  %5 = logical_not(%4)\n"
                      "  %6 = select(%5, %0, %1)\n  %7 = logical_and(%5, %5)\n"
                      "  output \"a\" = %3\n  output \"b\" = %6\n  output \"c\" = %7\n",
                      X
                      "  %1 z = input {dtype=f32, shape=[2,3]} : f32[2,3]\n"
                      "  %2 = ne(%0, %1) : bool[2,3]\n  %3 = lt(%0, %1) : bool[2,3]\n"
                      "  %4 = logical_not(%3) : bool[2,3]\n"
                      "  %5 = select(%3, %1, %0) : f32[2,3]\n"
                      "  output \"a\" = %2\n  output \"b\" = %5\n  output \"c\" = %4\n");
    assert_simplifies(X
                      "  %1 = constant {dtype=f32, shape=[], data=8}\n  %2 = div(%0, %1)\n"
                      "  %3 = constant {dtype=f32, shape=[], data=3}\n  %4 = div(%2, %3)\n"
                      "  %5 = maximum(%4, %4)\n  %6 = sub(%5, %5)\n" OUT(6),
                      X
                      "  %1 = constant {dtype=f32, shape=[], data=0.125} : f32[]\n"
                      "  %2 = mul(%0, %1) : f32[2,3]\n"
                      "  %3 = constant {dtype=f32, shape=[], data=3} : f32[]\n"
                      "  %4 = div(%2, %3) : f32[2,3]\n"
                      "  %5 = sub(%4, %4) : f32[2,3]\n" OUT(5)); /* NaN stays NaN */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_code_goes_and_effects_stay),
        cmocka_unit_test(collectives_stay),
        cmocka_unit_test(bodies_are_trimmed),
        cmocka_unit_test(branches_are_trimmed_together),
        cmocka_unit_test(equal_nodes_merge),
        cmocka_unit_test(both_results_of_a_merged_node_are_mapped),
        cmocka_unit_test(merged_nodes_take_the_earlier_phase),
        cmocka_unit_test(random_merges_by_id_only),
        cmocka_unit_test(operations_that_do_nothing_go),
        cmocka_unit_test(reshapes_and_broadcasts_compose),
        cmocka_unit_test(transposes_compose),
        cmocka_unit_test(products_take_transposes_in),
        cmocka_unit_test(casts_that_lose_nothing_go),
        cmocka_unit_test(dropped_cast_chains_change_no_value),
        cmocka_unit_test(neutral_elements_go_where_the_shape_stays),
        cmocka_unit_test(known_conditions_choose),
        cmocka_unit_test(splats_stay_splats),
        cmocka_unit_test(constants_fold),
        cmocka_unit_test(folding_is_bounded),
        cmocka_unit_test(wrong_constants_are_errors_of_the_graph),
        cmocka_unit_test(without_a_target_arithmetic_stays),
        cmocka_unit_test(equal_graphs_give_equal_bytes),
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(chains_of_views_are_read_as_one),
        cmocka_unit_test(slices_go_to_where_their_elements_are),
        cmocka_unit_test(transposes_leave_elementwise_ops),
        cmocka_unit_test(broadcasts_are_not_computed_with),
        cmocka_unit_test(ops_that_do_not_repeat_keep_broadcasts),
        cmocka_unit_test(signs_and_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

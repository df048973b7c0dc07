/* The layout pass: text in, text out; random graphs full of transposes keep their values. */
#include <string.h>

#include "base/hash.h"
#include "fusion/layout.h"
#include "interpret.h"
#include "ir/build.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/scratch.h"

/* ---- devices: a byte takes 1 ns, a launch 1 us ---- */

static void cost(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                 ir_cost_t *out) {
    const uint32_t flags = ir_op_def(ctx->op)->flags;
    (void)context;
    *out = (ir_cost_t){.limit = "memory"};
    if ((flags & (IR_VIEW | IR_STATE | IR_SIDE_EFFECT)) || ctx->op == IR_OP_INPUT ||
        ctx->op == IR_OP_CONSTANT)
        return;
    for (uint32_t j = 0; j < ctx->n_inputs; j++) out->us += (double)ir_type_bytes(&ctx->in[j]);
    for (uint32_t k = 0; k < ctx->n_outputs; k++) out->us += (double)ir_type_bytes(&out_types[k]);
    out->us = 1 + out->us * 1e-3;
}

/* Convolutions with channels first put copies around themselves, as cuDNN's do in small floats. */
static void cost_first(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                       ir_cost_t *out) {
    cost(context, ctx, out_types, out);
    if ((ir_op_def(ctx->op)->flags & IR_CONTRACTION) && ctx->op != IR_OP_MATMUL &&
        ctx->op != IR_OP_ATTENTION && ctx->op != IR_OP_ATTENTION_GRAD &&
        !ir_ctx_int(ctx, "channels_last"))
        out->us *= 10;
}

static bool can_run(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                    const char **out_reason) {
    (void)context, (void)ctx, (void)out_types;
    *out_reason = "";
    return true;
}
static bool can_run_plain(void *context, const ir_op_ctx_t *ctx, const ir_type_t *out_types,
                          const char **out_reason) {
    const ir_op_def_t *def = ir_op_def(ctx->op);
    (void)context, (void)out_types;
    *out_reason = "one order only";
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++)
        if ((strcmp(def->attrs[i].key, "rows_first") == 0 ||
             strcmp(def->attrs[i].key, "channels_last") == 0) &&
            ctx->attrs[i].i)
            return false;
    return true;
}

static const ir_machine_t cpu = {.name = "cpu", .device = "cpu"};
static const ir_machine_t gpu = {.name = "gpu", .device = "gpu"};
static const ir_target_t exact = {
    .name = "cpu", .machine = &cpu, .cost = cost, .can_run = can_run_plain};
static const ir_target_t exact_turning = {
    .name = "cpu", .machine = &cpu, .cost = cost, .can_run = can_run};
static const ir_target_t free_sums = {
    .name = "gpu", .machine = &gpu, .cost = cost, .can_run = can_run};
static const ir_target_t last_conv = {
    .name = "gpu", .machine = &gpu, .cost = cost_first, .can_run = can_run};

/* ---- the harness ---- */

static ir_graph_t *lay_out(const ir_graph_t *graph, const ir_target_t *target) {
    layout_decision_t *decision;
    ir_graph_t *made;
    assert_ok(layout_decide(&graph, 1, 0, target, &decision));
    assert_ok(layout_apply(decision, graph, &made));
    layout_decision_destroy(decision);
    assert_ok(ir_graph_verify(made));
    return made;
}

static char *printed(const ir_graph_t *graph) {
    char *text;
    assert_ok(ir_graph_print(graph, &text));
    return text;
}

/* `before` and `after` are the statements between the braces. */
static void expect(const ir_target_t *target, const char *before, const char *after) {
    char text[8192];
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", before);
    ir_graph_t *graph = interpret_parse(text), *made = lay_out(graph, target);
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", after);
    ir_graph_t *model = interpret_parse(text);
    char *got = printed(made), *wanted = printed(model);
    assert_string_equal(got, wanted);
    assert_true(interpret_difference(graph, made, 1) <= (target->machine == &gpu ? 1e-6 : 0));
    st_free(got);
    st_free(wanted);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
    ir_graph_destroy(model);
}

/* ---- rewrites ---- */

static const char attention_before[] =
    "  %0 q = input {dtype=f32, shape=[2,5,12]}\n"
    "  %1 k = input {dtype=f32, shape=[2,5,6]}\n"
    "  %2 cos = input {dtype=f32, shape=[5,3], batch_axis=-1}\n"
    "  %3 = reshape(%0) {shape=[2,5,2,6]}\n"
    "  %4 = transpose(%3) {perm=[0,2,1,3]}\n"
    "  %5 = rope(%4, %2, %2)\n"
    "  %6 = reshape(%1) {shape=[2,5,1,6]}\n"
    "  %7 = transpose(%6) {perm=[0,2,1,3]}\n"
    "  %8, %9 = attention(%5, %7, %7) {causal=true}\n"
    "  %10 = transpose(%8) {perm=[0,2,1,3]}\n"
    "  %11 = reshape(%10) {shape=[2,5,12]}\n"
    "  output \"o\" = %11\n"
    "  output \"lse\" = %9\n";

static void heads_stay_where_products_put_them(void **state) {
    (void)state;
    expect(&exact_turning, attention_before,
           "  %0 q = input {dtype=f32, shape=[2,5,12]}\n"
           "  %1 k = input {dtype=f32, shape=[2,5,6]}\n"
           "  %2 cos = input {dtype=f32, shape=[5,3], batch_axis=-1}\n"
           "  %3 = reshape(%0) {shape=[2,5,2,6]}\n"
           "  %4 = rope(%3, %2, %2) {rows_first=true}\n"
           "  %5 = reshape(%1) {shape=[2,5,1,6]}\n"
           "  %6, %7 = attention(%4, %5, %5) {causal=true, rows_first=true}\n"
           "  %8 = reshape(%6) {shape=[2,5,12]}\n"
           "  output \"o\" = %8\n"
           "  output \"lse\" = %7\n");
}

/* A device whose kernels have one form gets copies, of k a view: it has one head. */
static void a_kernel_with_one_form_gets_a_copy(void **state) {
    (void)state;
    expect(&exact, attention_before,
           "  %0 q = input {dtype=f32, shape=[2,5,12]}\n"
           "  %1 k = input {dtype=f32, shape=[2,5,6]}\n"
           "  %2 cos = input {dtype=f32, shape=[5,3], batch_axis=-1}\n"
           "  %3 = reshape(%0) {shape=[2,5,2,6]}\n"
           "  %4 = transpose(%3) {perm=[0,2,1,3]}\n"
           "  %5 = rope(%4, %2, %2)\n"
           "  %6 = reshape(%1) {shape=[2,5,1,6]}\n"
           "  %7 = reshape(%6) {shape=[2,1,5,6]}\n"
           "  %8, %9 = attention(%5, %7, %7) {causal=true}\n"
           "  %10 = transpose(%8) {perm=[0,2,1,3]}\n"
           "  %11 = reshape(%10) {shape=[2,5,12]}\n"
           "  output \"o\" = %11\n"
           "  output \"lse\" = %9\n");
}

/* Through elementwise ops with operands of lower rank, slices and concats, to a product's flag. */
static void orders_pass_through_to_a_product(void **state) {
    (void)state;
    expect(&exact,
           "  %0 x = input {dtype=f32, shape=[4,3,6]}\n"
           "  %1 b = input {dtype=f32, shape=[3], batch_axis=-1}\n"
           "  %2 w = input {dtype=f32, shape=[3,5], batch_axis=-1}\n"
           "  %3 = transpose(%0) {perm=[0,2,1]}\n"
           "  %4 = add(%3, %1)\n"
           "  %5 = slice(%4) {begin=[0,1,0], end=[4,3,3], step=[1,1,1]}\n"
           "  %6 = concat(%5, %4) {axis=1}\n"
           "  %7 = tanh(%6)\n"
           "  %8 = matmul(%7, %2)\n"
           "  output \"y\" = %8\n",
           "  %0 x = input {dtype=f32, shape=[4,3,6]}\n"
           "  %1 b = input {dtype=f32, shape=[3], batch_axis=-1}\n"
           "  %2 w = input {dtype=f32, shape=[3,5], batch_axis=-1}\n"
           "  %3 = reshape(%1) {shape=[1,3,1]}\n"
           "  %4 = add(%0, %3)\n"
           "  %5 = slice(%4) {begin=[0,0,1], end=[4,3,3], step=[1,1,1]}\n"
           "  %6 = concat(%5, %4) {axis=2}\n"
           "  %7 = tanh(%6)\n"
           "  %8 = matmul(%7, %2) {transpose_a=true}\n"
           "  output \"y\" = %8\n");
}

/* The smaller operand is copied, once for both readers. */
static void the_fewest_bytes_move(void **state) {
    (void)state;
    expect(&exact,
           "  %0 x = input {dtype=f32, shape=[4,6,8]}\n"
           "  %1 t = input {dtype=f32, shape=[8,6], batch_axis=-1}\n"
           "  %2 = transpose(%1) {perm=[1,0]}\n"
           "  %3 = add(%0, %2)\n"
           "  %4 = mul(%3, %2)\n"
           "  output \"y\" = %4\n",
           "  %0 x = input {dtype=f32, shape=[4,6,8]}\n"
           "  %1 t = input {dtype=f32, shape=[8,6], batch_axis=-1}\n"
           "  %2 = transpose(%1) {perm=[1,0]}\n"
           "  %3 = add(%0, %2)\n"
           "  %4 = mul(%3, %2)\n"
           "  output \"y\" = %4\n");
}

/* Sums keep their order on a CPU; elsewhere they follow. */
static const char sums_before[] =
    "  %0 x = input {dtype=f32, shape=[4,6,8]}\n"
    "  %1 = transpose(%0) {perm=[0,2,1]}\n"
    "  %2 = exp(%1)\n"
    "  %3 = reduce_sum(%2) {axes=[1]}\n"
    "  output \"y\" = %3\n";
static void sums_follow_where_their_bits_may(void **state) {
    (void)state;
    expect(&free_sums, sums_before,
           "  %0 x = input {dtype=f32, shape=[4,6,8]}\n"
           "  %1 = exp(%0)\n"
           "  %2 = reduce_sum(%1) {axes=[2]}\n"
           "  output \"y\" = %2\n");
    expect(&exact, sums_before,
           "  %0 x = input {dtype=f32, shape=[4,6,8]}\n"
           "  %1 = exp(%0)\n"
           "  %2 = transpose(%1) {perm=[0,2,1]}\n"
           "  %3 = reduce_sum(%2) {axes=[1]}\n"
           "  output \"y\" = %3\n");
}

/* ---- convolutions ---- */

/* A residual block with a pool, forward and backward. Statistics are inputs, so that it stays
 * short. */
static const char block_before[] =
    "  %0 x = input {dtype=f64, shape=[2,4,6,6]}\n"
    "  %1 w = parameter {dtype=f64, shape=[4,4,3,3]}\n"
    "  %2 g = parameter {dtype=f64, shape=[4]}\n"
    "  %3 dp = input {dtype=f64, shape=[2,4,3,3]}\n"
    "  %4 = conv(%0, %1) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], dilations=[1,1]}\n"
    "  %5 = channel_sum(%4)\n"
    "  %6 = channel_centered_squares(%4, %5)\n"
    "  %7 = batch_norm_apply(%4, %5, %6, %2, %2) {train=true, count=72}\n"
    "  %8 = add(%7, %0)\n"
    "  %9 = relu(%8)\n"
    "  %10, %11 = max_pool(%9) {kernel=[2,2], strides=[2,2], pads_low=[0,0], pads_high=[0,0], "
    "dilations=[1,1]}\n"
    "  output \"p\" = %10\n"
    "  %12 = max_pool_grad(%3, %11) {spatial=[6,6]}\n"
    "  %13 = relu_grad(%12, %9)\n"
    "  %14, %15 = batch_norm_grad_sums(%13, %4, %5, %6)\n"
    "  %16 = batch_norm_grad_apply(%13, %4, %5, %6, %2, %14, %15) {count=72}\n"
    "  %17 = conv_grad_weight(%0, %16) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], "
    "dilations=[1,1], kernel=[3,3]}\n"
    "  %18 = conv_grad_input(%16, %1) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], "
    "dilations=[1,1], spatial=[6,6]}\n"
    "  %19 = add(%18, %13)\n"
    "  output \"dw\" = %17\n"
    "  output \"dg\" = %15\n"
    "  output \"dx\" = %19\n";
static void residual_blocks_turn_whole(void **state) {
    (void)state;
    expect(&last_conv, block_before,
           "  %0 x = input {dtype=f64, shape=[2,4,6,6]}\n"
           "  %1 w = parameter {dtype=f64, shape=[4,4,3,3]}\n"
           "  %2 g = parameter {dtype=f64, shape=[4]}\n"
           "  %3 dp = input {dtype=f64, shape=[2,4,3,3]}\n"
           "  %4 = transpose(%0) {perm=[0,2,3,1]}\n"
           "  %5 = transpose(%1) {perm=[0,2,3,1]}\n"
           "  %6 = conv(%4, %5) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], "
           "dilations=[1,1], channels_last=true}\n"
           "  %7 = reshape(%6) {shape=[72,4]}\n"
           "  %8 = channel_sum(%7)\n"
           "  %9 = reshape(%6) {shape=[72,4]}\n"
           "  %10 = channel_centered_squares(%9, %8)\n"
           "  %11 = reshape(%6) {shape=[72,4]}\n"
           "  %12 = batch_norm_apply(%11, %8, %10, %2, %2) {train=true, count=72}\n"
           "  %13 = reshape(%12) {shape=[2,6,6,4]}\n"
           "  %14 = add(%13, %4)\n"
           "  %15 = relu(%14)\n"
           "  %16, %17 = max_pool(%15) {kernel=[2,2], strides=[2,2], pads_low=[0,0], "
           "pads_high=[0,0], dilations=[1,1], channels_last=true}\n"
           "  %18 = transpose(%3) {perm=[0,2,3,1]}\n"
           "  %19 = max_pool_grad(%18, %17) {spatial=[6,6], channels_last=true}\n"
           "  %20 = relu_grad(%19, %15)\n"
           "  %21 = reshape(%20) {shape=[72,4]}\n"
           "  %22 = reshape(%6) {shape=[72,4]}\n"
           "  %23, %24 = batch_norm_grad_sums(%21, %22, %8, %10)\n"
           "  %25 = reshape(%20) {shape=[72,4]}\n"
           "  %26 = reshape(%6) {shape=[72,4]}\n"
           "  %27 = batch_norm_grad_apply(%25, %26, %8, %10, %2, %23, %24) {count=72}\n"
           "  %28 = reshape(%27) {shape=[2,6,6,4]}\n"
           "  %29 = conv_grad_weight(%4, %28) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], "
           "dilations=[1,1], kernel=[3,3], "
           "channels_last=true}\n"
           "  %30 = conv_grad_input(%28, %5) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], "
           "dilations=[1,1], spatial=[6,6], "
           "channels_last=true}\n"
           "  %31 = add(%30, %20)\n"
           "  %32 = transpose(%16) {perm=[0,3,1,2]}\n"
           "  %33 = transpose(%29) {perm=[0,3,1,2]}\n"
           "  %34 = transpose(%31) {perm=[0,3,1,2]}\n"
           "  output \"p\" = %32\n"
           "  output \"dw\" = %33\n"
           "  output \"dg\" = %24\n"
           "  output \"dx\" = %34\n");
}

/* Where both forms take as long nothing turns, but for a model that has transposes around its
 * own. */
static void convolutions_stay_where_nothing_is_gained(void **state) {
    (void)state;
    char text[8192];
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", block_before);
    ir_graph_t *graph = interpret_parse(text), *made = lay_out(graph, &free_sums);
    char *before = printed(graph), *after = printed(made);
    assert_string_equal(before, after);
    st_free(before);
    st_free(after);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
}

/* What has channels last already is no other form of itself. */
static void turned_convolutions_stay(void **state) {
    (void)state;
    static const char text[] =
        "  %0 x = input {dtype=f64, shape=[2,6,6,4]}\n"
        "  %1 w = parameter {dtype=f64, shape=[4,3,3,4]}\n"
        "  %2 = conv(%0, %1) {strides=[1,1], pads_low=[1,1], pads_high=[1,1], dilations=[1,1], "
        "channels_last=true}\n"
        "  %3 = relu(%2)\n"
        "  %4, %5 = max_pool(%3) {kernel=[2,2], strides=[2,2], pads_low=[0,0], pads_high=[0,0], "
        "dilations=[1,1], channels_last=true}\n"
        "  output \"y\" = %4\n";
    expect(&last_conv, text, text);
    expect(&exact_turning, text, text);
}

static void channels_last_models_lose_their_transposes(void **state) {
    (void)state;
    expect(&free_sums,
           "  %0 x = input {dtype=f64, shape=[2,7,5,4]}\n"
           "  %1 w = parameter {dtype=f64, shape=[6,2,3,3]}\n"
           "  %2 = transpose(%0) {perm=[0,3,1,2]}\n"
           "  %3 = conv(%2, %1) {strides=[2,1], pads_low=[1,0], pads_high=[1,1], "
           "dilations=[1,2], groups=2}\n"
           "  %4 = avg_pool(%3) {kernel=[2,2], strides=[1,1], pads_low=[0,1], pads_high=[0,0]}\n"
           "  %5 = transpose(%4) {perm=[0,2,3,1]}\n"
           "  output \"y\" = %5\n",
           "  %0 x = input {dtype=f64, shape=[2,7,5,4]}\n"
           "  %1 w = parameter {dtype=f64, shape=[6,2,3,3]}\n"
           "  %2 = transpose(%1) {perm=[0,2,3,1]}\n"
           "  %3 = conv(%0, %2) {strides=[2,1], pads_low=[1,0], pads_high=[1,1], "
           "dilations=[1,2], groups=2, channels_last=true}\n"
           "  %4 = avg_pool(%3) {kernel=[2,2], strides=[1,1], pads_low=[0,1], pads_high=[0,0], "
           "channels_last=true}\n"
           "  output \"y\" = %4\n");
}

/* ---- random graphs ---- */

enum { N_GRAPHS = 400, N_NODES = 40 };

typedef struct generator {
    ir_build_t b;
    uint64_t word;
    size_t n;
    ir_value_t values[3 * N_NODES];
} generator_t;

static int64_t below(generator_t *g, int64_t n) {
    g->word = st_hash64(&n, sizeof n, g->word);
    return (int64_t)(g->word >> 33) % n;
}
static ir_value_t any(generator_t *g) {
    return g->values[below(g, (int64_t)g->n)];
}

static ir_value_t transpose(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    int64_t perm[IR_MAX_RANK];
    for (int32_t i = 0; i < t.rank; i++) perm[i] = i;
    for (int32_t i = t.rank - 1; i > 0; i--) {
        int64_t j = below(g, i + 1), swapped = perm[i];
        perm[i] = perm[j];
        perm[j] = swapped;
    }
    return ir_b_transpose(&g->b, x, perm);
}

static ir_value_t reshape(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    int64_t dims[IR_MAX_RANK];
    int32_t n = 0;
    for (int32_t i = 0; i < t.rank; i++) { /* cuts even dims, joins others, adds dims of 1 */
        int64_t what = below(g, 4);
        if (n > 4) return x;
        if (what == 0 && t.dims[i] % 2 == 0)
            dims[n++] = t.dims[i] / 2, dims[n++] = 2;
        else if (what == 1 && n > 0)
            dims[n - 1] *= t.dims[i];
        else if (what == 2)
            dims[n++] = 1, dims[n++] = t.dims[i];
        else
            dims[n++] = t.dims[i];
    }
    return ir_b_reshape(&g->b, x, n, dims);
}

static ir_value_t binary(generator_t *g, ir_value_t x) {
    ir_value_t y = any(g);
    if (below(g, 2)) y = transpose(g, x);
    return ir_b_binary(&g->b, below(g, 2) ? IR_OP_ADD : IR_OP_MUL, x, y);
}

static ir_value_t moved(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    if (t.rank == 0) return x;
    int32_t axis = (int32_t)below(g, t.rank);
    if (below(g, 2)) return ir_b_concat(&g->b, 2, (ir_value_t[]){x, x}, axis);
    return ir_b_slice_axis(&g->b, x, axis, below(g, t.dims[axis]), t.dims[axis]);
}

static ir_value_t broadcast(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    int64_t dims[IR_MAX_RANK] = {2};
    if (t.rank > 4) return x;
    for (int32_t i = 0; i < t.rank; i++) dims[i + 1] = t.dims[i] == 1 ? 3 : t.dims[i];
    return ir_b_broadcast(&g->b, x, t.rank + 1, dims);
}

static ir_value_t reduce(generator_t *g, ir_value_t x) {
    ir_type_t t = *ir_b_type(&g->b, x);
    if (t.rank == 0) return x;
    int64_t axis = below(g, t.rank);
    return ir_b_reduce(&g->b, below(g, 2) ? IR_OP_REDUCE_SUM : IR_OP_REDUCE_MAX, x, 1, &axis,
                       below(g, 2) != 0);
}

static ir_value_t product(generator_t *g, ir_value_t x) {
    return ir_b_matmul(&g->b, x, below(g, 2) ? transpose(g, x) : any(g), below(g, 2) != 0,
                       below(g, 2) != 0);
}

static ir_value_t attention(generator_t *g, ir_value_t x) {
    ir_value_t k = below(g, 2) ? transpose(g, x) : x;
    return ir_b_node(&g->b, IR_OP_ATTENTION, 3, (ir_value_t[]){x, k, k}, 0, NULL);
}

static ir_value_t channels(generator_t *g, ir_value_t x) {
    return ir_b_unary(&g->b, IR_OP_CHANNEL_SUM, x);
}

static ir_value_t unary(generator_t *g, ir_value_t x) {
    return ir_b_unary(&g->b, below(g, 2) ? IR_OP_TANH : IR_OP_NEG, x);
}

static ir_graph_t *random_graph(uint64_t seed) {
    static ir_value_t (*const kinds[])(generator_t *, ir_value_t) = {
        unary, unary,   binary,  binary,    transpose, transpose, transpose, transpose,
        moved, reshape, reshape, broadcast, reduce,    product,   attention, channels};
    generator_t g = {.word = seed};
    assert_ok(ir_graph_create("random", &g.b.graph));
    static const int64_t shapes[4][4] = {{2, 3, 4}, {2, 1, 6}, {2, 2, 3, 4}, {2, 4, 4, 4}};
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        g.values[g.n++] = ir_b_input(&g.b, name, ir_type_make(IR_F64, i < 2 ? 3 : 4, shapes[i]), 0);
    }
    for (int i = 0; i < N_NODES; i++) {
        ir_value_t made = kinds[below(&g, sizeof kinds / sizeof kinds[0])](&g, any(&g));
        if (g.b.status != ST_OK) { /* what does not fit together is left out */
            g.b.status = ST_OK;
            st_clear_error();
        } else if (ir_type_elements(ir_b_type(&g.b, made)) <= 2000) {
            g.values[g.n++] = made;
        }
    }
    for (size_t i = g.n - 6; i < g.n; i++) {
        char name[32];
        snprintf(name, sizeof name, "y%zu", i);
        ir_b_output(&g.b, name, g.values[i]);
    }
    assert_ok(g.b.status);
    return g.b.graph;
}

static void check_random(const ir_target_t *target, double tolerance) {
    int before = 0, after = 0;
    for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) {
        ir_graph_t *graph = random_graph(seed), *made = lay_out(graph, target),
                   *same = lay_out(graph, target);
        char *text = printed(made), *text_same = printed(same);
        assert_string_equal(text, text_same);
        double difference = interpret_difference(graph, made, seed);
        if (!(difference <= tolerance)) {
            char *original = printed(graph);
            fail_msg("seed %d differs by %g:\n%s\n%s", (int)seed, difference, original, text);
        }
        before += count_ops(graph, "transpose");
        after += count_ops(made, "transpose");
        st_free(text);
        st_free(text_same);
        ir_graph_destroy(graph);
        ir_graph_destroy(made);
        ir_graph_destroy(same);
    }
    print_message("%d transposes, %d left\n", before, after);
    assert_true(after < before * 3 / 4);
}

static void random_graphs_keep_their_bits(void **state) {
    (void)state;
    check_random(&exact, 0);
    check_random(&exact_turning, 0);
}
static void random_graphs_keep_their_values(void **state) {
    (void)state;
    check_random(&free_sums, 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_stay_where_products_put_them),
        cmocka_unit_test(a_kernel_with_one_form_gets_a_copy),
        cmocka_unit_test(orders_pass_through_to_a_product),
        cmocka_unit_test(the_fewest_bytes_move),
        cmocka_unit_test(sums_follow_where_their_bits_may),
        cmocka_unit_test(residual_blocks_turn_whole),
        cmocka_unit_test(convolutions_stay_where_nothing_is_gained),
        cmocka_unit_test(turned_convolutions_stay),
        cmocka_unit_test(channels_last_models_lose_their_transposes),
        cmocka_unit_test(random_graphs_keep_their_bits),
        cmocka_unit_test(random_graphs_keep_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

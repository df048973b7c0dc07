/* Plans whose ranks send and receive: what those of pipelines hold, what the proof finds. */
#include <string.h>

#include "autodiff/train_graph.h"
#include "base/memory.h"
#include "compile/compile.h"
#include "compile/plan_ranks.h"
#include "ir/build.h"
#include "support/scratch.h"

enum { RANKS = 4, LAYERS = 16, BATCH = 64, WIDTH = 32 };
enum { LAYER_BYTES = BATCH * WIDTH * 4 }; /* what one layer makes of a micro-batch */

/* x → relu(x w) sixteen times → mean of squares: only the first rank has inputs. */
static ir_graph_t *make_step(int64_t n_micro) {
    ir_graph_t *forward, *step;
    ad_train_options_t options;
    assert_ok(ir_graph_create("chain", &forward));
    ir_build_t b = {.graph = forward};
    const int64_t dims[2] = {BATCH, WIDTH}, sides[2] = {WIDTH, WIDTH};
    ir_value_t x = ir_b_input(&b, "x", ir_type_make(IR_F32, 2, dims), 0);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%02d", i);
        ir_value_t w = ir_b_parameter(&b, name, ir_type_make(IR_F32, 2, sides));
        x = ir_b_unary(&b, IR_OP_RELU, ir_b_matmul(&b, x, w, false, false));
    }
    x = ir_b_unary(&b, IR_OP_SQUARE, x);
    ir_b_output(&b, "loss", ir_b_reduce(&b, IR_OP_REDUCE_MEAN, x, 0, NULL, false));
    assert_ok(b.status);
    assert_ok(ad_train_defaults("adamw", &options));
    options.clip_norm = 1;
    options.accumulate = n_micro;
    assert_ok(ad_train_graph(forward, &options, &step));
    ir_graph_destroy(forward);
    return step;
}

static plan_t *plan_with(int64_t n_micro, const char *mesh, compile_options_t options) {
    ir_graph_t *step = make_step(n_micro);
    plan_t *plan;
    assert_ok(ir_mesh_parse(mesh, &options.mesh));
    assert_ok(compile_plan(step, &options, &plan));
    ir_graph_destroy(step);
    return plan;
}

static plan_t *plan_of(int64_t n_micro, const char *mesh, shard_schedule_t schedule) {
    return plan_with(n_micro, mesh,
                     (compile_options_t){.schedule = schedule, .recompute = COMPILE_RECOMPUTE_OFF});
}

/* What a rank's program has beside its parameters and moments, in units of what a layer makes of a
 * micro-batch. */
static double held(const plan_t *plan, uint32_t rank) {
    const uint64_t *bytes = plan->programs[plan->program_of[rank]].region_bytes;
    return (double)(bytes[PLAN_WORK] + bytes[PLAN_COMM]) / LAYER_BYTES;
}

static uint32_t n_layers(const plan_t *plan, uint32_t rank) {
    const ir_graph_t *graph = plan->programs[plan->program_of[rank]].graph;
    uint32_t n = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) n += ir_node(graph, i)->op == IR_OP_PARAMETER;
    return n;
}

/* A micro-batch in flight is what each layer of the stage made and what the stage was given. The
 * first rank has the inputs of all of them, and each weight a sum of gradients: a half, 32 x 32 of
 * 64 x 32. At most four more are for a moment: a gradient on its way in and one out, one of a
 * weight, the loss's squares. One micro-batch more in flight is at least four more, beside at least
 * one for a moment. */
static void check_held(const plan_t *plan, uint32_t n_ranks, uint32_t n_micro) {
    enum { PASSING = 4 };
    for (uint32_t r = 0; r < n_ranks; r++) {
        const double layers = n_layers(plan, r);
        const double in_flight = (n_ranks - r) * (r ? layers + 1 : layers);
        const double least = in_flight + layers / 2 + (r ? 0 : n_micro);
        assert_true(layers >= 3);
        assert_true(held(plan, r) >= least);
        assert_true(held(plan, r) <= least + PASSING);
    }
}

static void a_rank_holds_as_many_micro_batches_as_ranks_follow_it(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        uint32_t n_ranks;
    } rows[] = {{"pipe=2", 2}, {"pipe=4", RANKS}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (uint32_t n_micro = 8; n_micro <= 16; n_micro *= 2) {
            plan_t *plan = plan_of(n_micro, rows[i].mesh, SHARD_1F1B);
            check_held(plan, rows[i].n_ranks, n_micro);
            plan_destroy(plan);
        }
}

/* What waits for its weights' gradients is held, too: what each layer made, and its gradient. */
static void weights_apart_hold_as_many_as_there_are_ranks(void **state) {
    (void)state;
    plan_t *few = plan_of(8, "pipe=4", SHARD_ZERO_BUBBLE);
    plan_t *many = plan_of(16, "pipe=4", SHARD_ZERO_BUBBLE);
    for (uint32_t r = 0; r < RANKS; r++) {
        const double layers = n_layers(many, r), inputs = r ? 0 : 8;
        assert_true(held(many, r) == held(few, r) + inputs);
        assert_true(held(few, r) <= RANKS * (2 * layers + 1) + layers / 2 + inputs + 4);
    }
    plan_destroy(few);
    plan_destroy(many);
}

/* A weight that is gathered once more for the pass back, its cast's gather, and its shadow: each
 * stage has those of its own layers and no others. */
static void a_weight_is_on_one_stage(void **state) {
    (void)state;
    static const struct {
        shard_form_t form;
        compile_switch_t shadows;
    } rows[] = {{SHARD_FORM_DP, COMPILE_ON},
                {SHARD_FORM_ZERO3, COMPILE_OFF},
                {SHARD_FORM_ZERO3, COMPILE_ON}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plan_t *plan =
            plan_with(2, "pipe=2,data=2",
                      (compile_options_t){
                          .dtype = IR_BF16, .form = rows[i].form, .shadows = rows[i].shadows});
        assert_int_equal(n_layers(plan, 0) + n_layers(plan, 2), LAYERS);
        plan_destroy(plan);
    }
}

/* ---- the proof ---- */

/* The first node of the kind in rank r's program, from node `from` on. */
static ir_node_t find_node(const plan_t *plan, uint32_t r, ir_op_t op, ir_node_t from) {
    const ir_graph_t *graph = plan->programs[plan->program_of[r]].graph;
    while (ir_node(graph, from)->op != op) from++;
    return from;
}

static ir_attr_t *attr_of(plan_t *plan, uint32_t r, ir_node_t n, const char *key) {
    const ir_graph_t *graph = plan->programs[plan->program_of[r]].graph;
    return (ir_attr_t *)(uintptr_t)ir_node_attr(ir_node(graph, n), key);
}

static void messages_that_do_not_meet_are_found(void **state) {
    (void)state;
    plan_t *plan = plan_of(4, "pipe=4", SHARD_1F1B);
    assert_ok(plan_check(plan));
    ir_attr_t *peer = attr_of(plan, 1, find_node(plan, 1, IR_OP_SEND_START, 0), "peer");
    const int64_t own = peer->i;
    peer->i = 0; /* the second rank's first one goes to the third */
    assert_fails(plan_check(plan), ST_RANKS_DISAGREE, "rank 1 sends");
    peer->i = RANKS;
    assert_fails(plan_check(plan), ST_INVALID, "is with rank 4 of the 4 of axis 'pipe'");
    peer->i = 1;
    assert_true(plan_check(plan) != ST_OK);
    peer->i = own;
    uint32_t program = plan->program_of[1];
    plan->program_of[1] = plan->program_of[2];
    plan->program_of[2] = program;
    assert_true(plan_check(plan) != ST_OK);
    plan_destroy(plan);
}

/* The first rank waits for a gradient before it has sent anything. */
static void a_deadlock_is_found(void **state) {
    (void)state;
    plan_t *plan = plan_of(4, "pipe=2", SHARD_1F1B);
    plan_program_t *program = &plan->programs[plan->program_of[0]];
    const ir_graph_t *graph = program->graph;
    const ir_node_t wait = find_node(plan, 0, IR_OP_RECEIVE_WAIT, 0);
    const ir_node_t start = graph->values.data[ir_node(graph, wait)->inputs[0]].producer;
    ir_node_t *order = st_calloc(graph->nodes.n, sizeof *order);
    uint32_t n = 0;
    order[n++] = start;
    order[n++] = wait;
    for (ir_node_t i = 0; i < graph->nodes.n; i++)
        if (i != start && i != wait) order[n++] = i;
    ir_graph_t *made;
    assert_ok(plan_check_pairs(plan));
    assert_ok(ir_graph_rewrite(graph, order, NULL, NULL, &made));
    ir_graph_destroy(program->graph);
    program->graph = made;
    assert_fails(plan_check_pairs(plan), ST_RANKS_DISAGREE, "a deadlock: rank 0 waits for ever at");
    st_free(order);
    plan_destroy(plan);
}

/* x attends to itself, keys going round three ranks. */
static plan_t *plan_of_ring(void) {
    ir_graph_t *graph;
    plan_t *plan;
    compile_options_t options = {.context_attention = SHARD_CONTEXT_RING};
    assert_ok(ir_graph_create("ring", &graph));
    ir_build_t b = {.graph = graph};
    ir_value_t x = ir_b_swap(
        &b, ir_b_input(&b, "x", ir_type_make(IR_F32, 4, (int64_t[]){3, 6, 2, 4}), 0), 1, 2);
    x = ir_b_node(&b, IR_OP_ATTENTION, 3, (ir_value_t[]){x, x, x}, 1,
                  (ir_arg_t[]){IR_ARG_BOOL("causal", true)});
    ir_b_output(&b, "o", x);
    assert_ok(b.status);
    assert_ok(ir_mesh_parse("data=3,context=3", &options.mesh));
    assert_ok(compile_plan(graph, &options, &plan));
    ir_graph_destroy(graph);
    return plan;
}

static void keys_that_do_not_meet_are_found(void **state) {
    (void)state;
    plan_t *plan = plan_of_ring();
    assert_ok(plan_check(plan));
    const ir_node_t first = find_node(plan, 1, IR_OP_SEND_START, 0);
    ir_attr_t *peer = attr_of(plan, 1, first, "peer"), *mesh = attr_of(plan, 1, first, "mesh");
    const int64_t own = peer->i;
    peer->i = 0; /* to the rank before */
    assert_fails(plan_check_pairs(plan), ST_RANKS_DISAGREE, "sends");
    peer->i = own;
    assert_ok(plan_check_pairs(plan));
    mesh->s = "data";
    assert_fails(plan_check_pairs(plan), ST_INVALID, "only pipe and context have that");
    mesh->s = "context";
    assert_ok(plan_check_pairs(plan));
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_holds_as_many_micro_batches_as_ranks_follow_it),
        cmocka_unit_test(weights_apart_hold_as_many_as_there_are_ranks),
        cmocka_unit_test(a_weight_is_on_one_stage),
        cmocka_unit_test(messages_that_do_not_meet_are_found),
        cmocka_unit_test(a_deadlock_is_found),
        cmocka_unit_test(keys_that_do_not_meet_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Recognition: every spelling becomes its composite, nothing else does, and values and gradients
 * stay what they were. */
#include "fusion/recognize.h"

#include <math.h>
#include <string.h>

#include "autodiff/train_graph.h"
#include "interpret.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "spellings.h"
#include "support/scratch.h"

static const char *const composites[] = {"attention",   "rms_norm",     "layer_norm", "rope",
                                         "gelu",        "silu",         "sigmoid",    "softmax",
                                         "log_softmax", "cross_entropy"};

static int count_composites(const ir_graph_t *graph) {
    int n = 0;
    for (size_t i = 0; i < sizeof composites / sizeof composites[0]; i++)
        n += count_ops(graph, composites[i]);
    return n;
}

static ir_graph_t *captured(const ir_graph_t *graph) {
    ir_graph_t *made;
    assert_ok(fuse_capture(graph, &interpret_target, &made));
    assert_ok(ir_graph_verify(made));
    return made;
}

static char *printed(const ir_graph_t *graph) {
    char *text;
    assert_ok(ir_graph_print(graph, &text));
    return text;
}

static void every_spelling_is_its_composite(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < n_spellings; i++) {
        const spelling_t *s = &spellings[i];
        ir_graph_t *graph = interpret_parse(s->text), *made = captured(graph);
        char *text = printed(made);
        bool right = true;
        if (s->op)
            right = count_ops(made, s->op) == 1 &&
                    (!s->absent || !count_ops(made, s->absent) || strchr(s->absent, '('));
        else
            right = count_composites(made) == count_composites(graph);
        if (s->contains && !strstr(text, s->contains)) right = false;
        if (!right) print_error("%s:\n%s\n", s->name, text);
        n_wrong += !right;
        st_free(text);
        ir_graph_destroy(graph);
        ir_graph_destroy(made);
    }
    assert_int_equal(n_wrong, 0);
}

static void values_and_gradients_stay(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < n_spellings; i++) {
        const spelling_t *s = &spellings[i];
        ir_graph_t *graph = interpret_parse(s->text), *made = captured(graph), *before, *after;
        assert_ok(ad_gradient_graph(graph, "loss", 0, &before));
        assert_ok(ad_gradient_graph(made, "loss", 0, &after));
        for (uint64_t seed = 1; seed <= 3; seed++) {
            double difference = interpret_difference(before, after, seed);
            if (difference <= (s->tolerance > 0 ? s->tolerance : 1e-9)) continue;
            print_error("%s: %g\n", s->name, difference);
            n_wrong++;
        }
        ir_graph_destroy(before);
        ir_graph_destroy(after);
        ir_graph_destroy(graph);
        ir_graph_destroy(made);
    }
    assert_int_equal(n_wrong, 0);
}

/* Once more on what came out finds nothing, and the same again gives the same. */
static void capturing_is_final_and_deterministic(void **state) {
    (void)state;
    for (size_t i = 0; i < n_spellings; i++) {
        ir_graph_t *graph = interpret_parse(spellings[i].text), *made = captured(graph);
        ir_graph_t *same = captured(graph), *again = captured(made);
        char *text = printed(made), *text_same = printed(same), *text_again = printed(again);
        assert_string_equal(text, text_same);
        if (strcmp(text, text_again) != 0) print_error("%s\n", spellings[i].name);
        assert_string_equal(text, text_again);
        st_free(text);
        st_free(text_same);
        st_free(text_again);
        ir_graph_destroy(graph);
        ir_graph_destroy(made);
        ir_graph_destroy(same);
        ir_graph_destroy(again);
    }
}

/* ---- golden ---- */

static void assert_captures(const char *before, const char *after) {
    char text[8192], expected[8192];
    snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", before);
    snprintf(expected, sizeof expected, "graph \"g\" {\n%s}\n", after);
    ir_graph_t *graph = interpret_parse(text), *made = captured(graph);
    char *given = printed(made);
    assert_string_equal(given, expected);
    st_free(given);
    ir_graph_destroy(graph);
    ir_graph_destroy(made);
}

/* The statistics in float32, as models in bfloat16 have them: the op's own. */
static void a_norm_between_casts_works_in_the_small_type(void **state) {
    (void)state;
    assert_captures(
        "  %x x = parameter {dtype=bf16, shape=[2,8]}\n  %w w = parameter {dtype=bf16, shape=[8]}\n"
        "  %f = cast(%x) {dtype=f32}\n  %s = square(%f)\n  %m = reduce_mean(%s) {axes=[1], "
        "keep=true}\n"
        "  %e = constant {dtype=f32, shape=[], data=0.5}\n  %me = add(%m, %e)\n  %r = rsqrt(%me)\n"
        "  %n = mul(%f, %r)\n  %nb = cast(%n) {dtype=bf16}\n  %y = mul(%w, %nb)\n  output \"y\" = "
        "%y\n",
        "  %0 x = parameter {dtype=bf16, shape=[2,8]} : bf16[2,8]\n"
        "  %1 w = parameter {dtype=bf16, shape=[8]} : bf16[8]\n"
        "  %2 = cast(%1) {dtype=f32} : f32[8]\n"
        "  %3, %4 = rms_norm(%0, %2) {eps=0.5} : bf16[2,8], f32[2]\n"
        "  output \"y\" = %3\n");
}

/* Those of a model that is float32 only ask: a pattern is found behind them, and what none takes
 * stays. */
static void casts_that_ask_stay_outside_of_composites(void **state) {
    (void)state;
    assert_captures(
        "  %x x = parameter {dtype=f32, shape=[2,8]}\n  %w w = parameter {dtype=f32, shape=[8]}\n"
        "  %f = cast(%x) {dtype=f32}\n  %s = square(%f)\n  %m = reduce_mean(%s) {axes=[1], "
        "keep=true}\n"
        "  %e = constant {dtype=f32, shape=[], data=0.5}\n  %me = add(%m, %e)\n  %r = rsqrt(%me)\n"
        "  %n = mul(%f, %r)\n  %nb = cast(%n) {dtype=f32}\n  %y = mul(%w, %nb)\n"
        "  %a = cast(%y) {dtype=f32}\n  %b = cast(%a) {dtype=f32}\n  %c = add(%b, %x)\n"
        "  %d = mul(%b, %c)\n  output \"d\" = %d\n",
        "  %0 x = parameter {dtype=f32, shape=[2,8]} : f32[2,8]\n"
        "  %1 w = parameter {dtype=f32, shape=[8]} : f32[8]\n"
        "  %2, %3 = rms_norm(%0, %1) {eps=0.5} : f32[2,8], f32[2]\n"
        "  %4 = cast(%2) {dtype=f32} : f32[2,8]\n"
        "  %5 = add(%4, %0) : f32[2,8]\n"
        "  %6 = mul(%4, %5) : f32[2,8]\n"
        "  output \"d\" = %6\n");
}

static void a_table_of_the_graph_is_halved(void **state) {
    (void)state;
    assert_captures(
        "  %x x = parameter {dtype=f32, shape=[1,1,2,4]}\n"
        "  %c = constant {dtype=f32, shape=[2,4], data=[1,2,1,2,3,4,3,4]}\n"
        "  %s = constant {dtype=f32, shape=[2,4], data=[5,6,5,6,7,8,7,8]}\n"
        "  %a = slice(%x) {begin=[0,0,0,0], end=[1,1,2,2], step=[1,1,1,1]}\n"
        "  %b = slice(%x) {begin=[0,0,0,2], end=[1,1,2,4], step=[1,1,1,1]}\n"
        "  %n = neg(%b)\n  %t = concat(%n, %a) {axis=3}\n  %xc = mul(%c, %x)\n  %ts = mul(%t, %s)\n"
        "  %y rotated = add(%xc, %ts)\n  output \"y\" = %y\n",
        "  %0 x = parameter {dtype=f32, shape=[1,1,2,4]} : f32[1,1,2,4]\n"
        "  %1 rotated = constant {dtype=f32, shape=[2,2], data=[1,2,3,4]} : f32[2,2]\n"
        "  %2 rotated = constant {dtype=f32, shape=[2,2], data=[5,6,7,8]} : f32[2,2]\n"
        "  %3 rotated = rope(%0, %1, %2) : f32[1,1,2,4]\n"
        "  output \"y\" = %3\n");
}

static void float_constants_are_not_rounded(void **state) {
    (void)state;
    const char *text =
        "  %0 x = input {dtype=f32, shape=[4]} : f32[4]\n"
        "  %1 = constant {dtype=f64, shape=[], data=0.3} : f64[]\n"
        "  %2 = cast(%1) {dtype=f32} : f32[]\n"
        "  %3 = sqrt(%2) : f32[]\n"
        "  %4 = mul(%0, %3) : f32[4]\n"
        "  output \"y\" = %4\n";
    assert_captures(text, text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_its_composite),
        cmocka_unit_test(values_and_gradients_stay),
        cmocka_unit_test(capturing_is_final_and_deterministic),
        cmocka_unit_test(a_norm_between_casts_works_in_the_small_type),
        cmocka_unit_test(casts_that_ask_stay_outside_of_composites),
        cmocka_unit_test(a_table_of_the_graph_is_halved),
        cmocka_unit_test(float_constants_are_not_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

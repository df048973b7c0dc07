/* A plan's key tells every option apart that decides what the plan is: each option of the table
 * that the compile command takes is set to another value, and the key must change, or stay where
 * the option decides nothing. An option without a row here fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "capi/capi.h"
#include "compile/cache.h"
#include "ir/text.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

typedef enum effect {
    DECIDES, /* another value, another key */
    NEUTRAL, /* the same key: what it says does not reach the plan */
} effect_t;

/* Options that have no effect alone are tried beside others: "key=value;key=value". */
typedef struct row {
    const char *key, *value;
    effect_t effect;
    const char *beside;
} row_t;

static const row_t rows[] = {
    {"ranks", "2", DECIDES, ""},
    {"mesh", "tensor=2", DECIDES, ""},
    {"shard", "dp", NEUTRAL, ""}, /* the default */
    {"shard", "zero1", DECIDES, ""},
    {"shard", "zero2", DECIDES, ""},
    {"shard", "zero3", DECIDES, ""},
    {"shard", "tp", DECIDES, "ranks=2"},
    {"context-attention", "ring", DECIDES, ""},
    {"pipeline", "zb", DECIDES, "mesh=pipe=2;microbatches=2"},
    {"microbatches", "4", DECIDES, "mesh=pipe=2;microbatches=2"},
    {"stages-per-rank", "2", DECIDES, "mesh=pipe=2;microbatches=2"},
    {"pin", "fc.weight=split(0,data)", DECIDES, ""},
    {"threads", "3", DECIDES, ""},
    {"dtype", "f64", DECIDES, ""},
    {"dtype", "f32", DECIDES, ""},
    {"dtype", "bf16", DECIDES, ""},
    {"dtype", "f16", DECIDES, "loss-scale=off"},
    {"device", "null", DECIDES, ""},
    {"target", "h200", DECIDES, "device=null"},
    {"reference-kernels", "true", DECIDES, ""},
    {"fusion", "on", NEUTRAL, ""},
    {"fusion", "off", DECIDES, ""},
    {"fusion", "primitives", DECIDES, ""},
    {"layout", "off", DECIDES, ""},
    {"reduce-dtype", "f32", DECIDES, "dtype=bf16;ranks=2"},
    {"reduce-dtype", "f32", NEUTRAL, "dtype=bf16"}, /* one rank sums nothing */
    {"weight-shadows", "on", DECIDES, "dtype=bf16"},
    {"weight-shadows", "off", NEUTRAL, "dtype=bf16"}, /* what "auto" is on the cpu */
    {"bucket-size", "1MiB", DECIDES, ""},
    {"recompute", "off", DECIDES, ""},
    {"recompute", "fused", DECIDES, ""},
    {"recompute", "full", DECIDES, ""},
    {"feed-ahead", "off", NEUTRAL, ""}, /* what "auto" is on the cpu */
    {"feed-ahead", "on", DECIDES, ""},
    {"memory-limit", "1GiB", DECIDES, ""},
    {"timeout", "7", DECIDES, ""},
    {"plan-cache", "cache-of-keys", NEUTRAL, ""}, /* where plans are kept */
    {"fetch", "grad.fc.bias", DECIDES, ""},
    {"bind", "", NEUTRAL, ""},         /* sizes are in the graph that is compiled */
    {"dump", "simplify", NEUTRAL, ""}, /* prints */
    {"optimizer", "sgd", DECIDES, ""},
    {"lr", "0.5", DECIDES, ""},
    {"betas", "0.5,0.6", DECIDES, ""},
    {"eps", "1e-3", DECIDES, ""},
    {"momentum", "0.9", DECIDES, "optimizer=sgd"},
    {"nesterov", "true", DECIDES, "optimizer=sgd;momentum=0.9"},
    {"weight-decay", "0.3", DECIDES, ""},
    {"no-decay", "norms", DECIDES, ""},
    {"groups", "fc*=lr:0.5", DECIDES, ""},
    {"clip", "1", DECIDES, ""},
    {"schedule", "cosine", DECIDES, "steps=10"},
    {"warmup", "3", DECIDES, ""},
    {"min-lr", "1e-4", DECIDES, "schedule=cosine;steps=10"},
    {"steps", "20", DECIDES, "schedule=cosine;steps=10"},
    {"accumulate", "2", DECIDES, ""},
    {"loss-scale", "8", DECIDES, ""},
    {"skip-nonfinite", "true", DECIDES, ""},
    {"ema", "0.9", DECIDES, ""},
    {"batch-norm", "micro", NEUTRAL, ""}, /* allows what is refused otherwise */
    {"loss", "loss", NEUTRAL, ""},        /* the graph's only one */
    {"output", "somewhere.plan", NEUTRAL, ""},
    {"mode", "eval", DECIDES, ""},
    {"text", "true", NEUTRAL, ""},
    {"json", "true", NEUTRAL, ""},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const char model[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[8,4]}\n"
    "  %1 y = input {dtype=i64, shape=[8]}\n"
    "  %2 fc.weight = parameter {dtype=f32, shape=[4,5]}\n"
    "  %3 fc.bias = parameter {dtype=f32, shape=[5]}\n"
    "  %4 = matmul(%0, %2)\n"
    "  %5 = add(%4, %3)\n"
    "  %6, %7 = cross_entropy(%5, %1)\n"
    "  output \"loss\" = %6\n"
    "}\n";

/* Sets "key=value;…". */
static void set_all(stator_options_t *options, const char *pairs) {
    char text[256], *rest = text;
    assert_true(snprintf(text, sizeof text, "%s", pairs) < (int)sizeof text);
    for (char *pair; (pair = strtok_r(rest, ";", &rest));) {
        char *value = strchr(pair, '=');
        *value = 0;
        assert_ok(stator_options_set(options, pair, value + 1));
    }
}

static uint64_t key_with(const char *beside, const char *key, const char *value) {
    stator_options_t *options;
    stator_graph_t *graph, *step;
    stator_plan_t *plan;
    ir_graph_t *ir;
    assert_int_equal(ir_graph_parse(model, strlen(model), &ir), ST_OK);
    assert_int_equal(capi_graph_wrap(ir, &graph), ST_OK);
    assert_ok(stator_options_create(&options));
    set_all(options, beside);
    if (key) assert_ok(stator_options_set(options, key, value));
    assert_ok(stator_graph_make_training(graph, options, &step));
    assert_ok(stator_plan_compile(step, options, NULL, &plan));
    uint64_t made = plan_key(plan->plan);
    stator_plan_destroy(plan);
    stator_graph_destroy(step);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
    return made;
}

static void every_option_of_compiling_has_a_row(void **state) {
    (void)state;
    for (const st_option_row_t *o = st_option_rows(); o->key; o++) {
        int n = 0;
        if (!strchr(o->commands, 'c')) continue;
        for (int i = 0; i < N_ROWS; i++) n += strcmp(rows[i].key, o->key) == 0;
        if (n == 0) fail_msg("option '%s' has no row: does it decide what a plan is?", o->key);
        if (!strchr(o->kind, '|')) continue;
        int choices = 1; /* each but the default is tried */
        for (const char *c = o->kind; *c; c++) choices += *c == '|';
        if (n < choices - 1 && strcmp(o->key, "optimizer") != 0 && strcmp(o->key, "schedule") != 0)
            fail_msg("option '%s' is %s: %d rows", o->key, o->kind, n);
    }
}

static void options_that_decide_change_the_key(void **state) {
    (void)state;
    char folder[] = "/tmp/stator-keys-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    for (int i = 0; i < N_ROWS; i++) {
        const row_t *r = &rows[i];
        const bool same = key_with(r->beside, NULL, NULL) == key_with(r->beside, r->key, r->value);
        if (same != (r->effect == NEUTRAL))
            fail_msg("option '%s' set to '%s' %s the plan's key", r->key, r->value,
                     same ? "keeps" : "changes");
    }
    assert_int_equal(st_remove_folder("cache-of-keys"), ST_OK);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(st_remove_folder(folder), ST_OK);
}

/* A description by file decides by its text, not by its name. */
static void the_text_of_a_target_decides(void **state) {
    (void)state;
    char path[] = "/tmp/stator-target-XXXXXX";
    st_file_t text;
    assert_int_equal(st_file_open(STATOR_SOURCE_DIR "/targets/cpu.target", &text), ST_OK);
    uint64_t keys[3];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < 3; i++) {
        FILE *to = fopen(path, "w");
        assert_non_null(to);
        assert_int_equal(fwrite(text.data, 1, text.bytes, to), text.bytes);
        if (i == 2) fputs("# another text\n", to);
        fclose(to);
        keys[i] = key_with("", "target", path);
    }
    assert_true(keys[0] == keys[1]);
    assert_true(keys[0] != keys[2]);
    unlink(path);
    st_file_close(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_of_compiling_has_a_row),
        cmocka_unit_test(options_that_decide_change_the_key),
        cmocka_unit_test(the_text_of_a_target_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

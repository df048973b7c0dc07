/* Keys of plans, and the folder of plans: what is there is loaded and the same; what is damaged or
 * of other options is not taken. */
#include "compile/cache.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "compile/compile.h"
#include "compile/target.h"
#include "ir/symbols.h"
#include "ir/text.h"

static const char open_text[] =
    "graph \"g\" {\n"
    "  %0 x = input {dtype=f32, shape=[4,3]}\n"
    "  %1 w = parameter {dtype=f32, shape=[3,3]}\n"
    "  %2 y = matmul(%0, %1)\n"
    "  output \"y\" = %2\n"
    "  symbol batch = 4 [1,64]\n"
    "  vary %0 shape 0 = \"batch\"\n"
    "}\n";

static ir_graph_t *bound_to(int64_t batch) {
    ir_graph_t *graph = NULL, *bound = NULL;
    assert_int_equal(ir_graph_parse(open_text, strlen(open_text), &graph), ST_OK);
    assert_int_equal(ir_graph_bind(graph, 1, &(ir_binding_t){"batch", batch}, &bound), ST_OK);
    ir_graph_destroy(graph);
    return bound;
}

static plan_t *compile(const ir_graph_t *graph, const compile_options_t *options) {
    plan_t *plan = NULL;
    if (compile_plan(graph, options, &plan) != ST_OK) fail_msg("%s", st_last_error());
    return plan;
}

static void keys_tell_what_decides_a_plan(void **state) {
    (void)state;
    ir_graph_t *four = bound_to(4), *five = bound_to(5);
    const compile_options_t rows[] = {
        {.n_ranks = 1},        {.n_ranks = 2},      {.n_threads = 2},  {.reference_kernels = true},
        {.bucket_bytes = 999}, {.timeout_ms = 123}, {.dtype = IR_F64}, {.evaluation = true},
    };
    enum { N = sizeof rows / sizeof rows[0] };
    uint64_t keys[N + 1];
    for (int i = 0; i <= N; i++) {
        plan_t *plan = compile(i < N ? four : five, &rows[i < N ? i : 0]);
        keys[i] = plan_key(plan);
        for (int j = 0; j < i; j++) assert_true(keys[j] != keys[i]);
        plan_destroy(plan);
    }
    plan_t *again = compile(four, &rows[0]);
    assert_true(plan_key(again) == keys[0]);
    plan_destroy(again);
    ir_graph_destroy(four);
    ir_graph_destroy(five);
}

/* What decides is the text of the built-in target, not its name, and which build made the plan. */
static void keys_tell_target_and_build(void **state) {
    (void)state;
    ir_graph_t *graph = bound_to(4);
    compile_options_t options = {.target = "h200"};
    plan_t *plan = compile(graph, &options);
    const target_builtin_t *b = target_builtins;
    while (strcmp(b->name, "h200") != 0) b++;
    uint8_t *text = st_malloc(b->bytes);
    assert_non_null(text);
    memcpy(text, b->text, b->bytes);
    uint64_t key = plan_key_for(plan, "build", text, b->bytes);
    assert_true(plan_key_for(plan, "other", text, b->bytes) != key);
    assert_true(plan_key(plan) != plan_key_for(plan, "build", "", 0));
    text[b->bytes / 2] ^= 1;
    assert_true(plan_key_for(plan, "build", text, b->bytes) != key);
    assert_true(plan_key(plan) == plan_key_for(plan, plan_build, b->text, b->bytes));
    st_free(text);
    plan_destroy(plan);
    ir_graph_destroy(graph);
}

static int count_files(const char *folder, char out_path[512]) {
    DIR *dir = opendir(folder);
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            n++;
            snprintf(out_path, 512, "%s/%s", folder, e->d_name);
        }
    closedir(dir);
    return n;
}

static size_t passes_run(void) {
    const compile_timing_t *timings;
    return compile_timings(&timings);
}

static void a_plan_is_made_once(void **state) {
    (void)state;
    char folder[] = "cache.XXXXXX", path[512];
    assert_non_null(mkdtemp(folder));
    ir_graph_t *graph = bound_to(4);
    compile_options_t options = {.n_ranks = 2, .plan_cache = folder};
    plan_t *first = compile(graph, &options);
    assert_true(passes_run() > 0);
    assert_int_equal(count_files(folder, path), 1);
    plan_t *second = compile(graph, &options);
    assert_int_equal(passes_run(), 0); /* loaded */
    uint8_t *a, *b;
    size_t n_a, n_b;
    assert_int_equal(plan_encode(first, &a, &n_a), ST_OK);
    assert_int_equal(plan_encode(second, &b, &n_b), ST_OK);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    plan_destroy(second);

    /* one flipped bit: made and written anew */
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)n_a / 2, SEEK_SET), 0);
    assert_true(fputc(a[n_a / 2] ^ 1, file) != EOF);
    assert_int_equal(fclose(file), 0);
    second = compile(graph, &options);
    assert_true(passes_run() > 0);
    plan_destroy(second);
    plan_destroy(compile(graph, &options));
    assert_int_equal(passes_run(), 0);

    /* another plan under this name */
    ir_graph_t *other = bound_to(5);
    compile_options_t plain = {.n_ranks = 2};
    plan_t *stranger = compile(other, &plain);
    st_free(b);
    assert_int_equal(plan_encode(stranger, &b, &n_b), ST_OK);
    assert_int_equal(st_file_write(path, b, n_b), ST_OK);
    second = compile(graph, &options);
    assert_true(passes_run() > 0);
    assert_true(plan_key(second) == plan_key(first));
    assert_int_equal(count_files(folder, path), 1);

    st_free(a);
    st_free(b);
    plan_destroy(stranger);
    plan_destroy(second);
    plan_destroy(first);
    ir_graph_destroy(other);
    ir_graph_destroy(graph);
    assert_int_equal(st_remove_folder(folder), ST_OK);
}

static void plans_for_anothers_state_are_not_kept(void **state) {
    (void)state;
    char folder[] = "cache.XXXXXX", path[512];
    assert_non_null(mkdtemp(folder));
    ir_graph_t *graph = bound_to(4);
    compile_options_t options = {.n_ranks = 1};
    plan_t *model = compile(graph, &options);
    options.state_of = model;
    options.plan_cache = folder;
    plan_destroy(compile(graph, &options));
    assert_int_equal(count_files(folder, path), 0);
    plan_destroy(model);
    ir_graph_destroy(graph);
    assert_int_equal(st_remove_folder(folder), ST_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_tell_what_decides_a_plan),
        cmocka_unit_test(keys_tell_target_and_build),
        cmocka_unit_test(a_plan_is_made_once),
        cmocka_unit_test(plans_for_anothers_state_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

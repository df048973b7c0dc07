/* The command with tensors that are not quite the graph's. Weights: a constant prefix is matched
 * and results use the file's names; names missing or left over are listed. Batches: another shape,
 * type or number is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stator/stator.h"
#include "tools/command.h"

#define assert_ok(expr)                                                                      \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

static const char train[] =
    "train g.stator --tokens-file text.tokens --steps 1 --save refused --weights ";

/* The saved model with a prefix before each name; `without` is left out, `with` added. */
static void write_weights(const char *path, const char *prefix, const char *without,
                          const char *with) {
    stator_tensors_t *saved = NULL, *made = NULL;
    assert_ok(stator_tensors_load("set/model.safetensors", &saved));
    assert_ok(stator_tensors_create(&made));
    for (size_t i = 0; i < stator_tensors_count(saved); i++) {
        stator_tensor_t tensor = stator_tensors_at(saved, i);
        char name[128];
        if (without && strcmp(tensor.name, without) == 0) continue;
        snprintf(name, sizeof name, "%s%s", prefix, tensor.name);
        tensor.name = name;
        assert_ok(stator_tensors_add(made, &tensor));
        tensor.name = with;
        if (with && i == 0) assert_ok(stator_tensors_add(made, &tensor));
    }
    assert_ok(stator_tensors_save(made, path));
    stator_tensors_destroy(made);
    stator_tensors_destroy(saved);
}

static void refused(const char *path, const char *what, const char *name) {
    char line[256];
    snprintf(line, sizeof line, "%s%s", train, path);
    must_refuse(line, what, name);
}

static void a_prefix_is_matched(void **state) {
    (void)state;
    stator_tensors_t *trained = NULL;
    stator_tensor_t found;
    write_weights("prefixed", "module.", NULL, NULL);
    must_run("train g.stator --tokens-file text.tokens --steps 1 --save new --weights prefixed");
    assert_ok(stator_tensors_load("new/model.safetensors", &trained));
    assert_ok(stator_tensors_find(trained, "module.model.norm.weight", &found));
    assert_int_not_equal(stator_tensors_find(trained, "model.norm.weight", &found), STATOR_OK);
    stator_tensors_destroy(trained);

    /* the values too: a step from either file gives the same weights */
    must_run(
        "train g.stator --tokens-file text.tokens --steps 1 --save plain --weights "
        "set/model.safetensors");
    stator_tensors_t *plain = NULL, *prefixed = NULL;
    assert_ok(stator_tensors_load("plain/model.safetensors", &plain));
    assert_ok(stator_tensors_load("new/model.safetensors", &prefixed));
    assert_int_equal(stator_tensors_count(plain), stator_tensors_count(prefixed));
    for (size_t i = 0; i < stator_tensors_count(plain); i++) {
        stator_tensor_t a = stator_tensors_at(plain, i), b = stator_tensors_at(prefixed, i);
        assert_string_equal(b.name + strlen("module."), a.name);
        assert_int_equal(a.bytes, b.bytes);
        assert_memory_equal(a.data, b.data, a.bytes);
    }
    stator_tensors_destroy(prefixed);
    stator_tensors_destroy(plain);
}

static void other_differences_are_listed(void **state) {
    (void)state;
    n_findings = 0;
    write_weights("less", "", "model.norm.weight", NULL);
    refused("less", "a parameter missing", "model.norm.weight");
    write_weights("more", "", NULL, "another.weight");
    refused("more", "a tensor left over", "another.weight");
    write_weights("both", "", "model.norm.weight", "another.weight");
    refused("both", "missing, in a file with one left over", "model.norm.weight");
    refused("both", "left over, in a file that lacks one", "another.weight");
    write_weights("mixed", "module.", "model.norm.weight", "model.norm.weight");
    refused("mixed", "one name without the prefix", "model.norm.weight");
    assert_int_equal(n_findings, 0);
}

/* x.0 … x.2 for g.stator, which takes i64[2,4]; number `other` has the given type. */
static void write_batches(const char *path, int other, stator_dtype_t dtype, int64_t second_dim,
                          bool with_y2) {
    static const int64_t zeros[64];
    stator_tensors_t *made = NULL;
    assert_ok(stator_tensors_create(&made));
    for (int i = 0; i < 3; i++) {
        char x[8], y[8];
        snprintf(x, sizeof x, "x.%d", i);
        snprintf(y, sizeof y, "y.%d", i);
        stator_tensor_t tensor = {
            .name = y, .dtype = STATOR_DTYPE_I64, .rank = 2, .dims = {2, 4}, .data = zeros};
        tensor.bytes = 8 * sizeof(int64_t);
        if (i < 2 || with_y2) assert_ok(stator_tensors_add(made, &tensor));
        tensor.name = x;
        if (i == other) {
            tensor.dtype = dtype;
            tensor.dims[1] = second_dim;
            tensor.bytes = (size_t)(2 * second_dim) * stator_dtype_bytes(dtype);
        }
        assert_ok(stator_tensors_add(made, &tensor));
    }
    assert_ok(stator_tensors_save(made, path));
    stator_tensors_destroy(made);
}

static void batches_of_other_shapes_are_refused(void **state) {
    (void)state;
    n_findings = 0;
    static const char line[] = "train g.stator --input batches --map x=x.*,y=y.* --steps 3";
    write_batches("batches", -1, STATOR_DTYPE_NONE, 0, true);
    must_run(line);
    write_batches("batches", 1, STATOR_DTYPE_I64, 5, true);
    must_refuse(line, "the second batch is longer", "i64[2,5]");
    write_batches("batches", 2, STATOR_DTYPE_F32, 4, true);
    must_refuse(line, "the third batch is of floats", "f32[2,4]");
    write_batches("batches", -1, STATOR_DTYPE_NONE, 0, false);
    must_refuse(line, "three of x and two of y", "y");
    must_refuse("train g.stator --input batches --map x=x.*,y=z.* --steps 3", "no z at all", "z.");
    must_refuse("train g.stator --input batches --map x=x.* --steps 3", "y is not mapped", "y");
    must_refuse("train g.stator --input batches --map x=x.*,y=y.*,z=y.* --steps 3", "no such input",
                "z");
    must_refuse("train g.stator --input batches --map x=x.*,x=y.* --steps 3", "x twice, no y",
                "input 'x' is mapped twice");
    must_refuse("train g.stator --input batches --steps 3", "no map and no equal names", "x");
    assert_int_equal(n_findings, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_matched),
        cmocka_unit_test(other_differences_are_listed),
        cmocka_unit_test(batches_of_other_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, command_make_files, command_remove_files);
}

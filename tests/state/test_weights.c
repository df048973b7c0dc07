/* Matching weights: equal names, prefixes, aliases and ties, what is missing or left over. */
#include "state/weights.h"

#include "state/safetensors.h"
#include "state/tensor.h"
#include "support/scratch.h"

static float w_data[6] = {1, 2, 3, 4, 5, 6}, b_data[3] = {7, 8, 9};
static int64_t counter;
static const int64_t dims23[] = {2, 3}, dims3[] = {3};

static st_status_t write_tensors(const char *path, const state_tensor_t *tensors, size_t n,
                                 const state_alias_t *alias) {
    safetensors_writer_t *writer;
    assert_ok(safetensors_writer_create(&writer));
    for (size_t i = 0; i < n; i++) {
        const ir_type_t *type = &tensors[i].type;
        assert_ok(safetensors_writer_add(writer, tensors[i].name, safetensors_from_ir(type->dtype),
                                         type->rank, type->dims, tensors[i].data,
                                         ir_type_bytes(type)));
    }
    if (alias) assert_ok(safetensors_writer_alias(writer, alias->other, alias->stored));
    st_status_t status = safetensors_writer_commit(writer, path);
    safetensors_writer_destroy(writer);
    return status;
}

static safetensors_t *make_file(const char *prefix, const state_alias_t *alias) {
    static char names[3][64];
    snprintf(names[0], 64, "%sfc.weight", prefix);
    snprintf(names[1], 64, "%sfc.bias", prefix);
    snprintf(names[2], 64, "%sbn.num_batches_tracked", prefix);
    state_tensor_t tensors[] = {
        {names[0], ir_type_make(IR_F32, 2, dims23), w_data},
        {names[1], ir_type_make(IR_F32, 1, dims3), b_data},
        {names[2], ir_type_scalar(IR_I64), &counter},
    };
    safetensors_t *file;
    const char *path = scratch("weights");
    assert_ok(write_tensors(path, tensors, 3, alias));
    assert_ok(safetensors_open(path, &file));
    return file;
}

static weights_wanted_t want(const char *name, int32_t rank, const int64_t *dims) {
    return (weights_wanted_t){.name = name, .type = ir_type_make(IR_F32, rank, dims)};
}

static void prefixes_on_either_side(void **state) {
    (void)state;
    static const struct {
        const char *file, *wanted_w, *wanted_b, *prefix;
        bool in_file;
    } cases[] = {
        {"", "fc.weight", "fc.bias", "", true},
        {"model.", "fc.weight", "fc.bias", "model.", true},
        {"", "p_model.fc.weight", "p_model.fc.bias", "p_model.", false},
        {"m.", "x.m.fc.weight", "x.m.fc.bias", "x.", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        safetensors_t *file = make_file(cases[i].file, NULL);
        weights_wanted_t wanted[] = {want(cases[i].wanted_w, 2, dims23),
                                     want("extra.running_mean", 1, dims3),
                                     want(cases[i].wanted_b, 1, dims3)};
        wanted[1].is_optional = true;
        weights_match_t match;
        assert_ok(weights_match(file, wanted, 3, &match));
        assert_string_equal(match.prefix, cases[i].prefix);
        assert_int_equal(match.prefix_in_file, cases[i].in_file);
        assert_null(match.tensors[1]);
        assert_int_equal(match.missing_optional.n, 1);
        assert_int_equal(match.ignored.n, 1);
        float w[6];
        weights_read(match.tensors[0], IR_F32, w);
        assert_memory_equal(w, w_data, sizeof w);
        double b[3];
        weights_read(match.tensors[2], IR_F64, b);
        assert_true(b[2] == 9);
        weights_match_free(&match);
        safetensors_close(file);
    }
}

static void prefixes_are_whole_parts(void **state) {
    (void)state;
    weights_match_t match;
    safetensors_t *file = make_file("x", NULL); /* "xfc.weight" */
    weights_wanted_t wanted[] = {want("fc.weight", 2, dims23), want("fc.bias", 1, dims3)};
    assert_fails(weights_match(file, wanted, 2, &match), ST_INVALID,
                 "left over: xfc.bias, xfc.weight");
    safetensors_close(file);
    file = make_file("", NULL);
    weights_wanted_t reverse[] = {want("yfc.weight", 2, dims23), want("yfc.bias", 1, dims3)};
    assert_fails(weights_match(file, reverse, 2, &match), ST_INVALID, "missing: yfc.weight");
    safetensors_close(file);
}

static void differences_are_listed(void **state) {
    (void)state;
    safetensors_t *file = make_file("", NULL);
    weights_match_t match;
    weights_wanted_t wanted[] = {want("fc.weight", 2, dims23), want("head.bias", 1, dims3)};
    assert_fails(weights_match(file, wanted, 2, &match), ST_INVALID,
                 "1 missing: head.bias; 1 left over: fc.bias");
    assert_null(match.tensors);
    const int64_t dims32[] = {3, 2};
    weights_wanted_t shapes[] = {want("fc.weight", 2, dims32), want("fc.bias", 1, dims3)};
    assert_fails(weights_match(file, shapes, 2, &match), ST_INVALID,
                 "fc.weight (f32[3,2] expected, f32[2,3] in the file)");
    shapes[0] = want("fc.weight", 2, dims23);
    shapes[1].type.dtype = IR_I32;
    assert_fails(weights_match(file, shapes, 2, &match), ST_INVALID, "i32[3] expected");
    shapes[1].type.dtype = IR_BF16;
    assert_ok(weights_match(file, shapes, 2, &match));
    uint16_t b[3];
    weights_read(match.tensors[1], IR_BF16, b);
    assert_int_equal(b[0], 0x40e0); /* 7 */
    weights_match_free(&match);

    weights_wanted_t many[30];
    char names[30][24];
    for (int i = 0; i < 30; i++) {
        snprintf(names[i], sizeof names[i], "gone.%02d", i);
        many[i] = want(names[i], 1, dims3);
    }
    assert_fails(weights_match(file, many, 30, &match), ST_INVALID, "30 missing: gone.00, gone.01");
    assert_non_null(strstr(st_last_error(), "gone.09, …; 2 left over"));
    assert_null(strstr(st_last_error(), "gone.10"));
    safetensors_close(file);
}

static void ties_match_by_any_name(void **state) {
    (void)state;
    state_alias_t alias = {"m.head.weight", "m.fc.weight"};
    safetensors_t *file = make_file("m.", &alias);
    weights_match_t match;
    /* The model calls the tensor by the file's alias, and lacks the prefix. */
    weights_wanted_t wanted[] = {want("head.weight", 2, dims23), want("fc.bias", 1, dims3)};
    assert_ok(weights_match(file, wanted, 2, &match));
    assert_string_equal(match.tensors[0]->name, "m.fc.weight");
    weights_match_free(&match);
    /* Untied in the model, tied in the file: both get the stored values. */
    weights_wanted_t both[] = {want("head.weight", 2, dims23), want("fc.weight", 2, dims23),
                               want("fc.bias", 1, dims3)};
    assert_ok(weights_match(file, both, 3, &match));
    assert_ptr_equal(match.tensors[0], match.tensors[1]);
    weights_match_free(&match);
    safetensors_close(file);

    /* Tied in the model, stored twice in the file: fine only when the bytes agree. */
    float other[6];
    memcpy(other, w_data, sizeof other);
    for (int round = 0; round < 2; round++) {
        state_tensor_t tensors[] = {{"a", ir_type_make(IR_F32, 2, dims23), w_data},
                                    {"b", ir_type_make(IR_F32, 2, dims23), other}};
        const char *path = scratch("twice");
        assert_ok(write_tensors(path, tensors, 2, NULL));
        assert_ok(safetensors_open(path, &file));
        const char *names[] = {"b"};
        weights_wanted_t tied = want("a", 2, dims23);
        tied.other_names = names;
        tied.n_other_names = 1;
        if (round == 0) {
            assert_ok(weights_match(file, &tied, 1, &match));
            weights_match_free(&match);
        } else {
            assert_fails(weights_match(file, &tied, 1, &match), ST_INVALID, "a and b differ");
        }
        safetensors_close(file);
        other[5] = 0;
    }
}

static void allocation_failures_are_reported(void **state) {
    (void)state;
    safetensors_t *file = make_file("m.", NULL);
    weights_wanted_t wanted[] = {want("fc.weight", 2, dims23), want("fc.bias", 1, dims3)};
    weights_match_t match;
    st_status_t status = ST_NO_MEMORY;
    for (int64_t i = 0; status != ST_OK; i++) {
        st_memory_fail_after(i, false);
        status = weights_match(file, wanted, 2, &match);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
    }
    weights_match_free(&match);
    weights_match_free(&match);
    safetensors_close(file);
}

static void the_tied_case_matches_untied_names(void **state) {
    (void)state;
    const char *path = shared_file("cases/llama_tiny_tied/weights.safetensors");
    if (path == NULL) skip();
    safetensors_t *file;
    assert_ok(safetensors_open(path, &file));
    size_t n = safetensors_count(file);
    weights_wanted_t *wanted = calloc(n, sizeof *wanted);
    for (size_t i = 0; i < n; i++) {
        const safetensors_tensor_t *tensor = safetensors_at(file, i);
        wanted[i] = want(tensor->name + strlen("model."), tensor->rank, tensor->dims);
        if (strcmp(wanted[i].name, "hf.model.embed_tokens.weight") == 0) {
            wanted[i].name = "hf.lm_head.weight";
        }
    }
    weights_match_t match;
    assert_ok(weights_match(file, wanted, n, &match));
    assert_string_equal(match.prefix, "model.");
    weights_match_free(&match);
    free(wanted);
    safetensors_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_on_either_side),
        cmocka_unit_test(prefixes_are_whole_parts),
        cmocka_unit_test(differences_are_listed),
        cmocka_unit_test(ties_match_by_any_name),
        cmocka_unit_test(allocation_failures_are_reported),
        cmocka_unit_test(the_tied_case_matches_untied_names),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

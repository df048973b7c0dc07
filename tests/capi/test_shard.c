/* Every form on some meshes trains as one rank does, in float64: short form. */
#include "shard.h"

#include <math.h>

#include "support/scratch.h"

static const char *const data_forms[] = {"dp", "zero1", "zero2", "zero3"};

/* Moments are two thirds of the state, parameters the rest; every size is a multiple of 4. */
static void llama_trains_alike_under_data_forms_with_less_state(void **state) {
    (void)state;
    double share[4], whole = (double)shard_check(&shard_llama, "data=4", "dp");
    for (int f = 1; f < 4; f++)
        share[f] = (double)shard_check(&shard_llama, "data=4", data_forms[f]) / whole;
    assert_true(fabs(share[1] - (1. / 3 + 2. / 3 / 4)) < 0.01);
    assert_true(fabs(share[2] - (1. / 3 + 2. / 3 / 4)) < 0.01);
    assert_true(fabs(share[3] - 1. / 4) < 0.01);
}

static void uneven_and_empty_parts_train_alike(void **state) {
    (void)state;
    for (int f = 1; f < 4; f++) shard_check(&shard_llama_uneven, "data=3", data_forms[f]);
    shard_check(&shard_llama_uneven, "data=8", "zero3");
}

static void resnet_trains_alike_under_data_forms(void **state) {
    (void)state;
    for (int f = 1; f < 4; f++) shard_check(&shard_resnet, "data=3", data_forms[f]);
}

static void llama_trains_alike_under_tensor_parallel(void **state) {
    (void)state;
    double whole = (double)shard_check(&shard_llama, "data=1", "dp");
    double half = (double)shard_check(&shard_llama, "tensor=2", "dp");
    assert_true(half < 0.53 * whole); /* norms are whole */
    shard_check(&shard_llama, "data=2,tensor=2", "zero3");
}

static void state_is_saved_whole_and_loaded_on_another_mesh(void **state) {
    (void)state;
    shard_check_resumed(&shard_llama, "data=2,tensor=2", "zero3", "data=3", "zero1");
    shard_check_resumed(&shard_llama, "data=1", "dp", "tensor=3,data=2", "zero2");
}

static void evaluation_shares_split_state(void **state) {
    (void)state;
    shard_check_evaluation(&shard_llama, "data=2", "zero3");
    shard_check_evaluation(&shard_llama, "data=2,tensor=2", "zero1");
    shard_check_evaluation(&shard_resnet, "data=3", "zero3");
}

/* Nothing is special about what a form splits. */
static void pins_are_kept_to_and_train_alike(void **state) {
    (void)state;
    double whole = (double)shard_check(&shard_llama, "data=2", "dp");
    double bytes =
        (double)shard_check(&shard_llama, "data=2", "dp *mlp.down_proj.weight=split(1,data)");
    assert_true(bytes < whole - 32 * 88 * 8); /* a half of each of three states of two layers */
    shard_check(&shard_llama, "data=2,tensor=2",
                "zero1 *.q_proj.weight=whole(tensor);model.norm.weight=split(0,tensor)");
    shard_check(&shard_llama_uneven, "data=3", "dp *.weight=split(0,data)");
}

static void bad_pins_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *pins, *says;
    } rows[] = {
        {"*.weight", "is no pin"},
        {"=split(0,data)", "is no pin"},
        {"*=split(data)", "is no pin"},
        {"*=split(-1,data)", "is no pin"},
        {"*=split(0,data) more", "is no pin"},
        {"*=split(4294967296,data)", "'*=split(4294967296,data)': no tensor has a dim 4294967296"},
        {"*=split(99999999999999999999,data)", "no tensor has a dim 99999999999999999999"},
        {"*=split(8,data)", "no tensor has a dim 8; 0 to 7 are possible"},
        {"*.weight=split(0,tensor)", "has no axis 'tensor'"},
        {"*.weight=split(0,tensor);*=whole(data)", "pin '*.weight=split(0,tensor)': the mesh"},
        {"nothing.*=whole(data)", "has a name like 'nothing.*'"},
        {"model.norm.weight=split(1,data)", "'model.norm.weight' is f64[32], which has no dim 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        shard_check_unplanned(&shard_llama, "data=2", rows[i].pins, rows[i].says);
    shard_check_unplanned(&shard_llama_micro, "pipe=2", "*=whole(data);*.weight=split(0,pipe)",
                          "the mesh pipe=2 has no axis 'data'");
    shard_check_unplanned(&shard_llama_micro, "data=2,pipe=2", "*.weight=split(0,pipe)",
                          "pin '*.weight=split(0,pipe)': ranks of axis 'pipe' have stages");
}

static void bad_meshes_are_refused(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"data=2,data=2", "axis 'data' is given twice"},
        {"data=0", "'data' has the size '0'"},
        {"pipes=2", "there is no mesh axis 'pipes'"},
        {"data=40,tensor=40", "has 1600 ranks; 1 to 1024 are possible"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        shard_check_unplanned(&shard_llama, rows[i][0], "", rows[i][1]);
}

/* Of a table in parts, too, an index that it does not have is an error, not nothing. */
static void an_index_out_of_a_split_table_is_an_error(void **state) {
    (void)state;
    shard_check_refused(&shard_llama, "tensor=2", 64, "index 32"); /* 64, on the second rank */
    shard_check_refused(&shard_llama, "tensor=2", -65, "index");
}

static void uneven_and_empty_heads_train_alike(void **state) {
    (void)state;
    shard_check(&shard_llama_uneven, "tensor=2", "dp");
    shard_check(&shard_llama_uneven, "tensor=3,data=2", "zero2");
    shard_check(&shard_llama_uneven, "tensor=8", "tp"); /* 5 groups of heads */
}

/* Limits between the bytes of one rank's part and another's: all merge alike nonetheless. */
static void uneven_heads_on_a_mixed_mesh_merge_gradients_alike(void **state) {
    (void)state;
    static const char *const limits[] = {"0", "16KiB", "48000", "80000"};
    shard_model_t model;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        /* sums of micro-batches all start at the end */
        model = shard_with(&shard_llama_uneven, "accumulate", "1");
        model = shard_with(&model, "bucket-size", limits[i]);
        shard_check(&model, "data=2,tensor=2", "dp");
    }
    shard_check(&model, "tensor=3,data=2", "dp");
}

/* Extents that are equal on one rank by chance, states that end before the last rank, heads that do
 * not go round: the ranks' primitives still match. */
static void uneven_and_empty_parts_train_alike_in_primitives(void **state) {
    (void)state;
    const shard_model_t resnet = shard_with(&shard_resnet, "fusion", "primitives");
    shard_check(&resnet, "data=8", "zero1");
    const shard_model_t llama = shard_with(&shard_llama, "fusion", "primitives");
    shard_check(&llama, "tensor=3", "dp");
    const shard_model_t uneven = shard_with(&shard_llama_uneven, "fusion", "primitives");
    shard_check(&uneven, "data=2,tensor=7", "dp");
}

/* Parameters and two moments are the state of data parallel, so gradients are a third of it. Of
 * four ranks each has three quarters less of them, but for the one gradient that is being
 * scattered: at most an eighth here. */
static void gradients_of_micro_batches_add_up_in_parts(void **state) {
    (void)state;
    const shard_model_t model = shard_with(&shard_llama, "accumulate", "3");
    const stator_plan_info_t dp = shard_planned(&model, "data=4", "dp");
    const stator_plan_info_t zero1 = shard_planned(&model, "data=4", "zero1");
    const stator_plan_info_t zero2 = shard_planned(&model, "data=4", "zero2");
    const double gradients = (double)dp.state_bytes / 3;
    const double spared = (double)(zero1.work_bytes + zero1.comm_bytes) -
                          (double)(zero2.work_bytes + zero2.comm_bytes);
    if (!(spared > 0.6 * gradients))
        fail_msg("zero2 spares %g of %g bytes of gradients: zero1 %llu + %llu, zero2 %llu + %llu",
                 spared, gradients, (unsigned long long)zero1.work_bytes,
                 (unsigned long long)zero1.comm_bytes, (unsigned long long)zero2.work_bytes,
                 (unsigned long long)zero2.comm_bytes);
    shard_check(&model, "data=4", "zero2");
    shard_check(&shard_llama_micro, "data=2", "zero2"); /* unequal counts of labels */
    shard_check(&shard_llama_micro, "data=3", "zero2"); /* the third rank has no rows */
    shard_check(&shard_llama_micro, "data=2,tensor=2", "zero2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_trains_alike_under_data_forms_with_less_state),
        cmocka_unit_test(uneven_and_empty_parts_train_alike),
        cmocka_unit_test(resnet_trains_alike_under_data_forms),
        cmocka_unit_test(llama_trains_alike_under_tensor_parallel),
        cmocka_unit_test(uneven_and_empty_heads_train_alike),
        cmocka_unit_test(uneven_and_empty_parts_train_alike_in_primitives),
        cmocka_unit_test(uneven_heads_on_a_mixed_mesh_merge_gradients_alike),
        cmocka_unit_test(state_is_saved_whole_and_loaded_on_another_mesh),
        cmocka_unit_test(evaluation_shares_split_state),
        cmocka_unit_test(pins_are_kept_to_and_train_alike),
        cmocka_unit_test(bad_pins_are_refused),
        cmocka_unit_test(bad_meshes_are_refused),
        cmocka_unit_test(gradients_of_micro_batches_add_up_in_parts),
        cmocka_unit_test(an_index_out_of_a_split_table_is_an_error),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

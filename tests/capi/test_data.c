/* Data that does not fit the model is refused when it is opened, by its name. */
#include "state/tokens.h"
#include "stator/stator.h"
#include "support/scratch.h"

#define assert_done(expr)                                                                    \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

#define assert_refused(expr, words)                                                            \
    do {                                                                                       \
        assert_int_equal((expr), STATOR_INVALID);                                              \
        if (!strstr(stator_last_error(), words))                                               \
            fail_msg("%s: '%s' is not in the message: %s", #expr, words, stator_last_error()); \
    } while (0)

enum { BATCH = 2, WINDOW = 4, VOCABULARY = 20, WIDTH = 8, CLASSES = 3 };

static stator_value_t port(stator_graph_t *graph, stator_port_kind_t kind, const char *name,
                           stator_dtype_t dtype, int32_t rank, const int64_t *dims) {
    stator_tensor_t type = {.name = name, .dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++) type.dims[i] = dims[i];
    stator_value_t value = STATOR_NO_VALUE;
    assert_done(stator_graph_add_port(graph, kind, &type, &value));
    return value;
}

static stator_value_t add(stator_graph_t *graph, const char *op, size_t n, stator_value_t a,
                          stator_value_t b, const char *attributes) {
    stator_value_t out = STATOR_NO_VALUE;
    assert_done(stator_graph_add(graph, op, NULL, n, (stator_value_t[]){a, b}, attributes, &out));
    return out;
}

/* Takes the graph over. */
static stator_plan_t *plan_of(stator_graph_t *graph, stator_value_t logits, stator_value_t y,
                              const char *attributes) {
    stator_value_t loss = add(graph, "cross_entropy", 2, logits, y, attributes);
    assert_done(stator_graph_add_output(graph, "loss", loss));
    stator_options_t *options = NULL;
    stator_plan_t *plan = NULL;
    assert_done(stator_options_create(&options));
    assert_done(stator_options_set(options, "ranks", "2"));
    assert_done(stator_plan_compile(graph, options, NULL, &plan));
    stator_options_destroy(options);
    stator_graph_destroy(graph);
    return plan;
}

/* An embedding of 20 tokens and its loss. */
static stator_plan_t *plan_tokens(void) {
    const int64_t batch[] = {BATCH, WINDOW}, table[] = {VOCABULARY, WIDTH};
    stator_graph_t *g = NULL;
    assert_done(stator_graph_create("tokens", &g));
    stator_value_t x = port(g, STATOR_INPUT, "x", STATOR_DTYPE_I64, 2, batch);
    stator_value_t y = port(g, STATOR_INPUT, "y", STATOR_DTYPE_I64, 2, batch);
    stator_value_t embed = port(g, STATOR_PARAMETER, "embed", STATOR_DTYPE_F32, 2, table);
    stator_value_t head = port(g, STATOR_PARAMETER, "head", STATOR_DTYPE_F32, 2, table);
    stator_value_t h = add(g, "gather", 2, embed, x, "axis=0");
    h = add(g, "reshape", 1, h, 0, "shape=[8,8]");
    h = add(g, "matmul", 2, h, head, "transpose_b=true");
    return plan_of(g, h, add(g, "reshape", 1, y, 0, "shape=[8]"), "mean=true");
}

static stator_plan_t *plan_images(const char *attributes) {
    const int64_t images[] = {BATCH, 1, 2, 2}, weight[] = {CLASSES, 4};
    stator_graph_t *g = NULL;
    assert_done(stator_graph_create("images", &g));
    stator_value_t x = port(g, STATOR_INPUT, "x", STATOR_DTYPE_F32, 4, images);
    stator_value_t y = port(g, STATOR_INPUT, "y", STATOR_DTYPE_I64, 1, images);
    stator_value_t w = port(g, STATOR_PARAMETER, "w", STATOR_DTYPE_F32, 2, weight);
    stator_value_t h = add(g, "reshape", 1, x, 0, "shape=[2,4]");
    return plan_of(g, add(g, "matmul", 2, h, w, "transpose_b=true"), y, attributes);
}

static void write_shard(const char *path, uint32_t vocabulary) {
    uint32_t tokens[17];
    for (uint32_t i = 0; i < 17; i++) tokens[i] = i;
    assert_ok(tokens_write(path, tokens, 17, vocabulary));
}

static void shards_fit_the_vocabulary(void **state) {
    (void)state;
    stator_plan_t *plan = plan_tokens();
    stator_data_t *data = NULL;
    write_shard(scratch("large"), 62);
    write_shard(scratch("equal"), VOCABULARY);
    assert_refused(stator_data_tokens(plan, scratch("large"), 0, 0, &data),
                   "large' has vocabulary 62, the model 20");
    assert_null(data);
    assert_done(stator_data_tokens(plan, scratch("equal"), 0, 0, &data));
    /* 17 tokens make 4 windows of 4 */
    stator_progress_t progress = {.sample = 2, .n_samples = 4};
    int64_t epoch = 0, sample = 0;
    assert_int_equal(stator_data_samples(data), 4);
    assert_done(stator_data_resume(data, &progress));
    stator_data_position(data, &epoch, &sample);
    assert_int_equal(sample, 2);
    progress = (stator_progress_t){.sample = 1, .n_samples = 5};
    assert_refused(stator_data_resume(data, &progress), "data of 5 samples, this data has 4");
    stator_data_position(data, &epoch, &sample);
    assert_int_equal(sample, 2);
    progress.n_samples = 0; /* not known */
    assert_done(stator_data_resume(data, &progress));
    stator_data_destroy(data);
    char paths[512];
    snprintf(paths, sizeof paths, "%s,", scratch("equal"));
    assert_refused(stator_data_tokens(plan, paths, 0, 0, &data), "path 2 of 2 is an empty path");
    stator_plan_destroy(plan);
}

static void labels_are_classes(void **state) {
    (void)state;
    uint8_t images[16 + 3 * 4] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2};
    uint8_t labels[8 + 3] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 9, 0};
    const char *image_path = scratch("images"), *label_path = scratch("labels");
    spill(image_path, images, sizeof images);
    spill(label_path, labels, sizeof labels);
    stator_data_t *data = NULL;
    stator_plan_t *plan = plan_images("mean=true");
    assert_refused(stator_data_images(plan, image_path, label_path, 0, 1, 0, 0, &data),
                   "label 9 of sample 1 is no class, the model has 3");
    labels[9] = 1;
    spill(label_path, labels, sizeof labels);
    assert_done(stator_data_images(plan, image_path, label_path, 0, 1, 0, 0, &data));
    stator_data_destroy(data);
    stator_plan_destroy(plan);
    /* What the loss ignores needs no class. */
    labels[9] = 9;
    spill(label_path, labels, sizeof labels);
    plan = plan_images("mean=true, ignore_index=9");
    assert_done(stator_data_images(plan, image_path, label_path, 0, 1, 0, 0, &data));
    stator_data_destroy(data);
    stator_plan_destroy(plan);
}

static void put(stator_tensors_t *tensors, const char *name) {
    static int64_t tokens[BATCH * WINDOW];
    stator_tensor_t tensor = {.name = name,
                              .dtype = STATOR_DTYPE_I64,
                              .rank = 2,
                              .dims = {BATCH, WINDOW},
                              .data = tokens,
                              .bytes = sizeof tokens};
    assert_done(stator_tensors_add(tensors, &tensor));
}

static void maps_are_whole(void **state) {
    (void)state;
    stator_plan_t *plan = plan_tokens();
    stator_tensors_t *tensors = NULL;
    stator_data_t *data = NULL;
    assert_done(stator_tensors_create(&tensors));
    const char *names[] = {"x.0", "x.1", "x.3", "y.0", "y.2", "y.3", "z.0", "z.1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) put(tensors, names[i]);
    assert_refused(stator_data_tensors(plan, tensors, "x=x.*,y=y.*,x=x.0", &data),
                   "input 'x' is mapped twice");
    assert_refused(stator_data_tensors(plan, tensors, "x=,y=y.*", &data), "'x=' is not INPUT");
    assert_refused(stator_data_tensors(plan, tensors, "x=x.*,y=y.*", &data),
                   "input 'x' has a tensor numbered 1 ('x.1'), input 'y' has none");
    assert_refused(stator_data_tensors(plan, tensors, "x=y.*,y=x.*", &data),
                   "input 'y' has a tensor numbered 1 ('x.1'), input 'x' has none");
    assert_refused(stator_data_tensors(plan, tensors, "x=z.*,y=x.*", &data),
                   "input 'y' has a tensor numbered 3 ('x.3'), input 'x' has none");
    assert_done(stator_data_tensors(plan, tensors, "x=x.*,y=x.*", &data));
    assert_int_equal(stator_data_steps(data), 3);
    stator_data_destroy(data);
    assert_done(stator_data_tensors(plan, tensors, "x=x.*,y=z.0", &data));
    stator_data_destroy(data);
    stator_tensors_destroy(tensors);
    stator_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_fit_the_vocabulary),
        cmocka_unit_test(labels_are_classes),
        cmocka_unit_test(maps_are_whole),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

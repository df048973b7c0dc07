/* ResNet-18 and -50 as torchvision defines them (stride on the 3 × 3 convolution of a bottleneck),
 * and ResNet-8 for small images (3 × 3 stem without pooling, one basic block a stage, 16/32/64
 * channels). */
#include <stdio.h>

#include "import/model.h"
#include "ir/build.h"

typedef struct resnet {
    ir_build_t b;
    char prefix[64]; /* "layer1.0." */
} resnet_t;

typedef struct resnet_shape {
    int64_t depth, stem, n_stages, blocks[4], widths[4];
    bool bottleneck, large_images;
} resnet_shape_t;

static const resnet_shape_t shapes[] = {
    {8, 16, 3, {1, 1, 1, 0}, {16, 32, 64, 0}, false, false},
    {18, 64, 4, {2, 2, 2, 2}, {64, 128, 256, 512}, false, true},
    {50, 64, 4, {3, 4, 6, 3}, {64, 128, 256, 512}, true, true},
};

static ir_value_t state(resnet_t *m, bool parameter, const char *layer, const char *leaf,
                        ir_type_t type) {
    char name[128];
    snprintf(name, sizeof name, "%s%s.%s", m->prefix, layer, leaf);
    return parameter ? ir_b_parameter(&m->b, name, type) : ir_b_buffer(&m->b, name, type);
}

static int64_t channels_of(const resnet_t *m, ir_value_t x) {
    return ir_b_type(&m->b, x)->dims[1];
}

static ir_value_t conv(resnet_t *m, const char *name, ir_value_t x, int64_t out, int64_t kernel,
                       int64_t stride) {
    int64_t pad = kernel / 2;
    ir_type_t type = ir_type_make(IR_F32, 4, (int64_t[]){out, channels_of(m, x), kernel, kernel});
    ir_value_t w = state(m, true, name, "weight", type);
    return ir_b_node(&m->b, IR_OP_CONV, 2, (ir_value_t[]){x, w}, 4,
                     (ir_arg_t[]){IR_ARG_INTS("strides", ((int64_t[]){stride, stride}), 2),
                                  IR_ARG_INTS("pads_low", ((int64_t[]){pad, pad}), 2),
                                  IR_ARG_INTS("pads_high", ((int64_t[]){pad, pad}), 2),
                                  IR_ARG_INTS("dilations", ((int64_t[]){1, 1}), 2)});
}

static ir_value_t norm(resnet_t *m, const char *name, ir_value_t x) {
    int64_t channels = channels_of(m, x);
    ir_type_t type = ir_type_make(IR_F32, 1, &channels);
    ir_value_t w = state(m, true, name, "weight", type), bias = state(m, true, name, "bias", type);
    ir_value_t mean = state(m, false, name, "running_mean", type);
    ir_value_t var = state(m, false, name, "running_var", type);
    ir_value_t count = state(m, false, name, "num_batches_tracked", ir_type_scalar(IR_I64));
    ir_value_t y =
        ir_b_node(&m->b, IR_OP_BATCH_NORM, 5, (ir_value_t[]){x, w, bias, mean, var}, 0, NULL);
    ir_b_update(&m->b, mean, y + 3);
    ir_b_update(&m->b, var, y + 4);
    ir_b_update(&m->b, count, ir_b_add_scalar(&m->b, count, 1));
    return y;
}

static ir_value_t relu(resnet_t *m, ir_value_t x) {
    return ir_b_unary(&m->b, IR_OP_RELU, x);
}

static ir_value_t block(resnet_t *m, bool bottleneck, ir_value_t x, int64_t width, int64_t stride) {
    int64_t out = bottleneck ? 4 * width : width;
    ir_value_t y;
    if (bottleneck) {
        y = relu(m, norm(m, "bn1", conv(m, "conv1", x, width, 1, 1)));
        y = relu(m, norm(m, "bn2", conv(m, "conv2", y, width, 3, stride)));
        y = norm(m, "bn3", conv(m, "conv3", y, out, 1, 1));
    } else {
        y = relu(m, norm(m, "bn1", conv(m, "conv1", x, width, 3, stride)));
        y = norm(m, "bn2", conv(m, "conv2", y, width, 3, 1));
    }
    if (stride != 1 || channels_of(m, x) != out)
        x = norm(m, "downsample.1", conv(m, "downsample.0", x, out, 1, stride));
    return relu(m, ir_b_binary(&m->b, IR_OP_ADD, y, x));
}

static ir_value_t stem(resnet_t *m, const resnet_shape_t *shape, ir_value_t x) {
    if (!shape->large_images)
        return relu(m, norm(m, "bn1", conv(m, "conv1", x, shape->stem, 3, 1)));
    x = relu(m, norm(m, "bn1", conv(m, "conv1", x, shape->stem, 7, 2)));
    int64_t two[] = {2, 2}, one[] = {1, 1}, three[] = {3, 3};
    return ir_b_node(&m->b, IR_OP_MAX_POOL, 1, &x, 5,
                     (ir_arg_t[]){IR_ARG_INTS("kernel", three, 2), IR_ARG_INTS("strides", two, 2),
                                  IR_ARG_INTS("pads_low", one, 2), IR_ARG_INTS("pads_high", one, 2),
                                  IR_ARG_INTS("dilations", one, 2)});
}

static void loss(resnet_t *m, ir_value_t logits, ir_value_t y, double smoothing) {
    ir_value_t loss_value = ir_b_node(&m->b, IR_OP_CROSS_ENTROPY, 2, (ir_value_t[]){logits, y}, 1,
                                      (ir_arg_t[]){IR_ARG_FLOAT("smoothing", smoothing)});
    ir_b_output(&m->b, "loss", loss_value);
    ir_value_t best =
        ir_b_node(&m->b, IR_OP_ARGMAX, 1, &logits, 1, (ir_arg_t[]){IR_ARG_INT("axis", 1)});
    ir_value_t right = ir_b_cast(&m->b, ir_b_binary(&m->b, IR_OP_EQ, best, y), IR_I64);
    ir_b_output(&m->b, "correct", ir_b_reduce(&m->b, IR_OP_REDUCE_SUM, right, 0, NULL, false));
}

st_status_t model_resnet(const model_resnet_config_t *config, int64_t batch, bool with_loss,
                         ir_graph_t **out_graph) {
    *out_graph = NULL;
    const resnet_shape_t *shape = NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shapes[i].depth == config->depth) shape = &shapes[i];
    if (!shape)
        return FAIL(ST_INVALID, "ResNet depth %lld; 8, 18 and 50 are known",
                    (long long)config->depth);
    if (batch < 1 || config->classes < 1 || config->channels < 1 || config->image < 8)
        return FAIL(
            ST_INVALID,
            "options 'batch' (%lld), 'classes' (%lld) and 'channels' (%lld) must be 1 or more, "
            "'image' (%lld) 8 or more",
            (long long)batch, (long long)config->classes, (long long)config->channels,
            (long long)config->image);
    ir_graph_t *graph = NULL;
    TRY(ir_graph_create("resnet", &graph));
    resnet_t m = {.b = {.graph = graph}};
    int64_t dims[] = {batch, config->channels, config->image, config->image};
    ir_value_t x = ir_b_input(&m.b, "x", ir_type_make(IR_F32, 4, dims), 0);
    ir_value_t y = with_loss ? ir_b_input(&m.b, "y", ir_type_make(IR_I64, 1, &batch), 0) : IR_NONE;
    ir_value_t h = stem(&m, shape, x);
    for (int64_t stage = 0; stage < shape->n_stages; stage++)
        for (int64_t i = 0; i < shape->blocks[stage]; i++) {
            snprintf(m.prefix, sizeof m.prefix, "layer%lld.%lld.", (long long)stage + 1,
                     (long long)i);
            h = block(&m, shape->bottleneck, h, shape->widths[stage], stage > 0 && i == 0 ? 2 : 1);
        }
    m.prefix[0] = '\0';
    h = ir_b_reduce(&m.b, IR_OP_REDUCE_MEAN, h, 2, (int64_t[]){2, 3}, false);
    int64_t features = channels_of(&m, h);
    ir_value_t w = state(&m, true, "fc", "weight",
                         ir_type_make(IR_F32, 2, (int64_t[]){config->classes, features}));
    ir_value_t bias = state(&m, true, "fc", "bias", ir_type_make(IR_F32, 1, &config->classes));
    ir_value_t logits = ir_b_binary(&m.b, IR_OP_ADD, ir_b_matmul(&m.b, h, w, false, true), bias);
    if (with_loss)
        loss(&m, logits, y, config->smoothing);
    else
        ir_b_output(&m.b, "logits", logits);
    if (m.b.status != ST_OK) {
        ir_graph_destroy(graph);
        return m.b.status;
    }
    *out_graph = graph;
    return ST_OK;
}

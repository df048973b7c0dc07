/* Convolutions by cuDNN: forward and both gradients, 1 to 3 spatial dims (one is given as two). */
#include "ir/window.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dnn.h"
#include "kernels/gpu_rules.h"

/* Operands in the library's roles: x, w, y of the forward convolution. */
typedef struct roles {
    dnn_conv_kind_t kind;
    const ir_type_t *type[3];
    const void *address[3];
} roles_t;

static roles_t roles_of(const kern_problem_t *p, const kern_call_t *call) {
    static const struct {
        ir_op_t op;
        dnn_conv_kind_t kind;
        int from[3]; /* input, or -1: the output */
    } rows[] = {{IR_OP_CONV, DNN_CONV, {0, 1, -1}},
                {IR_OP_CONV_GRAD_INPUT, DNN_CONV_GRAD_INPUT, {-1, 1, 0}},
                {IR_OP_CONV_GRAD_WEIGHT, DNN_CONV_GRAD_WEIGHT, {0, -1, 1}}};
    roles_t roles = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].op != p->op) continue;
        roles.kind = rows[i].kind;
        for (int k = 0; k < 3; k++) {
            int from = rows[i].from[k];
            roles.type[k] = from < 0 ? &p->out[0] : &p->in[from];
            if (call) roles.address[k] = from < 0 ? call->out[0] : call->in[from];
        }
    }
    return roles;
}

/* Dims and strides of a dense tensor, channels first or last, with two or three spatial dims. */
static dnn_tensor_t add_tensor(dnn_t *dnn, const ir_type_t *stored, bool last,
                               const void *address) {
    const ir_type_t plain = ir_channels_first(stored, last), *type = &plain;
    cudnnDataType_t data_type;
    int64_t dims[5], strides[5];
    int32_t rank = 0;
    dnn_type(type->dtype, &data_type);
    for (int32_t i = 0; i < type->rank; i++) {
        if (i == 2 && type->rank == 3) dims[rank++] = 1;
        dims[rank++] = type->dims[i];
    }
    int64_t stride = last ? dims[1] : 1;
    for (int32_t i = rank - 1; i >= 0; i--) {
        if (last && i == 1) {
            strides[i] = 1;
            continue;
        }
        strides[i] = stride;
        stride *= dims[i];
    }
    return dnn_tensor(dnn, data_type, rank, dims, strides, address);
}

static st_status_t build(const kern_call_t *call, dnn_t *dnn) {
    const kern_problem_t *p = call->problem;
    roles_t roles = roles_of(p, call);
    dnn_window_t window = {.spatial = roles.type[0]->rank - 2};
    int32_t lead = window.spatial == 1 ? 1 : 0; /* the dim that one spatial dim is given besides */
    for (int32_t d = 0; d < 3; d++) {
        window.stride[d] = window.dilation[d] = 1;
        window.low[d] = window.high[d] = 0;
    }
    for (int32_t d = 0; d < window.spatial; d++) {
        window.stride[lead + d] = kern_ints(p, "strides", (uint32_t)d, 1);
        window.dilation[lead + d] = kern_ints(p, "dilations", (uint32_t)d, 1);
        window.low[lead + d] = kern_ints(p, "pads_low", (uint32_t)d, 0);
        window.high[lead + d] = kern_ints(p, "pads_high", (uint32_t)d, 0);
    }
    window.spatial += lead;
    dnn_tensor_t tensors[3];
    for (int k = 0; k < 3; k++)
        tensors[k] =
            add_tensor(dnn, roles.type[k], kern_int(p, "channels_last") != 0, roles.address[k]);
    dnn_conv(dnn, roles.kind, &window, tensors[0], tensors[1], tensors[2]);
    const dnn_wish_t wish = dnn_wish(dnn, p, p->in[0].dtype == IR_F32, call->workspace_bytes);
    return dnn_plan(dnn, &wish, call->workspace);
}

static st_status_t conv_bind(kern_call_t *call) {
    return dnn_bind(call, build);
}
static st_status_t conv_warm(const kern_problem_t *problem, dev_stream_t *stream,
                             void **out_prepared) {
    *out_prepared = NULL;
    return dnn_warm(problem, stream, gpu_conv_workspace(problem, 1), build);
}
static st_status_t conv_check(const kern_problem_t *problem, const char *device) {
    return dnn_check(problem, device, gpu_conv_workspace(problem, 1), build);
}
static st_status_t conv_tune(kern_call_t *call, const kern_noise_t *noise) {
    return dnn_tune(call->prepared, noise);
}

static st_status_t conv_launch(const kern_call_t *call) {
    return dnn_launch(call->prepared);
}

#define CONV(op_, enumerator)                                        \
    static const kern_impl_t op_ = {.name = "cudnn.conv",            \
                                    .op = enumerator,                \
                                    .can_run = gpu_conv_can_run,     \
                                    .workspace = gpu_conv_workspace, \
                                    .warm = conv_warm,               \
                                    .bind = conv_bind,               \
                                    .check = conv_check,             \
                                    .tune = conv_tune,               \
                                    .release = dnn_release,          \
                                    .launch = conv_launch};
CONV(conv, IR_OP_CONV)
CONV(conv_grad_input, IR_OP_CONV_GRAD_INPUT)
CONV(conv_grad_weight, IR_OP_CONV_GRAD_WEIGHT)
kern_cuda_array_t kern_cuda_conv = {&conv, &conv_grad_input, &conv_grad_weight, NULL};

/* The table of our own kernels: each fills a plain struct and launches (own.h). */
#include "kernels/cuda/own.h"

#include <string.h>

#include "ir/convert.h"
#include "ir/learning_rate.h"
#include "kernels/cuda/cuda.h"
#include "kernels/gpu_rules.h"

static own_tensor_t in_tensor(const kern_call_t *call, uint32_t j) {
    return (own_tensor_t){(void *)(uintptr_t)call->in[j], (int32_t)call->problem->in[j].dtype};
}
static own_tensor_t out_tensor(const kern_call_t *call, uint32_t k) {
    return (own_tensor_t){call->out[k], (int32_t)call->problem->out[k].dtype};
}
static own_split_t split_at(const kern_problem_t *problem, const ir_type_t *type) {
    kern_split_t s = kern_split_axis(problem, type);
    return (own_split_t){s.outer, s.n, s.inner};
}
static own_fault_t fault_of(const kern_call_t *call) {
    return (own_fault_t){call->stream->device_fault, call->node};
}
static cudaStream_t stream_of(const kern_call_t *call) {
    return call->stream->stream;
}

static st_status_t concat(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    kern_split_t out = kern_split_axis(p, &p->out[0]);
    int64_t width = (int64_t)ir_dtype_bytes(p->out[0].dtype) * out.inner, begin = 0;
    for (uint32_t j = 0; j < p->n_in; j++) {
        int64_t n = p->in[j].dims[out.axis];
        own_concat_t a = {call->in[j], call->out[0],  out.outer,
                          n * width,   out.n * width, begin * width};
        CUDA_TRY(own_concat(&a, stream_of(call)));
        begin += n;
    }
    return ST_OK;
}

static st_status_t pad(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    const ir_type_t *x = &p->in[0];
    own_pad_t a = {.in = call->in[0],
                   .out = call->out[0],
                   .rank = x->rank,
                   .width = (int32_t)ir_dtype_bytes(x->dtype)};
    for (int32_t d = 0; d < x->rank; d++) {
        a.in_dims[d] = x->dims[d];
        a.out_dims[d] = p->out[0].dims[d];
        a.low[d] = kern_ints(p, "low", (uint32_t)d, 0);
    }
    ir_element_store(x->dtype, a.value, 0, kern_float(p, "value"));
    CUDA_TRY(own_pad(&a, stream_of(call)));
    return ST_OK;
}

static own_nd_t nd_of(const kern_call_t *call, const ir_type_t *table) {
    const ir_type_t *index = &call->problem->in[1];
    own_nd_t a = {.index = in_tensor(call, 1),
                  .n = 1,
                  .k = index->dims[index->rank - 1],
                  .row = 1,
                  .table_rows = 1,
                  .fault = fault_of(call)};
    for (int32_t d = 0; d + 1 < index->rank; d++) a.n *= index->dims[d];
    kern_strides(table, a.strides);
    for (int32_t d = 0; d < table->rank; d++) {
        a.dims[d] = table->dims[d];
        *(d < a.k ? &a.table_rows : &a.row) *= table->dims[d];
    }
    return a;
}

static st_status_t gather_nd(const kern_call_t *call) {
    own_nd_t a = nd_of(call, &call->problem->in[0]);
    a.table = in_tensor(call, 0);
    a.rows = out_tensor(call, 0);
    CUDA_TRY(own_gather_nd(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t scatter_nd_add(const kern_call_t *call) {
    own_nd_t a = nd_of(call, &call->problem->out[0]);
    a.table = out_tensor(call, 0);
    a.rows = in_tensor(call, 0);
    CUDA_TRY(own_scatter_nd_add(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t scatter_add(const kern_call_t *call) {
    own_scatter_t a = {.updates = in_tensor(call, 0),
                       .index = in_tensor(call, 1),
                       .out = out_tensor(call, 0),
                       .plan = gpu_scatter_plan(call->problem),
                       .workspace = call->workspace,
                       .fault = fault_of(call)};
    CUDA_TRY(own_scatter_add(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t scatter_along_add(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_along_t a = {.updates = in_tensor(call, 0),
                     .index = in_tensor(call, 1),
                     .out = out_tensor(call, 0),
                     .rank = p->out[0].rank,
                     .axis = (int32_t)kern_int(p, "axis"),
                     .out_bytes = ir_type_bytes(&p->out[0]),
                     .fault = fault_of(call)};
    for (int32_t d = 0; d < a.rank; d++) {
        a.in_dims[d] = p->in[0].dims[d];
        a.out_dims[d] = p->out[0].dims[d];
    }
    CUDA_TRY(own_scatter_along_add(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t cumsum(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_line_t a = {in_tensor(call, 0), out_tensor(call, 0), split_at(p, &p->in[0]),
                    kern_int(p, "exclusive") != 0, kern_int(p, "reverse") != 0};
    CUDA_TRY(own_cumsum(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t argmax(const kern_call_t *call) {
    own_line_t a = {in_tensor(call, 0), out_tensor(call, 0),
                    split_at(call->problem, &call->problem->in[0]), false, false};
    CUDA_TRY(own_argmax(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t rope(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    const ir_type_t *x = &p->in[0];
    const bool rows_first = kern_int(p, "rows_first") != 0;
    own_rope_t a = {.x = in_tensor(call, 0),
                    .cosine = in_tensor(call, 1),
                    .sine = in_tensor(call, 2),
                    .out = out_tensor(call, 0),
                    .rows = x->dims[0] * x->dims[1] * x->dims[2],
                    .heads = rows_first ? x->dims[2] : 1,
                    .m = x->dims[rows_first ? 1 : 2],
                    .d = x->dims[3],
                    .interleaved = kern_int(p, "interleaved") != 0,
                    .inverse = kern_int(p, "inverse") != 0};
    CUDA_TRY(own_rope(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t lr_schedule(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    ir_rate_kind_t kind;
    TRY(ir_rate_kind_parse(kern_attr(p, "kind")->s, &kind));
    own_rate_t a = {.step = call->in[0],
                    .out = call->out[0],
                    .kind = (int32_t)kind,
                    .base = kern_float(p, "base"),
                    .min = kern_float(p, "min"),
                    .warmup = kern_int(p, "warmup"),
                    .total = kern_int(p, "total")};
    CUDA_TRY(own_lr_schedule(&a, stream_of(call)));
    return ST_OK;
}

/* ---- windows ---- */

static own_window_t window_of(const kern_window_t *w) {
    own_window_t out = {.last = w->last,
                        .n = w->n,
                        .c = w->c,
                        .o = w->o,
                        .groups = w->groups,
                        .in_size = w->in_size,
                        .out_size = w->out_size,
                        .kernel_size = w->kernel_size};
    for (int d = 0; d < 3; d++) {
        out.in[d] = w->in[d], out.out[d] = w->out[d], out.kernel[d] = w->kernel[d];
        out.stride[d] = w->stride[d], out.dilation[d] = w->dilation[d];
        out.low[d] = w->low[d], out.high[d] = w->high[d];
    }
    return out;
}

static own_window_t pool_window(const kern_problem_t *p, const ir_type_t *x, const ir_type_t *y) {
    kern_window_t w = kern_pool_window(p, x, y);
    return window_of(&w);
}

static st_status_t max_pool(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_pool_t a = {in_tensor(call, 0), out_tensor(call, 0), out_tensor(call, 1),
                    pool_window(p, &p->in[0], &p->out[0]), false};
    CUDA_TRY(own_pool_vectors(&a) ? own_max_pool_last(&a, stream_of(call))
                                  : own_max_pool(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t max_pool_grad(const kern_call_t *call) {
    const kern_window_t w = kern_unpool_window(call->problem);
    own_pool_t a = {.x = out_tensor(call, 0),
                    .y = in_tensor(call, 0),
                    .index = in_tensor(call, 1),
                    .window = window_of(&w)};
    CUDA_TRY(w.kernel[0] > 0 && own_pool_vectors(&a) ? own_max_pool_grad_last(&a, stream_of(call))
                                                     : own_max_pool_grad(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t avg_pool(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_pool_t a = {.x = in_tensor(call, 0),
                    .y = out_tensor(call, 0),
                    .window = pool_window(p, &p->in[0], &p->out[0]),
                    .count_pad = kern_int(p, "count_pad") != 0};
    CUDA_TRY(own_avg_pool(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t avg_pool_grad(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_pool_t a = {.x = out_tensor(call, 0),
                    .y = in_tensor(call, 0),
                    .window = pool_window(p, &p->out[0], &p->in[0]),
                    .count_pad = kern_int(p, "count_pad") != 0};
    CUDA_TRY(own_avg_pool_grad(&a, stream_of(call)));
    return ST_OK;
}

static own_window_t conv_window(const kern_problem_t *p, const ir_type_t *x, const ir_type_t *w,
                                const ir_type_t *y) {
    kern_window_t window = kern_conv_window(p, x, w, y);
    return window_of(&window);
}

static st_status_t conv(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_conv_t a = {.x = in_tensor(call, 0),
                    .w = in_tensor(call, 1),
                    .y = out_tensor(call, 0),
                    .window = conv_window(p, &p->in[0], &p->in[1], &p->out[0])};
    if (p->n_in > 2) a.bias = in_tensor(call, 2);
    CUDA_TRY(own_conv(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t conv_grad_input(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_conv_t a = {.x = out_tensor(call, 0),
                    .w = in_tensor(call, 1),
                    .y = in_tensor(call, 0),
                    .window = conv_window(p, &p->out[0], &p->in[1], &p->in[0])};
    CUDA_TRY(own_conv_grad_input(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t conv_grad_weight(const kern_call_t *call) {
    const kern_problem_t *p = call->problem;
    own_conv_t a = {.x = in_tensor(call, 0),
                    .w = out_tensor(call, 0),
                    .y = in_tensor(call, 1),
                    .window = conv_window(p, &p->in[0], &p->out[0], &p->in[1])};
    CUDA_TRY(own_conv_grad_weight(&a, stream_of(call)));
    return ST_OK;
}

/* ---- attention ---- */

static own_attention_t attention_of(const kern_call_t *call, uint32_t first, uint32_t n_fixed) {
    kern_attention_t s = kern_attention_of(call->problem, first, n_fixed);
    own_attention_t a = {.q = in_tensor(call, first),
                         .k = in_tensor(call, first + 1),
                         .v = in_tensor(call, first + 2),
                         .b = s.b,
                         .h = s.h,
                         .g = s.g,
                         .m = s.m,
                         .s = s.s,
                         .d = s.d,
                         .e = s.e,
                         .window = s.window,
                         .offset = s.offset,
                         .causal = s.causal,
                         .has_mask = s.mask != NULL,
                         .rows_first = s.rows_first,
                         .scale = s.scale};
    if (s.mask) a.mask = in_tensor(call, n_fixed);
    for (int i = 0; i < 4; i++) a.mask_stride[i] = s.mask_stride[i];
    return a;
}

static st_status_t attention(const kern_call_t *call) {
    own_attention_t a = attention_of(call, 0, 3);
    a.o = out_tensor(call, 0);
    a.lse = out_tensor(call, 1);
    CUDA_TRY(own_attention(&a, stream_of(call)));
    return ST_OK;
}

static st_status_t attention_grad(const kern_call_t *call) {
    own_attention_t a = attention_of(call, 1, 6);
    a.d_o = in_tensor(call, 0);
    a.o = in_tensor(call, 4);
    a.lse = in_tensor(call, 5);
    a.dq = out_tensor(call, 0);
    a.dk = out_tensor(call, 1);
    a.dv = out_tensor(call, 2);
    int64_t first, last;
    const kern_attention_t s = kern_attention_of(call->problem, 1, 6);
    kern_attention_span(&s, 0, s.m, &first, &last);
    for (uint32_t k = 0; first == last && k < 3; k++)
        CUDA_TRY(cudaMemsetAsync(call->out[k], 0, ir_type_bytes(&call->problem->out[k]),
                                 stream_of(call)));
    if (first < last) CUDA_TRY(own_attention_grad(&a, stream_of(call)));
    return ST_OK;
}

#define OWN(function, enumerator)                \
    static const kern_impl_t impl_##function = { \
        .name = "own." #function, .op = enumerator, .launch = function};
OWN(concat, IR_OP_CONCAT)
OWN(pad, IR_OP_PAD)
OWN(gather_nd, IR_OP_GATHER_ND)
OWN(scatter_nd_add, IR_OP_SCATTER_ND_ADD)
OWN(scatter_along_add, IR_OP_SCATTER_ALONG_ADD)
OWN(cumsum, IR_OP_CUMSUM)
OWN(argmax, IR_OP_ARGMAX)
OWN(rope, IR_OP_ROPE)
OWN(lr_schedule, IR_OP_LR_SCHEDULE)
OWN(max_pool, IR_OP_MAX_POOL)
OWN(max_pool_grad, IR_OP_MAX_POOL_GRAD)
OWN(avg_pool, IR_OP_AVG_POOL)
OWN(avg_pool_grad, IR_OP_AVG_POOL_GRAD)
OWN(conv, IR_OP_CONV)
OWN(conv_grad_input, IR_OP_CONV_GRAD_INPUT)
OWN(conv_grad_weight, IR_OP_CONV_GRAD_WEIGHT)
OWN(attention, IR_OP_ATTENTION)
OWN(attention_grad, IR_OP_ATTENTION_GRAD)
static const kern_impl_t impl_scatter_add = {.name = "own.scatter_add",
                                             .op = IR_OP_SCATTER_ADD,
                                             .can_run = gpu_scatter_can_run,
                                             .workspace = gpu_scatter_workspace,
                                             .launch = scatter_add};

kern_cuda_array_t kern_cuda_own = {&impl_concat,
                                   &impl_pad,
                                   &impl_gather_nd,
                                   &impl_scatter_nd_add,
                                   &impl_scatter_add,
                                   &impl_scatter_along_add,
                                   &impl_cumsum,
                                   &impl_argmax,
                                   &impl_rope,
                                   &impl_lr_schedule,
                                   &impl_max_pool,
                                   &impl_max_pool_grad,
                                   &impl_avg_pool,
                                   &impl_avg_pool_grad,
                                   &impl_conv,
                                   &impl_conv_grad_input,
                                   &impl_conv_grad_weight,
                                   &impl_attention,
                                   &impl_attention_grad,
                                   NULL};

/* Reference kernels of the optimizers and the learning rate. */
#include <math.h>

#include "ir/learning_rate.h"
#include "kernels/reference/reference.h"

static st_status_t sgd(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    double lr = ref_get(call, 2, 0), scale = ref_get(call, 3, 0);
    double momentum = kern_float(problem, "momentum"), dampening = kern_float(problem, "dampening");
    double decay = kern_float(problem, "weight_decay");
    bool nesterov = kern_int(problem, "nesterov") != 0, buffered = momentum != 0;
    uint32_t apply = buffered ? 5 : 4;
    int64_t n = ref_elements_in(call, 0);
    bool skip = problem->n_in > apply && !ref_get_int(call, apply, 0);
    for (int64_t i = 0; skip && i < n; i++) {
        ref_put(call, 0, i, ref_get(call, 0, i));
        if (buffered) ref_put(call, 1, i, ref_get(call, 4, i));
    }
    for (int64_t i = 0; !skip && i < n; i++) {
        double p = ref_get(call, 0, i), g = ref_get(call, 1, i) * scale + decay * p;
        if (buffered) {
            double buffer = momentum * ref_get(call, 4, i) + (1 - dampening) * g;
            ref_put(call, 1, i, buffer);
            g = nesterov ? g + momentum * buffer : buffer;
        }
        ref_put(call, 0, i, p - lr * g);
    }
    if (!buffered) ref_put(call, 1, 0, 0);
    return ST_OK;
}

static st_status_t adamw(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    double lr = ref_get(call, 4, 0), step = ref_get(call, 5, 0), scale = ref_get(call, 6, 0);
    double beta1 = kern_float(problem, "beta1"), beta2 = kern_float(problem, "beta2");
    double eps = kern_float(problem, "eps"), decay = kern_float(problem, "weight_decay");
    bool decoupled = kern_int(problem, "decoupled") != 0;
    double correct1 = 1 - pow(beta1, step), correct2 = 1 - pow(beta2, step);
    int64_t n = ref_elements_in(call, 0);
    bool skip = problem->n_in > 7 && !ref_get_int(call, 7, 0);
    static const uint32_t kept[3] = {0, 2, 3};
    for (int64_t i = 0; skip && i < n; i++)
        for (uint32_t k = 0; k < 3; k++) ref_put(call, k, i, ref_get(call, kept[k], i));
    for (int64_t i = 0; !skip && i < n; i++) {
        double p = ref_get(call, 0, i), g = ref_get(call, 1, i) * scale;
        if (decoupled)
            p -= lr * decay * p;
        else
            g += decay * p;
        double m = beta1 * ref_get(call, 2, i) + (1 - beta1) * g;
        double v = beta2 * ref_get(call, 3, i) + (1 - beta2) * g * g;
        ref_put(call, 1, i, m);
        ref_put(call, 2, i, v);
        ref_put(call, 0, i, p - lr * (m / correct1) / (sqrt(v / correct2) + eps));
    }
    return ST_OK;
}

static st_status_t lr_schedule(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    ir_rate_t rate = {.base = kern_float(problem, "base"),
                      .min = kern_float(problem, "min"),
                      .warmup = kern_int(problem, "warmup"),
                      .total = kern_int(problem, "total")};
    TRY(ir_rate_kind_parse(kern_attr(problem, "kind")->s, &rate.kind));
    ref_put(call, 0, 0, ir_rate_at(&rate, ref_get_int(call, 0, 0)));
    return ST_OK;
}

REF_IMPL(SGD, sgd, sgd)
REF_IMPL(ADAMW, adamw, adamw)
REF_IMPL(LR_SCHEDULE, lr_schedule, lr_schedule)

extern ref_array_t kern_reference_state;
ref_array_t kern_reference_state = {&ref_impl_sgd, &ref_impl_adamw, &ref_impl_lr_schedule, NULL};

/* Learning rate schedules. See learning_rate.h. */
#include "ir/learning_rate.h"

#include <math.h>
#include <string.h>

static const char *const kinds[] = {
    [IR_RATE_CONSTANT] = "constant", [IR_RATE_LINEAR] = "linear", [IR_RATE_COSINE] = "cosine"};

st_status_t ir_rate_kind_parse(const char *text, ir_rate_kind_t *out_kind) {
    *out_kind = IR_RATE_CONSTANT;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i], text) == 0) {
            *out_kind = (ir_rate_kind_t)i;
            return ST_OK;
        }
    return FAIL(ST_INVALID, "schedule '%s' is not known: constant, linear or cosine", text);
}

st_status_t ir_rate_check(const ir_rate_t *rate) {
    if (!(rate->base >= 0 && isfinite(rate->base)) || !(rate->min >= 0 && isfinite(rate->min)))
        return FAIL(ST_INVALID, "learning rates are %g and min %g: finite numbers ≥ 0 are needed",
                    rate->base, rate->min);
    if (rate->warmup < 0) return FAIL(ST_INVALID, "warm-up is %lld steps", (long long)rate->warmup);
    if (rate->kind != IR_RATE_CONSTANT && rate->total <= rate->warmup)
        return FAIL(
            ST_INVALID,
            "the %s schedule has %lld steps in total and %lld of warm-up: more steps in total "
            "are needed",
            kinds[rate->kind], (long long)rate->total, (long long)rate->warmup);
    return ST_OK;
}

double ir_rate_at(const ir_rate_t *rate, int64_t step) {
    static const double pi = 3.14159265358979323846;
    if (step <= rate->warmup) return rate->base * (double)step / (double)rate->warmup;
    if (rate->kind == IR_RATE_CONSTANT) return rate->base;
    double t = (double)(step - 1 - rate->warmup) / (double)(rate->total - rate->warmup);
    if (t >= 1) return rate->min;
    if (rate->kind == IR_RATE_LINEAR) return rate->base + (rate->min - rate->base) * t;
    return rate->min + (rate->base - rate->min) * (1 + cos(pi * t)) / 2;
}

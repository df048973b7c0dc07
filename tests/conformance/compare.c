/* Comparison with the oracle (cases.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cases.h"
#include "ir/convert.h"

static double rounding(ir_dtype_t dtype) {
    return dtype == IR_F64    ? 0x1p-52
           : dtype == IR_F32  ? 0x1p-23
           : dtype == IR_F16  ? 0x1p-10
           : dtype == IR_BF16 ? 0x1p-7
                              : 0;
}

void conf_compare(const conf_built_t *built, const char *impl, uint32_t k, const void *got,
                  const double *expected) {
    const ir_type_t *type = &built->out[k];
    int64_t n = ir_type_elements(type), most_in = 1;
    for (uint32_t j = 0; j < built->problem.n_in; j++) {
        int64_t elements = ir_type_elements(&built->in[j]);
        if (elements > most_in) most_in = elements;
    }
    double terms = n ? fmax(1, (double)most_in / (double)n) : 1, largest = 1;
    terms = fmax(terms, built->terms);
    for (int64_t i = 0; i < n; i++)
        if (isfinite(expected[i])) largest = fmax(largest, fabs(expected[i]));
    double unit = rounding(type->dtype) * (8 + 2 * sqrt(terms));
    for (int64_t i = 0; i < n; i++) {
        double e = expected[i], g = ir_element_load(type->dtype, got, (size_t)i);
        if (!ir_dtype_is_float(type->dtype)) { /* what the type can hold of an integer */
            int64_t held;
            unsigned char element[8] = {0};
            ir_element_store_i64(type->dtype, element, 0, (int64_t)e);
            held = ir_element_load_i64(type->dtype, element, 0);
            if (ir_element_load_i64(type->dtype, got, (size_t)i) != held)
                fail_msg("%s, %s: output %u[%lld] is %g, %lld expected", built->name, impl, k,
                         (long long)i, g, (long long)held);
            continue;
        }
        double scale = terms > 1 ? largest : fmax(1, fabs(e));
        bool same = e == g || fabs(e - g) <= unit * scale; /* false for NaN on either side */
        if (!same && type->dtype == IR_F16 && isinf(g) && fabs(e) > 65000) same = true;
        if (!same)
            fail_msg("%s, %s: output %u[%lld] is %.17g, %.17g expected (off by %g, %g allowed)",
                     built->name, impl, k, (long long)i, g, e, fabs(e - g), unit * scale);
    }
}

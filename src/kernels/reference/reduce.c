/* Reference kernels of the reductions. */
#include <math.h>

#include "kernels/reference/reference.h"

typedef struct reduce_row {
    ir_op_t op;
    double start;
    double (*real)(double, double);
    int64_t (*integer)(int64_t, int64_t);
    bool from_first; /* start with the first element: maximum and minimum */
} reduce_row_t;

static double f_add(double a, double b) {
    return a + b;
}
static int64_t i_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static double f_mul(double a, double b) {
    return a * b;
}
static int64_t i_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
static double f_max(double a, double b) {
    return isnan(a) ? a : isnan(b) || b > a ? b : a;
}
static int64_t i_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static double f_min(double a, double b) {
    return isnan(a) ? a : isnan(b) || b < a ? b : a;
}
static int64_t i_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static const reduce_row_t reduce_rows[] = {
    {IR_OP_REDUCE_SUM, 0, f_add, i_add, false},
    {IR_OP_REDUCE_MEAN, 0, f_add, i_add, false},
    {IR_OP_REDUCE_PROD, 1, f_mul, i_mul, false},
    {IR_OP_REDUCE_MAX, -INFINITY, f_max, i_max, true},
    {IR_OP_REDUCE_MIN, INFINITY, f_min, i_min, true},
};

/* The elements of x in two walks: over the kept dims, and for each of them over the reduced ones.
 */
static st_status_t reduce(const kern_call_t *call) {
    const kern_problem_t *problem = call->problem;
    const reduce_row_t *row = reduce_rows;
    while (row->op != problem->op) row++;
    const ir_type_t *x = &problem->in[0];
    bool reduced[IR_MAX_RANK], real = ref_is_float(call, 0);
    kern_reduced_dims(problem, reduced);
    int64_t strides[IR_MAX_RANK];
    kern_strides(x, strides);
    ir_type_t kept = {.dtype = x->dtype}, inner = {.dtype = x->dtype};
    int64_t kept_strides[IR_MAX_RANK] = {0}, inner_strides[IR_MAX_RANK] = {0};
    for (int32_t d = 0; d < x->rank; d++) {
        ir_type_t *to = reduced[d] ? &inner : &kept;
        (reduced[d] ? inner_strides : kept_strides)[to->rank] = strides[d];
        to->dims[to->rank++] = x->dims[d];
    }
    int64_t n = ir_type_elements(&kept), n_inner = ir_type_elements(&inner);
    ref_walk_t outer_walk = ref_walk_over(&kept, 1);
    for (int32_t d = 0; d < kept.rank; d++) outer_walk.stride[0][d] = kept_strides[d];
    for (int64_t i = 0; i < n; i++, ref_walk_next(&outer_walk)) {
        ref_walk_t walk = ref_walk_over(&inner, 1);
        for (int32_t d = 0; d < inner.rank; d++) walk.stride[0][d] = inner_strides[d];
        double value = row->start;
        int64_t integer = (int64_t)(row->from_first ? 0 : row->start);
        for (int64_t k = 0; k < n_inner; k++, ref_walk_next(&walk)) {
            int64_t at = outer_walk.at[0] + walk.at[0];
            if (real)
                value = row->from_first && k == 0 ? ref_get(call, 0, at)
                                                  : row->real(value, ref_get(call, 0, at));
            else
                integer = row->from_first && k == 0
                              ? ref_get_int(call, 0, at)
                              : row->integer(integer, ref_get_int(call, 0, at));
        }
        if (real)
            ref_put(call, 0, i, row->op == IR_OP_REDUCE_MEAN ? value / (double)n_inner : value);
        else
            ref_put_int(call, 0, i, integer);
    }
    return ST_OK;
}

static st_status_t argmax(const kern_call_t *call) {
    kern_split_t x = kern_split_axis(call->problem, &call->problem->in[0]);
    bool real = ref_is_float(call, 0);
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t k = 0; k < x.inner; k++) {
            int64_t best = 0;
            for (int64_t i = 1; i < x.n; i++) {
                int64_t at = (o * x.n + i) * x.inner + k, old = (o * x.n + best) * x.inner + k;
                bool better;
                if (real) {
                    double a = ref_get(call, 0, at), b = ref_get(call, 0, old);
                    better = !isnan(b) && (isnan(a) || a > b);
                } else {
                    better = ref_get_int(call, 0, at) > ref_get_int(call, 0, old);
                }
                if (better) best = i;
            }
            ref_put_int(call, 0, o * x.inner + k, best);
        }
    return ST_OK;
}

static st_status_t cumsum(const kern_call_t *call) {
    kern_split_t x = kern_split_axis(call->problem, &call->problem->in[0]);
    bool exclusive = kern_int(call->problem, "exclusive") != 0;
    bool reverse = kern_int(call->problem, "reverse") != 0, real = ref_is_float(call, 0);
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t k = 0; k < x.inner; k++) {
            double sum = 0;
            uint64_t integer = 0;
            for (int64_t j = 0; j < x.n; j++) {
                int64_t i = reverse ? x.n - 1 - j : j, at = (o * x.n + i) * x.inner + k;
                double before = sum;
                uint64_t integer_before = integer;
                if (real)
                    sum += ref_get(call, 0, at);
                else
                    integer += (uint64_t)ref_get_int(call, 0, at);
                if (real)
                    ref_put(call, 0, at, exclusive ? before : sum);
                else
                    ref_put_int(call, 0, at, (int64_t)(exclusive ? integer_before : integer));
            }
        }
    return ST_OK;
}

static st_status_t sum_squares(const kern_call_t *call) {
    double sum = 0;
    for (uint32_t j = 0; j < call->problem->n_in; j++) {
        int64_t n = ref_elements_in(call, j);
        for (int64_t i = 0; i < n; i++) {
            double x = ref_get(call, j, i);
            sum += x * x;
        }
    }
    ref_put(call, 0, 0, sum);
    return ST_OK;
}

REF_IMPL(REDUCE_SUM, reduce_sum, reduce)
REF_IMPL(REDUCE_MEAN, reduce_mean, reduce)
REF_IMPL(REDUCE_MAX, reduce_max, reduce)
REF_IMPL(REDUCE_MIN, reduce_min, reduce)
REF_IMPL(REDUCE_PROD, reduce_prod, reduce)
REF_IMPL(ARGMAX, argmax, argmax)
REF_IMPL(CUMSUM, cumsum, cumsum)
REF_IMPL(SUM_SQUARES, sum_squares, sum_squares)

extern ref_array_t kern_reference_reduce;
ref_array_t kern_reference_reduce = {
    &ref_impl_reduce_sum, &ref_impl_reduce_mean, &ref_impl_reduce_max,
    &ref_impl_reduce_min, &ref_impl_reduce_prod, &ref_impl_argmax,
    &ref_impl_cumsum,     &ref_impl_sum_squares, NULL};

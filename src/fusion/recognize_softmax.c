/* Softmax, log-softmax, and the mean or summed negative log-likelihood of class labels, which is
 * cross-entropy.
 *
 * Rounding: softmax and log-softmax as their chains, which subtract the maximum too. Cross-entropy
 * takes the sum of exponentials and the loss of a row in one kernel; its mean divides a sum.
 * Labels count from 0: a gather would also take -1 for the last class, which cross-entropy refuses.
 * A mean over no valid row is NaN in the chain and 0 in the op. log(softmax(x)) stays as it is: it
 * is infinite where log-softmax is not. */
#include "fusion/patterns.h"

static const match_definition_t definitions[] = {
    {"max", "?m:~?a:reduce_max(?x)"},
    {"exp", "?e:exp(sub(?x, <max>))"},
    {"sum", "~?b:reduce_sum(?e)"},
    {"shifted", "?d:sub(?x, <max>)"},
    {"log_sum", "~log(~?b:reduce_sum(exp(?d)))"},
    {"picked", "?g:gather_along(?l:log_softmax(?x), ~?y)"},
    {"nll", "~neg(~<picked>)"},
    {"valid", "ne(~?y, #ignored) | logical_not(eq(~?y, #ignored))"},
    {"safe", "select(~?k:<valid>, ~?y, ~0)"},
    {"nll_safe", "~neg(~?g:gather_along(?l:log_softmax(?x), ~<safe>))"},
    {"kept", "select(~?k:<valid>, <nll_safe>, 0)"},
    {"count", "~cast(~reduce_sum(~cast(~?k))) | ~reduce_sum(~cast(~?k))"},
    {0},
};

/* ---- softmax ---- */

/* The one axis of a reduction over x; keeps x's dims but for that one. */
static bool one_axis(const fuse_site_t *site, ir_value_t reduction, const ir_type_t *x,
                     int64_t *axis) {
    const ir_attr_t *axes = ir_node_attr(site_producer(site, reduction), "axes");
    if (axes->ints.n != 1 && !(axes->ints.n == 0 && x->rank == 1)) return false;
    int64_t own = axes->ints.n ? axes->ints.v[0] : 0;
    if (*axis >= 0 && *axis != own) return false;
    *axis = own;
    return true;
}

/* Whether a statistic meets x along `axis`: the dims of x with 1 there. */
static bool meets(const fuse_site_t *site, ir_value_t value, const ir_type_t *x, int64_t axis) {
    ir_type_t expected = *x;
    expected.dims[axis] = 1;
    return ir_dims_equal(site_type(site, value), &expected);
}

static st_status_t check_softmax(fuse_site_t *site, bool *out) {
    const match_t *m = &site->match;
    ir_value_t x = match_value(m, "x"), sum = match_value(m, "r"); /* 1 / sum, or the sum */
    if (sum == IR_NONE) sum = match_value(m, "t");
    const ir_type_t *type = site_type(site, x);
    int64_t axis = -1;
    *out = ir_type_equal(type, &site->type) && one_axis(site, match_value(m, "a"), type, &axis) &&
           one_axis(site, match_value(m, "b"), type, &axis) &&
           meets(site, match_value(m, "m"), type, axis) && meets(site, sum, type, axis);
    site->i[0] = axis;
    site_add(site, x);
    return ST_OK;
}

static ir_value_t build_softmax(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    return ir_b_node(b, IR_OP_SOFTMAX, 1, in, 1, (ir_arg_t[]){IR_ARG_INT("axis", site->i[0])});
}
static ir_value_t build_log_softmax(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    return ir_b_node(b, IR_OP_LOG_SOFTMAX, 1, in, 1, (ir_arg_t[]){IR_ARG_INT("axis", site->i[0])});
}

/* ---- cross-entropy ---- */

enum { MEAN = 0, ROWS = 1 };

/* Whether what is summed is one label's log-probability a row, over all rows. */
static bool picks_labels(fuse_site_t *site) {
    const match_t *m = &site->match;
    ir_value_t l = match_value(m, "l"), g = match_value(m, "g"), y = match_value(m, "y");
    const ir_type_t *logits = site_type(site, l), *labels = site_type(site, y);
    int32_t last = logits->rank - 1;
    if (last < 1 || ir_attr_int(site_producer(site, l), "axis") != last ||
        ir_attr_int(site_producer(site, g), "axis") != last || site->type.dtype != logits->dtype)
        return false;
    int64_t classes = logits->dims[last];
    if (classes < 1 || site_type(site, g)->dims[last] != 1) return false;
    int64_t n_rows = ir_type_elements(logits) / classes;
    site->i[ROWS] = n_rows;
    return ir_type_elements(labels) == n_rows && n_rows > 0 &&
           (labels->dtype == IR_I32 || labels->dtype == IR_I64);
}

/* The last reduction takes in all rows and leaves one number. */
static bool sums_all(const fuse_site_t *site, ir_value_t sum) {
    const ir_node_info_t *node = site_producer(site, sum);
    return ir_type_elements(site_type(site, sum)) == 1 &&
           ir_type_elements(site_type(site, node->inputs[0])) == site->i[ROWS] &&
           ir_type_elements(&site->type) == 1;
}

static st_status_t check_all_rows(fuse_site_t *site, bool *out) {
    const match_t *m = &site->match;
    ir_value_t sum = match_value(m, "sum");
    double n = match_number(m, "n"), inv_n = match_number(m, "inv_n");
    *out = picks_labels(site) && sums_all(site, sum);
    if (!*out) return ST_OK;
    double count = (double)site->i[ROWS];
    bool divided = n == count || fabs(inv_n * count - 1) <= 1.2e-7;
    bool is_mean = site_producer(site, sum)->op == IR_OP_REDUCE_MEAN;
    *out = isnan(n) && isnan(inv_n) ? true : divided && !is_mean;
    site->i[MEAN] = is_mean || divided;
    site->i[2] = INT64_MIN; /* no label is ignored */
    site_add(site, match_value(m, "x"));
    site_add(site, match_value(m, "y"));
    return ST_OK;
}

static st_status_t check_valid_rows(fuse_site_t *site, bool *out) {
    const match_t *m = &site->match;
    ir_value_t sum = match_value(m, "sum"), count = match_value(m, "count");
    double ignored = match_number(m, "ignored");
    *out = picks_labels(site) && sums_all(site, sum);
    if (!*out) return ST_OK;
    if (count != IR_NONE) {
        const ir_node_info_t *node = site_producer(site, match_value(m, "n_sum"));
        *out = ir_type_elements(site_type(site, node->inputs[0])) == site->i[ROWS] &&
               ir_type_elements(site_type(site, count)) == 1;
    }
    *out = *out && ignored == floor(ignored) && fabs(ignored) < 9e15;
    site->i[MEAN] = count != IR_NONE;
    site->i[2] = *out ? (int64_t)ignored : 0;
    site_add(site, match_value(m, "x"));
    site_add(site, match_value(m, "y"));
    return ST_OK;
}

static ir_value_t build_loss(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    ir_type_t logits = *ir_b_type(b, in[0]);
    int64_t n_rows = site->i[ROWS];
    ir_value_t x = ir_b_reshape(b, in[0], 2, (int64_t[]){n_rows, logits.dims[logits.rank - 1]});
    ir_value_t y = ir_b_reshape(b, in[1], 1, &n_rows);
    ir_value_t loss = ir_b_node(b, IR_OP_CROSS_ENTROPY, 2, (ir_value_t[]){x, y}, 2,
                                (ir_arg_t[]){IR_ARG_INT("ignore_index", site->i[2]),
                                             IR_ARG_BOOL("mean", site->i[MEAN] != 0)});
    return site_as_root(site, b, loss);
}

static const fuse_row_t rows[] = {
    {"div(?sum:reduce_sum(~<kept>), ?count:(~cast(~?n_sum:reduce_sum(~cast(~?k)))"
     "| ~?n_sum:reduce_sum(~cast(~?k))))",
     check_valid_rows, build_loss},
    {"?sum:reduce_sum(~<kept>)", check_valid_rows, build_loss},
    {"div(?sum:reduce_sum(<nll>), #n) | mul(?sum:reduce_sum(<nll>), #inv_n)", check_all_rows,
     build_loss},
    {"?sum:reduce_mean(<nll>) | ?sum:reduce_sum(<nll>)", check_all_rows, build_loss},
    {"neg(~div(?sum:reduce_sum(~<picked>), #n)) | neg(~?sum:reduce_mean(~<picked>))"
     "| neg(~?sum:reduce_sum(~<picked>))",
     check_all_rows, build_loss},
    {"div(<exp>, ?t:<sum>) | mul(<exp>, ?r:~reciprocal(?t:<sum>))", check_softmax, build_softmax},
    {"sub(<shifted>, ?t:<log_sum>)", check_softmax, build_log_softmax},
    {"sub(?x, ?t:~add(~log(~?b:reduce_sum(exp(?d:sub(?x, <max>)))), ~?a))", check_softmax,
     build_log_softmax},
    {0},
};

const fuse_patterns_t fuse_patterns_softmax = {definitions, rows};

/* RMS norm and layer norm.
 *
 * Spellings: squares as square, x * x or pow; means as reduce_mean or a sum over or times a count;
 * 1 / sqrt as rsqrt, reciprocal, division or power; weight (any vector: w, or 1 + w) before or
 * after the cast back, on x or on the statistic; without weight or bias; the variance of layer norm
 * as mean of squared deviations or as mean of squares less squared mean; casts to float32 and back.
 * Rounding: the composite works in the type that the chain squares in, and is cast once at the end.
 * A chain that casts its normalized value back before the weight rounds it there once more. The
 * mean of squares less the squared mean cancels; the composite does not. */
#include "fusion/patterns.h"
#include "ir/op.h"

static const match_definition_t definitions[] = {
    {"square", "square(~?x) | mul(~?x, ~?x) | pow(~?x, 2)"},
    {"mean_sq",
     "~?v:reduce_mean(<square>) | ~div(?v:reduce_sum(<square>), #n)"
     "| ~mul(?v:reduce_sum(<square>), #inv_n)"},
    {"ms", "~add(<mean_sq>, #eps)"},
    {"rms_inv", "~rsqrt(<ms>) | ~reciprocal(sqrt(<ms>)) | ~div(1, sqrt(<ms>)) | ~pow(<ms>, -0.5)"},
    {"rms", "mul(?x, ?r:<rms_inv>) | div(?x, ?r:~sqrt(<ms>))"},

    {"mean",
     "~?a:reduce_mean(~?x) | ~div(?a:reduce_sum(~?x), #n) | ~mul(?a:reduce_sum(~?x), #inv_n)"},
    {"dev", "sub(?x, ?u:<mean>)"},
    {"square_dev", "square(~?d:<dev>) | mul(~?d:<dev>, ~?d) | pow(~?d:<dev>, 2)"},
    {"var",
     "~?v:reduce_mean(<square_dev>) | ~div(?v:reduce_sum(<square_dev>), #n)"
     "| ~mul(?v:reduce_sum(<square_dev>), #inv_n)"
     "| sub(?v:reduce_mean(<square>), square(?u:<mean>) | mul(?u:<mean>, ?u))"},
    {"vs", "~add(<var>, #eps)"},
    {"ln_inv", "~rsqrt(<vs>) | ~reciprocal(sqrt(<vs>)) | ~div(1, sqrt(<vs>)) | ~pow(<vs>, -0.5)"},
    {"ln", "mul(?d:<dev>, ?r:<ln_inv>) | div(?d:<dev>, ?r:~sqrt(<vs>))"},
    {0},
};

/* The value that x was cast from to be normalized, where the result is cast back: the op's own
 * arithmetic is as wide. */
static ir_value_t narrow(const fuse_site_t *site, ir_value_t x) {
    const ir_node_info_t *node = site_producer(site, x);
    if (node->op != IR_OP_CAST || site_type(site, x)->dtype != IR_F32) return x;
    ir_dtype_t from = site_type(site, node->inputs[0])->dtype;
    bool back = from == site->type.dtype && (from == IR_F16 || from == IR_BF16);
    return back ? node->inputs[0] : x;
}

/* What both norms have: statistics over the n last dims, eps, weight and bias in their shape. i[0]:
 * n. f[0]: eps. */
static bool check_statistics(fuse_site_t *site, int32_t *out_n) {
    const match_t *m = &site->match;
    ir_value_t x = match_value(m, "x"), w = match_value(m, "w"), b = match_value(m, "b");
    ir_value_t y = match_value(m, "y"), a = match_value(m, "a");
    const ir_type_t *type = site_type(site, x);
    double count = 1, n = match_number(m, "n"), inv_n = match_number(m, "inv_n");
    int32_t n_mean = 0;
    if (!ir_dtype_is_float(type->dtype) || !ir_dims_equal(&site->type, type)) return false;
    if (!site_reduces_trailing(site, match_value(m, "v"), type, out_n)) return false;
    if (a != IR_NONE && (!site_reduces_trailing(site, a, type, &n_mean) || n_mean != *out_n))
        return false;
    if (!site_is_statistic(site, match_value(m, "r"), type, *out_n)) return false;
    if (y != IR_NONE && !ir_dims_equal(site_type(site, y), type)) return false;
    for (int32_t i = type->rank - *out_n; i < type->rank; i++) count *= (double)type->dims[i];
    if ((!isnan(n) && n != count) || (!isnan(inv_n) && fabs(inv_n * count - 1) > 1.2e-7))
        return false;
    if (w != IR_NONE && !site_is_trailing(site, w, type, *out_n)) return false;
    if (b != IR_NONE && !site_is_trailing(site, b, type, *out_n)) return false;
    site->f[0] = match_number(m, "eps");
    site->i[0] = *out_n;
    if (!(site->f[0] >= 0) || isinf(site->f[0])) return false;
    site_add(site, narrow(site, x));
    site->i[1] = w != IR_NONE ? site_add(site, w) : 0;
    site->i[2] = b != IR_NONE ? site_add(site, b) : 0;
    return true;
}

/* Sums need their count, means must not have one. */
static bool counts_fit(const fuse_site_t *site, const char *reduction) {
    const match_t *m = &site->match;
    ir_value_t value = match_value(m, reduction);
    if (value == IR_NONE || site_producer(site, value)->op == IR_OP_REDUCE_MEAN) return true;
    return !isnan(match_number(m, "n")) || !isnan(match_number(m, "inv_n"));
}

static st_status_t check_rms(fuse_site_t *site, bool *out_accepted) {
    int32_t n;
    *out_accepted = check_statistics(site, &n) && n == 1 && counts_fit(site, "v");
    return ST_OK;
}

static st_status_t check_layer(fuse_site_t *site, bool *out_accepted) {
    const match_t *m = &site->match;
    int32_t n;
    *out_accepted = check_statistics(site, &n) && counts_fit(site, "v") && counts_fit(site, "a");
    if (!*out_accepted) return ST_OK;
    ir_value_t u = match_value(m, "u");
    *out_accepted = site_is_statistic(site, u, site_type(site, match_value(m, "x")), n);
    return ST_OK;
}

static ir_value_t vector(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in, int which,
                         double otherwise) {
    ir_type_t x = *ir_b_type(b, in[0]);
    int32_t n = (int32_t)site->i[0];
    if (site->i[which]) return site_trailing(b, in[site->i[which]], &x, n);
    return ir_b_splat(b, ir_type_make(ir_dtype_wide(x.dtype), n, &x.dims[x.rank - n]), otherwise);
}

static ir_value_t build_rms(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    ir_value_t w = vector(site, b, in, 1, 1);
    ir_value_t y = ir_b_node(b, IR_OP_RMS_NORM, 2, (ir_value_t[]){in[0], w}, 1,
                             (ir_arg_t[]){IR_ARG_FLOAT("eps", site->f[0])});
    return site_as_root(site, b, y);
}

static ir_value_t build_layer(const fuse_site_t *site, ir_build_t *b, const ir_value_t *in) {
    ir_value_t w = vector(site, b, in, 1, 1), bias = vector(site, b, in, 2, 0);
    ir_value_t y = ir_b_node(b, IR_OP_LAYER_NORM, 3, (ir_value_t[]){in[0], w, bias}, 1,
                             (ir_arg_t[]){IR_ARG_FLOAT("eps", site->f[0])});
    return site_as_root(site, b, y);
}

static const fuse_row_t rows[] = {
    {"add(~mul(?w, ?y:~<ln>), ?b)", check_layer, build_layer},
    {"add(mul(?d:<dev>, mul(?r:<ln_inv>, ?w)), ?b)", check_layer, build_layer},
    {"add(mul(?x, ?k:mul(?r:<ln_inv>, ?w)), sub(?b, mul(?u, ?k)))", check_layer, build_layer},
    {"mul(?w, ?y:~<ln>)", check_layer, build_layer},
    {"<ln>", check_layer, build_layer},
    {"mul(?w, ?y:~<rms>)", check_rms, build_rms},
    {"mul(?x, mul(?w, ?r:<rms_inv>))", check_rms, build_rms},
    {"mul(mul(?x, ?w), ?r:<rms_inv>)", check_rms, build_rms},
    {"<rms>", check_rms, build_rms},
    {0},
};

const fuse_patterns_t fuse_patterns_norm = {definitions, rows};

/* Initialization: statistics of each kind, defaults by name, independence of slicing, errors. */
#include "state/init.h"

#include <math.h>

#include "support/scratch.h"

enum { N = 64 * 48 * 3 * 3 };
static const int64_t conv_dims[] = {64, 48, 3, 3};
static float values[N];

/* Elements first … first + count - 1 of the whole tensor. */
static st_status_t fill_part(const init_rules_t *rules, uint64_t seed, const char *name,
                             const ir_type_t *type, int64_t first, int64_t count, void *out) {
    st_draw_t draw;
    st_status_t status = init_draw(rules, seed, name, type, &draw);
    if (status == ST_OK) st_draw_range(&draw, first, count, out);
    return status;
}

static void fill(const char *text, const char *name, int32_t rank, const int64_t *dims) {
    init_rules_t *rules;
    assert_ok(init_rules_parse(text, &rules));
    ir_type_t type = ir_type_make(IR_F32, rank, dims);
    assert_ok(fill_part(rules, 17, name, &type, 0, ir_type_elements(&type), values));
    init_rules_free(rules);
}

typedef struct moments {
    double mean, deviation, largest, fourth;
} moments_t;

static moments_t measure(int n) {
    moments_t m = {0};
    for (int i = 0; i < n; i++) {
        assert_false(isnan(values[i]));
        m.mean += (double)values[i] / n;
        m.deviation += (double)values[i] * (double)values[i] / n;
        m.fourth += pow((double)values[i], 4) / n;
        m.largest = fmax(m.largest, fabs((double)values[i]));
    }
    m.fourth /= m.deviation * m.deviation; /* 3 for a normal, 1.8 for a uniform distribution */
    m.deviation = sqrt(m.deviation);
    return m;
}

/* Within 3 % (27,648 draws: five standard errors), mean within five standard errors of 0. */
static void check_draws(const char *rule, double deviation, bool is_normal) {
    char text[64];
    snprintf(text, sizeof text, "w=%s", rule);
    fill(text, "w", 4, conv_dims);
    moments_t m = measure(N);
    assert_true(fabs(m.mean) < 5 * deviation / sqrt(N));
    assert_true(fabs(m.deviation / deviation - 1) < 0.03);
    assert_true(fabs(m.fourth - (is_normal ? 3 : 1.8)) < 0.2);
    if (!is_normal) assert_true(m.largest <= deviation * sqrt(3) * (1 + 1e-6));
}

static void kinds_have_their_statistics(void **state) {
    (void)state;
    const double fan_in = 48 * 9, fan_out = 64 * 9;
    check_draws("normal:0.02", 0.02, true);
    check_draws("uniform:0.3", 0.3 / sqrt(3), false);
    check_draws("kaiming_normal", sqrt(2 / fan_in), true);
    check_draws("kaiming_normal_out", sqrt(2 / fan_out), true);
    check_draws("kaiming_uniform", sqrt(1 / fan_in) / sqrt(3), false); /* PyTorch's layer default */
    check_draws("kaiming_uniform:0", sqrt(6 / fan_in) / sqrt(3), false);
    check_draws("xavier_normal", sqrt(2 / (fan_in + fan_out)), true);
    check_draws("xavier_uniform", sqrt(2 / (fan_in + fan_out)), false);
    fill("*=constant:-1.5", "w", 4, conv_dims);
    for (int i = 0; i < N; i++) assert_true(values[i] == -1.5f);
}

static void defaults_go_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int32_t rank;
        double deviation; /* of random values; else the constant */
        bool is_random;
    } cases[] = {
        {"layers.0.norm.weight", 1, 1, false},
        {"bn1.bias", 1, 0, false},
        {"bn1.running_mean", 1, 0, false},
        {"bn1.running_var", 1, 1, false},
        {"embeddings.LayerNorm.gamma", 1, 1, false},
        {"embeddings.LayerNorm.beta", 1, 0, false},
        {"model.embed_tokens.weight", 2, 0.02, true},
        {"q_proj.weight", 2, 0.02, true},
        {"conv1.weight", 4, 0.05892557, true}, /* sqrt(2 / (64 * 9)) */
        {"pos_embed", 3, 0.02, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fill(NULL, cases[i].name, cases[i].rank, conv_dims);
        int n = cases[i].rank == 1   ? 64
                : cases[i].rank == 2 ? 64 * 48
                : cases[i].rank == 3 ? 64 * 144
                                     : N;
        if (cases[i].is_random) {
            assert_true(fabs(measure(n).deviation / cases[i].deviation - 1) < 0.06);
        } else {
            for (int j = 0; j < n; j++) assert_true((double)values[j] == cases[i].deviation);
        }
    }
    init_rules_t *rules;
    assert_ok(init_rules_parse("", &rules));
    ir_type_t type = ir_type_scalar(IR_F32);
    assert_fails(fill_part(rules, 1, "alpha", &type, 0, 1, values), ST_NOT_FOUND, "'alpha=zeros'");
    type.dtype = IR_I64;
    int64_t counter = 5;
    assert_ok(fill_part(rules, 1, "bn1.num_batches_tracked", &type, 0, 1, &counter));
    assert_int_equal(counter, 0);
    init_rules_free(rules);
}

static void slices_and_types_agree(void **state) {
    (void)state;
    init_rules_t *rules;
    assert_ok(init_rules_parse("w=normal:1", &rules));
    const int64_t dims[] = {7, 11};
    ir_type_t type = ir_type_make(IR_F32, 2, dims);
    float whole[77], part[77];
    assert_ok(fill_part(rules, 3, "w", &type, 0, 77, whole));
    for (int64_t first = 0; first <= 77; first++) {
        for (int64_t count = 0; count <= 77 - first; count += 5) {
            assert_ok(fill_part(rules, 3, "w", &type, first, count, part));
            assert_memory_equal(part, whole + first, (size_t)count * sizeof *part);
        }
    }
    double wide[77];
    type.dtype = IR_F64;
    assert_ok(fill_part(rules, 3, "w", &type, 0, 77, wide));
    for (int i = 0; i < 77; i++) assert_true((float)wide[i] == whole[i]);
    type.dtype = IR_F32;
    int equal_seed = 0, equal_name = 0;
    assert_ok(fill_part(rules, 4, "w", &type, 0, 77, part));
    for (int i = 0; i < 77; i++) equal_seed += part[i] == whole[i];
    init_rules_free(rules);
    assert_ok(init_rules_parse("*=normal:1", &rules));
    assert_ok(fill_part(rules, 3, "v", &type, 0, 77, part));
    for (int i = 0; i < 77; i++) equal_name += part[i] == whole[i];
    assert_true(equal_seed == 0 && equal_name == 0);
    init_rules_free(rules);
}

static void the_first_rule_wins(void **state) {
    (void)state;
    const int64_t dims[] = {2};
    fill("a.*=ones;*=constant:3;a.x=zeros", "a.x", 1, dims);
    assert_true(values[0] == 1.0f);
    fill("a.*=ones;*=constant:3;a.x=zeros;", "b.bias", 1, dims);
    assert_true(values[1] == 3.0f);
}

static void malformed_rules_are_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a=ones;weight", "'weight' is not pattern=kind"},
        {"=ones", "'=ones' is not"},
        {"a=gauss", "unknown kind 'gauss', the kinds are zeros, ones"},
        {"a=normal", "normal needs a number"},
        {"a=zeros:1", "zeros takes no number"},
        {"a=normal:x", "'x' is not a number"},
        {"a=normal:1e999", "not a number"},
        {"a=uniform:-1", "negative"},
    };
    init_rules_t *rules;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_fails(init_rules_parse(cases[i].text, &rules), ST_INVALID, cases[i].message);
        assert_null(rules);
    }
    assert_ok(init_rules_parse("v=kaiming_normal;i=normal:1;u=constant:-1", &rules));
    const int64_t dims[] = {2};
    ir_type_t type = ir_type_make(IR_F32, 1, dims);
    assert_fails(fill_part(rules, 1, "v", &type, 0, 2, values), ST_INVALID, "rank 1");
    type.dtype = IR_I64;
    assert_fails(fill_part(rules, 1, "i", &type, 0, 2, values), ST_INVALID, "i64");
    type.dtype = IR_U8;
    assert_fails(fill_part(rules, 1, "u", &type, 0, 2, values), ST_INVALID, "-1 is not a value");
    init_rules_free(rules);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_have_their_statistics), cmocka_unit_test(defaults_go_by_name),
        cmocka_unit_test(slices_and_types_agree),      cmocka_unit_test(the_first_rule_wins),
        cmocka_unit_test(malformed_rules_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

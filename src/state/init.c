/* Initialization: see init.h. Random words come from Philox with the seed as key and (element / 4,
 * hash of the name) as counter; four elements share one call. */
#include "state/init.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/number.h"
#include "base/vec.h"
#include "base/words.h"
#include "state/convert.h"

/* What a kind draws, and what its number is. */
typedef enum draw { DRAW_CONSTANT, DRAW_NORMAL, DRAW_UNIFORM } draw_t;
typedef enum scale {
    SCALE_NUMBER,
    SCALE_FAN_IN,
    SCALE_FAN_OUT,
    SCALE_FAN_SUM,
    SCALE_LEAKY
} scale_t;

typedef struct kind {
    const char *name;
    draw_t draw;
    scale_t scale;
    bool takes_number;
    bool needs_number;
    double number;
} kind_t;

static const kind_t kinds[] = {
    {"zeros", DRAW_CONSTANT, SCALE_NUMBER, false, false, 0},
    {"ones", DRAW_CONSTANT, SCALE_NUMBER, false, false, 1},
    {"constant", DRAW_CONSTANT, SCALE_NUMBER, true, true, 0},
    {"normal", DRAW_NORMAL, SCALE_NUMBER, true, true, 0},
    {"uniform", DRAW_UNIFORM, SCALE_NUMBER, true, true, 0},
    {"kaiming_normal", DRAW_NORMAL, SCALE_FAN_IN, false, false, 0},
    {"kaiming_normal_out", DRAW_NORMAL, SCALE_FAN_OUT, false, false, 0},
    {"kaiming_uniform", DRAW_UNIFORM, SCALE_LEAKY, true, false, 2.23606797749979},
    {"xavier_normal", DRAW_NORMAL, SCALE_FAN_SUM, false, false, 0},
    {"xavier_uniform", DRAW_UNIFORM, SCALE_FAN_SUM, false, false, 0},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct rule {
    const char *pattern;
    const kind_t *kind;
    double number;
    int32_t min_rank, max_rank;
} rule_t;

struct init_rules {
    st_arena_t arena;
    ST_VEC(rule_t) rules;
};

typedef struct default_rule {
    const char *pattern;
    const char *kind;
    double number;
    int32_t min_rank, max_rank;
} default_rule_t;

static const default_rule_t defaults[] = {
    {"*running_mean", "zeros", 0, 0, IR_MAX_RANK},
    {"*num_batches_tracked", "zeros", 0, 0, IR_MAX_RANK},
    {"*bias", "zeros", 0, 0, IR_MAX_RANK},
    {"*beta", "zeros", 0, 0, IR_MAX_RANK},
    {"*running_var", "ones", 1, 0, IR_MAX_RANK},
    {"*gamma", "ones", 1, 0, IR_MAX_RANK},
    {"*embed*", "normal", 0.02, 0, IR_MAX_RANK},
    {"*_token", "normal", 0.02, 0, IR_MAX_RANK},
    {"*experts.*weight", "normal", 0.02, 0, IR_MAX_RANK},
    {"*weight", "ones", 1, 0, 1},
    {"*", "normal", 0.02, 2, 2},
    {"*", "kaiming_normal_out", 0, 3, IR_MAX_RANK},
};

static const kind_t *find_kind(const char *name) {
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    }
    return NULL;
}

static st_status_t unknown_kind(const char *text, const char *kind) {
    char names[256] = "";
    for (int i = 0; i < N_KINDS; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", kinds[i].name);
    }
    return FAIL(ST_INVALID, "initialization rule '%s': unknown kind '%s', the kinds are %s", text,
                kind, names);
}

/* One rule; `text` is in the arena and is cut into its parts. */
static st_status_t parse_rule(init_rules_t *rules, char *text) {
    char whole[128];
    snprintf(whole, sizeof whole, "%s", text);
    char *equals = strrchr(text, '=');
    if (equals == NULL || equals == text) {
        return FAIL(ST_INVALID,
                    "initialization rule '%s' is not pattern=kind or pattern=kind:number", whole);
    }
    *equals = '\0';
    char *kind_text = equals + 1;
    char *colon = strchr(kind_text, ':');
    if (colon != NULL) *colon = '\0';
    rule_t rule = {.pattern = text, .kind = find_kind(kind_text), .max_rank = IR_MAX_RANK};
    if (rule.kind == NULL) return unknown_kind(whole, kind_text);
    rule.number = rule.kind->number;
    if (colon == NULL && rule.kind->needs_number) {
        return FAIL(ST_INVALID, "initialization rule '%s': %s needs a number, as in %s:0.02", whole,
                    kind_text, kind_text);
    }
    if (colon != NULL && !rule.kind->takes_number) {
        return FAIL(ST_INVALID, "initialization rule '%s': %s takes no number", whole, kind_text);
    }
    if (colon != NULL) {
        if (!st_double_parse(colon + 1, strlen(colon + 1), &rule.number) ||
            !isfinite(rule.number)) {
            return FAIL(ST_INVALID, "initialization rule '%s': '%s' is not a number", whole,
                        colon + 1);
        }
    }
    if (rule.kind->draw != DRAW_CONSTANT && rule.number < 0) {
        return FAIL(ST_INVALID, "initialization rule '%s': the number is negative", whole);
    }
    return ST_VEC_PUSH(&rules->rules, rule);
}

static st_status_t parse_all(init_rules_t *rules, const char *text) {
    char *copy = st_arena_strdup(&rules->arena, text);
    if (copy == NULL) return st_no_memory(strlen(text) + 1, "initialization rules");
    while (copy != NULL && *copy != '\0') {
        char *next = strchr(copy, ';');
        if (next != NULL) *next++ = '\0';
        if (*copy != '\0') TRY(parse_rule(rules, copy));
        copy = next;
    }
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        rule_t rule = {defaults[i].pattern, find_kind(defaults[i].kind), defaults[i].number,
                       defaults[i].min_rank, defaults[i].max_rank};
        TRY(ST_VEC_PUSH(&rules->rules, rule));
    }
    return ST_OK;
}

st_status_t init_rules_parse(const char *text, init_rules_t **out_rules) {
    *out_rules = NULL;
    init_rules_t *rules = st_calloc(1, sizeof *rules);
    if (rules == NULL) return st_no_memory(sizeof *rules, "initialization rules");
    st_status_t status = parse_all(rules, text != NULL ? text : "");
    if (status != ST_OK) {
        init_rules_free(rules);
        return status;
    }
    *out_rules = rules;
    return ST_OK;
}

void init_rules_free(init_rules_t *rules) {
    if (rules == NULL) return;
    st_arena_clear(&rules->arena);
    ST_VEC_FREE(&rules->rules);
    st_free(rules);
}

/* Deviation or bound of a rule for a shape. */
static st_status_t compute_scale(const rule_t *rule, const char *name, const ir_type_t *type,
                                 double *out_scale) {
    *out_scale = rule->number;
    if (rule->kind->scale == SCALE_NUMBER) return ST_OK;
    if (type->rank < 2) {
        return FAIL(ST_INVALID, "'%s' has rank %d: %s needs a fan, so rank 2 or more", name,
                    type->rank, rule->kind->name);
    }
    double field = 1;
    for (int32_t i = 2; i < type->rank; i++) field *= (double)type->dims[i];
    double fan_in = (double)type->dims[1] * field, fan_out = (double)type->dims[0] * field;
    double fan = fan_in;
    double gain = rule->kind->draw == DRAW_NORMAL ? 2 : 6;
    if (rule->kind->scale == SCALE_FAN_OUT) fan = fan_out;
    if (rule->kind->scale == SCALE_FAN_SUM) fan = fan_in + fan_out;
    if (rule->kind->scale == SCALE_LEAKY) gain = 6 / (1 + rule->number * rule->number);
    *out_scale = fan > 0 ? sqrt(gain / fan) : 0;
    return ST_OK;
}

static st_status_t constant_bits(double value, const char *name, ir_dtype_t dtype,
                                 uint64_t *out_bits) {
    const size_t bytes = ir_dtype_bytes(dtype);
    const int64_t whole = (int64_t)value;
    *out_bits = 0;
    if (state_can_convert(dtype)) {
        state_store_float(out_bits, dtype, 0, value);
        return ST_OK;
    }
    if (ir_dtype_is_float(dtype))
        return FAIL(ST_UNSUPPORTED, "'%s': %s is not initialized by rules", name,
                    ir_dtype_text(dtype));
    if (value != floor(value) || fabs(value) > (bytes == 1 ? 127 : 1e9) ||
        (dtype == IR_U8 && value < 0) || (dtype == IR_BOOL && value != 0 && value != 1))
        return FAIL(ST_INVALID, "'%s': %g is not a value of %s", name, value, ir_dtype_text(dtype));
    memcpy(out_bits, &whole, bytes); /* little-endian: the low bytes */
    return ST_OK;
}

static const rule_t *find_rule(const init_rules_t *rules, const char *name, int32_t rank) {
    for (size_t i = 0; i < rules->rules.n; i++) {
        const rule_t *rule = &rules->rules.data[i];
        if (rank >= rule->min_rank && rank <= rule->max_rank && st_glob(rule->pattern, name))
            return rule;
    }
    return NULL;
}

static st_draw_format_t format_of(ir_dtype_t dtype) {
    if (dtype == IR_F64) return ST_DRAW_F64;
    if (dtype == IR_F32) return ST_DRAW_F32;
    return dtype == IR_F16 ? ST_DRAW_F16 : ST_DRAW_BF16;
}

st_status_t init_draw(const init_rules_t *rules, uint64_t seed, const char *name,
                      const ir_type_t *type, st_draw_t *out_draw) {
    static const st_draw_kind_t kind_of[] = {[DRAW_CONSTANT] = ST_DRAW_CONSTANT,
                                             [DRAW_NORMAL] = ST_DRAW_NORMAL,
                                             [DRAW_UNIFORM] = ST_DRAW_UNIFORM};
    TRY(ir_type_check(type));
    const rule_t *rule = find_rule(rules, name, type->rank);
    *out_draw = (st_draw_t){.width = (uint32_t)ir_dtype_bytes(type->dtype), .rank = type->rank};
    for (int32_t d = 0; d < type->rank; d++)
        out_draw->dims[d] = out_draw->extent[d] = type->dims[d];
    if (rule == NULL)
        return FAIL(ST_NOT_FOUND, "no initialization rule matches '%s': give one, as in '%s=zeros'",
                    name, name);
    TRY(compute_scale(rule, name, type, &out_draw->scale));
    out_draw->kind = (int32_t)kind_of[rule->kind->draw];
    if (rule->kind->draw == DRAW_CONSTANT)
        return constant_bits(out_draw->scale, name, type->dtype, &out_draw->bits);
    if (!state_can_convert(type->dtype))
        return FAIL(ST_INVALID, "'%s': %s cannot be initialized as %s", name,
                    ir_dtype_text(type->dtype), rule->kind->name);
    out_draw->format = (int32_t)format_of(type->dtype);
    out_draw->seed = seed;
    out_draw->stream = st_hash_string(name);
    return ST_OK;
}

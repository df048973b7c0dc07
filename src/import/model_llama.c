/* Llama as Hugging Face's LlamaForCausalLM defines it: pre-norm blocks of attention (grouped heads,
 * rotary positions in the half-split convention) and a gated SiLU MLP, with an untied or tied
 * output projection. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "import/import.h"
#include "import/json.h"
#include "import/model.h"
#include "import/model_experts.h"
#include "ir/build.h"

/* ---- configuration ---- */

/* Every layer is nodes of its own and half a head a table of angles; the other sizes are bounded by
 * what one tensor may hold. */
enum { MAX_CONFIG_BYTES = 1 << 20, MAX_LAYERS = 100000, MAX_HEAD_DIM = 1 << 16 };

typedef struct reader {
    json_object *root;
    st_status_t status;
} reader_t;

static json_object *entry(const reader_t *r, const char *key) {
    return import_json_get(r->root, key);
}

static int64_t read_int_to(reader_t *r, const char *key, bool required, int64_t fallback,
                           int32_t most) {
    json_object *value = entry(r, key);
    if (r->status != ST_OK) return fallback;
    if (!value) {
        if (required) r->status = FAIL(ST_INVALID, "'%s' is missing", key);
        return fallback;
    }
    if (json_object_get_type(value) != json_type_int || json_object_get_int64(value) <= 0 ||
        json_object_get_int64(value) > most) {
        r->status = FAIL(ST_INVALID, "'%s' must be a whole number from 1 to %d", key, most);
        return fallback;
    }
    return json_object_get_int64(value);
}

static int64_t read_int(reader_t *r, const char *key, bool required, int64_t fallback) {
    return read_int_to(r, key, required, fallback, INT32_MAX);
}

static double read_float(reader_t *r, json_object *from, const char *key, double fallback) {
    json_object *value = NULL;
    if (r->status != ST_OK || !json_object_object_get_ex(from, key, &value) || !value)
        return fallback;
    json_type type = json_object_get_type(value);
    if ((type != json_type_double && type != json_type_int) ||
        !(json_object_get_double(value) > 0)) {
        r->status = FAIL(ST_INVALID, "'%s' must be a positive number", key);
        return fallback;
    }
    return json_object_get_double(value);
}

/* The same of a number that may be 0. */
static double read_rate(reader_t *r, const char *key) {
    json_object *value = entry(r, key);
    if (r->status != ST_OK || !value) return 0;
    json_type type = json_object_get_type(value);
    const double number = json_object_get_double(value);
    if ((type == json_type_double || type == json_type_int) && number >= 0 && isfinite(number))
        return number;
    r->status = FAIL(ST_INVALID, "'%s' must be a finite number, 0 or more", key);
    return 0;
}

/* A guessed number would give other angles than the model was trained with. */
static double require_float(reader_t *r, json_object *scaling, const char *key) {
    if (r->status == ST_OK && !import_json_get(scaling, key))
        r->status = FAIL(ST_INVALID, "'%s' is missing in the rope scaling of type 'llama3'", key);
    return read_float(r, scaling, key, 0);
}

static bool read_bool(reader_t *r, const char *key) {
    json_object *value = entry(r, key);
    if (value && json_object_get_type(value) != json_type_boolean && r->status == ST_OK)
        r->status = FAIL(ST_INVALID, "'%s' must be true or false", key);
    return value && json_object_get_boolean(value);
}

static void require_text(reader_t *r, const char *key, const char *wanted) {
    json_object *value = entry(r, key);
    if (!value || r->status != ST_OK) return;
    const char *text = json_object_get_string(value);
    if (strcmp(text, wanted) != 0)
        r->status = FAIL(ST_UNSUPPORTED, "'%s' is '%s'; only '%s' is known", key, text, wanted);
}

/* Null, absent, {"rope_type": "default"}, or Llama 3.1's frequency scaling. */
static void read_rope_scaling(reader_t *r, model_llama_config_t *out) {
    json_object *scaling = entry(r, "rope_scaling"), *type = NULL;
    if (entry(r, "rope_parameters")) { /* newer files hold base and scaling in one place */
        scaling = entry(r, "rope_parameters");
        out->rope_theta = read_float(r, scaling, "rope_theta", out->rope_theta);
    }
    if (!scaling || r->status != ST_OK) return;
    if (!json_object_object_get_ex(scaling, "rope_type", &type))
        json_object_object_get_ex(scaling, "type", &type);
    const char *text = type ? json_object_get_string(type) : "default";
    if (strcmp(text, "default") == 0) return;
    if (strcmp(text, "llama3") != 0) {
        r->status =
            FAIL(ST_UNSUPPORTED, "'rope_scaling' of type '%s'; only 'llama3' is known", text);
        return;
    }
    out->rope_factor = require_float(r, scaling, "factor");
    out->rope_low_freq = require_float(r, scaling, "low_freq_factor");
    out->rope_high_freq = require_float(r, scaling, "high_freq_factor");
    out->rope_original_positions = require_float(r, scaling, "original_max_position_embeddings");
}

static void read_sliding_window(reader_t *r, model_llama_config_t *out) {
    json_object *use = entry(r, "use_sliding_window");
    if (!entry(r, "sliding_window") || (use && !json_object_get_boolean(use))) return;
    out->sliding_window = read_int(r, "sliding_window", false, 0);
}

/* The whole file is one JSON object. */
static st_status_t parse_object(const char *path, const st_file_t *file, json_object **out_root) {
    if (file->bytes > MAX_CONFIG_BYTES)
        return FAIL(ST_PARSE, "'%s' is no configuration: it has %zu bytes, the limit is %d", path,
                    file->bytes, MAX_CONFIG_BYTES);
    return import_json_parse(file->data, file->bytes, path, out_root);
}

st_status_t model_llama_read_config(const char *path, model_llama_config_t *out) {
    *out = (model_llama_config_t){0};
    reader_t r = {NULL, ST_OK};
    st_file_t file;
    TRY(import_file_open(path, &file));
    st_status_t opened = parse_object(path, &file, &r.root);
    st_file_close(&file);
    TRY(opened);
    require_text(&r, "model_type", "llama");
    require_text(&r, "hidden_act", "silu");
    out->vocab = read_int(&r, "vocab_size", true, 0);
    out->hidden = read_int(&r, "hidden_size", true, 0);
    out->intermediate = read_int(&r, "intermediate_size", true, 0);
    out->layers = read_int_to(&r, "num_hidden_layers", true, 0, MAX_LAYERS);
    out->heads = read_int(&r, "num_attention_heads", true, 0);
    out->kv_heads = read_int(&r, "num_key_value_heads", false, out->heads);
    out->head_dim = read_int(&r, "head_dim", false, out->heads ? out->hidden / out->heads : 0);
    out->max_positions = read_int(&r, "max_position_embeddings", false, 2048);
    out->rms_eps = read_float(&r, r.root, "rms_norm_eps", 1e-6);
    out->rope_theta = read_float(&r, r.root, "rope_theta", 10000);
    out->tied = read_bool(&r, "tie_word_embeddings");
    out->attention_bias = read_bool(&r, "attention_bias");
    out->mlp_bias = read_bool(&r, "mlp_bias");
    out->experts = entry(&r, "num_local_experts") ? read_int(&r, "num_local_experts", true, 0) : 0;
    out->routed = read_int(&r, "num_experts_per_tok", false, 2);
    out->capacity_factor = read_float(&r, r.root, "capacity_factor", 1.25);
    out->balance = read_rate(&r, "router_aux_loss_coef");
    read_rope_scaling(&r, out);
    read_sliding_window(&r, out);
    if (r.status == ST_OK && out->head_dim > MAX_HEAD_DIM)
        r.status = FAIL(ST_INVALID,
                        "a head's size ('head_dim', or else 'hidden_size' / 'num_attention_heads') "
                        "is %lld, the limit is %d",
                        (long long)out->head_dim, MAX_HEAD_DIM);
    json_object_put(r.root);
    if (r.status == ST_OK && (out->heads % out->kv_heads || out->head_dim % 2))
        r.status =
            FAIL(ST_INVALID,
                 "%lld heads must be a multiple of %lld key-value heads, and the head size %lld "
                 "even",
                 (long long)out->heads, (long long)out->kv_heads, (long long)out->head_dim);
    return r.status == ST_OK ? ST_OK : st_error_context(r.status, "%s", path);
}

/* ---- graph ---- */

typedef struct llama {
    ir_build_t b;
    const model_llama_config_t *c;
    int64_t batch, seq;
    ir_value_t cos, sin;      /* [seq, head_dim / 2] */
    model_balance_t *balance; /* [layers]; NULL: the loss has no such term */
    char prefix[64];          /* "model.layers.3." */
} llama_t;

static ir_value_t parameter(llama_t *m, const char *name, int32_t rank, const int64_t *dims) {
    char full[160];
    snprintf(full, sizeof full, "%s%s", m->prefix, name);
    return ir_b_parameter(&m->b, full, ir_type_make(IR_F32, rank, dims));
}

static ir_value_t linear(llama_t *m, const char *name, ir_value_t x, int64_t in, int64_t out,
                         bool bias) {
    char full[96];
    snprintf(full, sizeof full, "%s.weight", name);
    ir_value_t w = parameter(m, full, 2, (int64_t[]){out, in});
    ir_value_t y = ir_b_matmul(&m->b, x, w, false, true);
    if (!bias) return y;
    snprintf(full, sizeof full, "%s.bias", name);
    return ir_b_binary(&m->b, IR_OP_ADD, y, parameter(m, full, 1, &out));
}

static ir_value_t norm(llama_t *m, const char *name, ir_value_t x) {
    ir_value_t w = parameter(m, name, 1, &m->c->hidden);
    return ir_b_node(&m->b, IR_OP_RMS_NORM, 2, (ir_value_t[]){x, w}, 1,
                     (ir_arg_t[]){IR_ARG_FLOAT("eps", m->c->rms_eps)});
}

/* Frequency of pair i, with Llama 3.1's scaling: low frequencies divided by the factor, high ones
 * kept, those between interpolated. */
static double frequency(const model_llama_config_t *c, int64_t i) {
    double f = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
    if (c->rope_factor == 0) return f;
    double wavelength = 2 * acos(-1.0) / f;
    double low = c->rope_original_positions / c->rope_low_freq;
    double high = c->rope_original_positions / c->rope_high_freq;
    if (wavelength > low) return f / c->rope_factor;
    if (wavelength < high) return f;
    double smooth = (c->rope_original_positions / wavelength - c->rope_low_freq) /
                    (c->rope_high_freq - c->rope_low_freq);
    return (1 - smooth) * f / c->rope_factor + smooth * f;
}

/* Angles in float64: the table is exact under --dtype f64 and rounded once otherwise. */
static st_status_t rotary_tables(llama_t *m) {
    int64_t half = m->c->head_dim / 2;
    double *frequencies = st_malloc((size_t)half * sizeof *frequencies);
    if (!frequencies) return st_no_memory((size_t)half * sizeof *frequencies, "rotary frequencies");
    for (int64_t i = 0; i < half; i++) frequencies[i] = frequency(m->c, i);
    ir_build_t *b = &m->b;
    ir_value_t f = ir_b_constant(b, ir_type_make(IR_F64, 2, (int64_t[]){1, half}), frequencies,
                                 (size_t)half * sizeof *frequencies);
    ir_value_t p = ir_b_iota(b, ir_type_make(IR_F64, 2, (int64_t[]){m->seq, 1}), 0, 0, 1);
    ir_value_t angle = ir_b_binary(b, IR_OP_MUL, p, f);
    m->cos = ir_b_cast(b, ir_b_unary(b, IR_OP_COS, angle), IR_F32);
    m->sin = ir_b_cast(b, ir_b_unary(b, IR_OP_SIN, angle), IR_F32);
    st_free(frequencies);
    return b->status;
}

static ir_value_t heads(llama_t *m, ir_value_t x, int64_t n_heads, bool rotate) {
    int64_t dims[] = {m->batch, m->seq, n_heads, m->c->head_dim};
    x = ir_b_swap(&m->b, ir_b_reshape(&m->b, x, 4, dims), 1, 2);
    if (!rotate) return x;
    return ir_b_node(&m->b, IR_OP_ROPE, 3, (ir_value_t[]){x, m->cos, m->sin}, 0, NULL);
}

static ir_value_t attention(llama_t *m, ir_value_t x) {
    const model_llama_config_t *c = m->c;
    int64_t q_size = c->heads * c->head_dim, kv_size = c->kv_heads * c->head_dim;
    bool bias = c->attention_bias;
    ir_value_t q = linear(m, "self_attn.q_proj", x, c->hidden, q_size, bias);
    ir_value_t k = linear(m, "self_attn.k_proj", x, c->hidden, kv_size, bias);
    ir_value_t v = linear(m, "self_attn.v_proj", x, c->hidden, kv_size, bias);
    ir_value_t qkv[] = {heads(m, q, c->heads, true), heads(m, k, c->kv_heads, true),
                        heads(m, v, c->kv_heads, false)};
    ir_value_t o = ir_b_node(
        &m->b, IR_OP_ATTENTION, 3, qkv, 2,
        (ir_arg_t[]){IR_ARG_BOOL("causal", true), IR_ARG_INT("window", c->sliding_window)});
    o = ir_b_reshape(&m->b, ir_b_swap(&m->b, o, 1, 2), 3, (int64_t[]){m->batch, m->seq, q_size});
    return linear(m, "self_attn.o_proj", o, q_size, c->hidden, bias);
}

static ir_value_t mlp(llama_t *m, ir_value_t x) {
    const model_llama_config_t *c = m->c;
    ir_value_t gate = linear(m, "mlp.gate_proj", x, c->hidden, c->intermediate, c->mlp_bias);
    ir_value_t up = linear(m, "mlp.up_proj", x, c->hidden, c->intermediate, c->mlp_bias);
    ir_value_t h = ir_b_binary(&m->b, IR_OP_MUL, ir_b_unary(&m->b, IR_OP_SILU, gate), up);
    return linear(m, "mlp.down_proj", h, c->intermediate, c->hidden, c->mlp_bias);
}

static ir_value_t feed_forward(llama_t *m, int64_t layer, ir_value_t x) {
    const model_llama_config_t *c = m->c;
    if (!c->experts) return mlp(m, x);
    const int64_t up[] = {c->experts, c->intermediate, c->hidden};
    const int64_t down[] = {c->experts, c->hidden, c->intermediate};
    const model_experts_t experts = {
        .router = parameter(m, "mlp.router.weight", 2, (int64_t[]){c->experts, c->hidden}),
        .gate = parameter(m, "mlp.experts.gate_proj.weight", 3, up),
        .up = parameter(m, "mlp.experts.up_proj.weight", 3, up),
        .down = parameter(m, "mlp.experts.down_proj.weight", 3, down),
        .routed = c->routed,
        .capacity_factor = c->capacity_factor};
    return model_route(&m->b, &experts, x, m->balance ? &m->balance[layer] : NULL);
}

static ir_value_t block(llama_t *m, int64_t layer, ir_value_t h) {
    snprintf(m->prefix, sizeof m->prefix, "model.layers.%lld.", (long long)layer);
    h = ir_b_binary(&m->b, IR_OP_ADD, h, attention(m, norm(m, "input_layernorm.weight", h)));
    h = ir_b_binary(&m->b, IR_OP_ADD, h,
                    feed_forward(m, layer, norm(m, "post_attention_layernorm.weight", h)));
    m->prefix[0] = '\0';
    return h;
}

static void loss(llama_t *m, ir_value_t logits, ir_value_t y) {
    int64_t rows = m->batch * m->seq;
    logits = ir_b_reshape(&m->b, logits, 2, (int64_t[]){rows, m->c->vocab});
    ir_value_t labels = ir_b_reshape(&m->b, y, 1, &rows);
    ir_value_t loss_value =
        ir_b_node(&m->b, IR_OP_CROSS_ENTROPY, 2, (ir_value_t[]){logits, labels}, 0, NULL);
    if (m->balance) {
        ir_value_t term = model_balance_loss(&m->b, (size_t)m->c->layers, m->balance);
        loss_value =
            ir_b_binary(&m->b, IR_OP_ADD, loss_value, ir_b_scale(&m->b, term, m->c->balance));
    }
    ir_b_output(&m->b, "loss", loss_value);
}

st_status_t model_llama(const model_llama_config_t *config, int64_t batch, int64_t seq,
                        bool with_loss, ir_graph_t **out_graph) {
    *out_graph = NULL;
    if (batch < 1 || seq < 1)
        return FAIL(ST_INVALID, "options 'batch' (%lld) and 'seq' (%lld) are needed, 1 or more",
                    (long long)batch, (long long)seq);
    if (seq > config->max_positions)
        return FAIL(ST_INVALID,
                    "sequence length %lld exceeds max_position_embeddings %lld (generating: the "
                    "prompt and --tokens together)",
                    (long long)seq, (long long)config->max_positions);
    if (config->experts && (config->routed < 1 || config->routed > config->experts))
        return FAIL(ST_INVALID, "a token goes to %lld of %lld experts: 1 to %lld are possible",
                    (long long)config->routed, (long long)config->experts,
                    (long long)config->experts);
    if (config->balance > 0 && with_loss && !config->experts)
        return FAIL(
            ST_INVALID,
            "a loss that balances experts (coefficient %g) needs experts: the model has none",
            config->balance);
    ir_graph_t *graph = NULL;
    TRY(ir_graph_create("llama", &graph));
    llama_t m = {.b = {.graph = graph}, .c = config, .batch = batch, .seq = seq};
    if (config->balance > 0 && with_loss) {
        m.balance = st_calloc((size_t)config->layers, sizeof *m.balance);
        if (!m.balance)
            m.b.status = st_no_memory((size_t)config->layers * sizeof *m.balance, "the routers");
    }
    ir_type_t ids = ir_type_make(IR_I64, 2, (int64_t[]){batch, seq});
    ir_value_t x = ir_b_input(&m.b, "x", ids, 0);
    ir_value_t y = with_loss ? ir_b_input(&m.b, "y", ids, 0) : IR_NONE;
    st_status_t status = rotary_tables(&m);
    ir_value_t table =
        parameter(&m, "model.embed_tokens.weight", 2, (int64_t[]){config->vocab, config->hidden});
    ir_value_t h = ir_b_gather(&m.b, table, x, 0);
    for (int64_t layer = 0; layer < config->layers; layer++) h = block(&m, layer, h);
    h = norm(&m, "model.norm.weight", h);
    ir_value_t logits = config->tied
                            ? ir_b_matmul(&m.b, h, table, false, true)
                            : linear(&m, "lm_head", h, config->hidden, config->vocab, false);
    if (with_loss)
        loss(&m, logits, y);
    else
        ir_b_output(&m.b, "logits", logits);
    if (status == ST_OK) status = m.b.status;
    st_free(m.balance);
    if (status == ST_OK && config->tied)
        status = ir_graph_add_alias(graph, "lm_head.weight", "model.embed_tokens.weight");
    if (status != ST_OK) {
        ir_graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    return ST_OK;
}

/* stator generate: text from a Llama. The inference graph has a fixed length, the whole sequence is
 * run for each token: what stands after the current position cannot influence it (causal
 * attention). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tool.h"

typedef struct generation {
    const tool_t *tool;
    stator_tokenizer_t *tokenizer;
    stator_graph_t *graph;
    stator_tensors_t *weights;
    stator_plan_t *plan;
    stator_session_t *session;
    int64_t length, vocabulary; /* of the graph */
    int64_t *sequence;          /* [length], 0 after the end */
    int64_t n;                  /* tokens so far */
    float *logits;              /* [length × vocabulary] */
    size_t logits_bytes;
    uint64_t random;
} generation_t;

static stator_status_t set_int(const tool_t *tool, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return stator_options_set(tool->options, key, text);
}

/* Prompt tokens: the beginning-of-sequence token where the vocabulary has one, then the prompt. */
static stator_status_t encode_prompt(generation_t *g, int64_t **out_tokens, size_t *out_n) {
    const char *prompt = tool_text(g->tool, "prompt");
    int64_t begin = stator_tokenizer_begin(g->tokenizer), *encoded = NULL;
    size_t n = 0;
    if (prompt[0])
        TOOL_TRY(stator_tokenizer_encode(g->tokenizer, prompt, strlen(prompt), &encoded, &n));
    int64_t *tokens = malloc((n + 1) * sizeof *tokens);
    if (!tokens) {
        stator_free(encoded);
        return tool_fail(STATOR_NO_MEMORY, "out of memory");
    }
    size_t at = 0;
    if (begin >= 0) tokens[at++] = begin;
    if (n) memcpy(tokens + at, encoded, n * sizeof *tokens);
    stator_free(encoded);
    if (at + n == 0) {
        free(tokens);
        return tool_fail(STATOR_INVALID,
                         "this vocabulary has no token that begins a sequence: --prompt is needed");
    }
    *out_tokens = tokens;
    *out_n = at + n;
    return STATOR_OK;
}

/* A model may have more rows than its tokenizer has tokens (padding), never fewer. */
static stator_status_t check_vocabulary(const generation_t *g) {
    stator_tensor_t logits = stator_graph_at(g->graph, STATOR_OUTPUT, 0);
    int64_t tokens = stator_tokenizer_vocabulary(g->tokenizer);
    if (tokens <= logits.dims[2]) return STATOR_OK;
    return tool_fail(STATOR_INVALID,
                     "tokenizer '%s' has %lld tokens, the model's vocabulary %lld: they do not "
                     "belong together",
                     tool_text(g->tool, "tokenizer"), (long long)tokens, (long long)logits.dims[2]);
}

static stator_status_t open_generation(generation_t *g) {
    const tool_t *tool = g->tool;
    const char *tokenizer, *weights, *config;
    TOOL_TRY(tool_require(tool, "config", &config));
    TOOL_TRY(tool_require(tool, "tokenizer", &tokenizer));
    TOOL_TRY(tool_require(tool, "weights", &weights));
    TOOL_TRY(stator_tokenizer_load(tokenizer, &g->tokenizer));
    TOOL_TRY(stator_tensors_load(weights, &g->weights));
    int64_t *prompt = NULL, wanted = tool_int(tool, "tokens");
    size_t n_prompt = 0;
    TOOL_TRY(encode_prompt(g, &prompt, &n_prompt));
    stator_status_t status = STATOR_OK;
    if (wanted < 1) status = tool_fail(STATOR_INVALID, "option 'tokens' must be at least 1");
    /* The last new token needs no run of its own. A number too large for any model is cut to one
     * that still is. */
    int64_t most = INT64_MAX - (int64_t)n_prompt;
    int64_t length = (int64_t)n_prompt + (wanted < most ? wanted : most) - 1;
    if (status == STATOR_OK) status = set_int(tool, "seq", length);
    if (status == STATOR_OK) status = set_int(tool, "batch", 1);
    if (status == STATOR_OK) status = stator_options_set(tool->options, "mode", "eval");
    if (status == STATOR_OK) status = stator_graph_llama(tool->options, 0, &g->graph);
    if (status == STATOR_OK) status = check_vocabulary(g);
    if (status == STATOR_OK) status = stator_plan_compile(g->graph, tool->options, NULL, &g->plan);
    if (status == STATOR_OK) status = tool_session(tool, g->plan, NULL, &g->session);
    if (status == STATOR_OK) status = stator_session_load(g->session, g->weights);
    if (status == STATOR_OK) {
        stator_tensor_t logits = stator_plan_at(g->plan, STATOR_OUTPUT, 0);
        g->length = logits.dims[1];
        g->vocabulary = logits.dims[2];
        g->logits_bytes = logits.bytes;
        g->logits = malloc(logits.bytes);
        g->sequence = calloc((size_t)g->length + 1, sizeof *g->sequence);
        if (!g->logits || !g->sequence) status = tool_fail(STATOR_NO_MEMORY, "out of memory");
        if (logits.dtype != STATOR_DTYPE_F32)
            status = tool_fail(STATOR_UNSUPPORTED, "generation runs in float32 only");
    }
    for (size_t i = 0; status == STATOR_OK && i < n_prompt; i++) {
        if (prompt[i] < 0 || prompt[i] >= g->vocabulary)
            status =
                tool_fail(STATOR_INVALID,
                          "the tokenizer gives token %lld, the model knows 0 to %lld: they do not "
                          "belong together",
                          (long long)prompt[i], (long long)g->vocabulary - 1);
        else
            g->sequence[g->n++] = prompt[i];
    }
    free(prompt);
    g->random = (uint64_t)tool_int(tool, "seed") * 0x9E3779B97F4A7C15u + 1;
    return status;
}

static void close_generation(generation_t *g) {
    free(g->sequence);
    free(g->logits);
    stator_session_destroy(g->session);
    stator_plan_destroy(g->plan);
    stator_graph_destroy(g->graph);
    stator_tensors_destroy(g->weights);
    stator_tokenizer_destroy(g->tokenizer);
}

/* Uniform in [0, 1): xorshift64*. */
static double next_random(generation_t *g) {
    g->random ^= g->random >> 12;
    g->random ^= g->random << 25;
    g->random ^= g->random >> 27;
    return (double)((g->random * 0x2545F4914F6CDD1Du) >> 11) * 0x1p-53;
}

static int64_t likeliest(const float *logits, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Value that the k-th largest logit has; everything below is left out. */
static float threshold_of(const float *logits, int64_t n, int64_t k) {
    float threshold = -INFINITY;
    if (k <= 0 || k >= n) return threshold;
    float bound = INFINITY; /* walks down the distinct values */
    for (int64_t taken = 0; taken < k;) {
        float next = -INFINITY;
        int64_t equal = 0;
        for (int64_t i = 0; i < n; i++)
            if (logits[i] < bound && logits[i] > next) next = logits[i];
        for (int64_t i = 0; i < n; i++) equal += logits[i] == next;
        if (equal == 0) break;
        threshold = bound = next;
        taken += equal;
    }
    return threshold;
}

static int64_t sample(generation_t *g, const float *logits) {
    int64_t n = stator_tokenizer_vocabulary(g->tokenizer); /* rows beyond it are padding */
    double temperature = tool_float(g->tool, "temperature");
    if (tool_flag(g->tool, "greedy") || temperature <= 0) return likeliest(logits, n);
    float threshold = threshold_of(logits, n, tool_int(g->tool, "top-k"));
    double largest = (double)logits[likeliest(logits, n)], sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] >= threshold) sum += exp(((double)logits[i] - largest) / temperature);
    double left = next_random(g) * sum;
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] < threshold) continue;
        left -= exp(((double)logits[i] - largest) / temperature);
        if (left < 0) return i;
    }
    return likeliest(logits, n);
}

static stator_status_t generate(generation_t *g) {
    int64_t wanted = g->length + 1; /* prompt and new tokens */
    stator_tensor_t feed = {
        .name = "x", .dtype = STATOR_DTYPE_I64, .rank = 2, .dims = {1, g->length}};
    feed.data = g->sequence;
    feed.bytes = (size_t)g->length * sizeof *g->sequence;
    stator_fetch_t fetch = {"logits", g->logits, g->logits_bytes};
    while (g->n < wanted) {
        TOOL_TRY(stator_session_step(g->session, 1, &feed, 1, &fetch));
        int64_t token = sample(g, g->logits + (g->n - 1) * g->vocabulary);
        g->sequence[g->n++] = token;
    }
    char *text = NULL;
    size_t bytes = 0;
    TOOL_TRY(stator_tokenizer_decode(g->tokenizer, g->sequence, (size_t)g->n, &text, &bytes));
    fwrite(text, 1, bytes, stdout);
    fputc('\n', stdout);
    stator_free(text);
    return STATOR_OK;
}

stator_status_t tool_generate(tool_t *tool) {
    generation_t g = {.tool = tool};
    stator_status_t status = open_generation(&g);
    if (status == STATOR_OK) status = generate(&g);
    close_generation(&g);
    return status;
}

#include "shard.h"

#include <math.h>

#include "feed.h"
#include "support/scratch.h"

#define must(expr)                                                                           \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

static const double TOLERANCE = 1e-9;
enum { STEPS = 10, MAX_VALUES = 32768 };

const shard_model_t shard_llama = {
    "llama",
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 64, \"hidden_size\": 32,"
    " \"intermediate_size\": 88, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2}",
    {"batch", "6", "seq", "8", "optimizer", "adamw", "lr", "2e-3", "weight-decay", "0.1", "clip",
     "0.5"},
    64,
    0};

/* Nothing divides anything, and the embedding is the head. */
const shard_model_t shard_llama_uneven = {
    "uneven llama",
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 321, \"hidden_size\": "
    "30,"
    " \"intermediate_size\": 53, \"num_hidden_layers\": 2, \"num_attention_heads\": 10,"
    " \"head_dim\": 6, \"num_key_value_heads\": 5, \"tie_word_embeddings\": true}",
    {"batch", "5", "seq", "7", "optimizer", "adamw", "lr", "2e-3", "clip", "0.5", "ema", "0.9",
     "accumulate", "2"},
    321,
    0};

/* Eight routed experts, with less room than there are choices. */
const shard_model_t shard_experts = {
    "routed llama",
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 64, \"hidden_size\": 32,"
    " \"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"num_local_experts\": 8, \"num_experts_per_tok\": 2,"
    " \"capacity_factor\": 1.0}",
    {"batch", "8", "seq", "8", "optimizer", "adamw", "lr", "2e-3", "weight-decay", "0.1", "clip",
     "0.5"},
    64,
    0};

/* Five experts, of which some ranks have none, and batches that nothing divides. */
const shard_model_t shard_experts_uneven = {
    "uneven routed llama",
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 61, \"hidden_size\": 30,"
    " \"intermediate_size\": 21, \"num_hidden_layers\": 2, \"num_attention_heads\": 5,"
    " \"num_key_value_heads\": 5, \"num_local_experts\": 5, \"num_experts_per_tok\": 2,"
    " \"capacity_factor\": 1.25, \"tie_word_embeddings\": true}",
    {"batch", "5", "seq", "7", "optimizer", "adamw", "lr", "2e-3", "clip", "0.5", "ema", "0.9"},
    61,
    0};

const shard_model_t shard_resnet = {
    "resnet",
    NULL,
    {"depth", "8", "classes", "10", "channels", "1", "image", "8", "batch", "5", "optimizer", "sgd",
     "lr", "0.05", "momentum", "0.9", "weight-decay", "5e-5"},
    10,
    0};

const shard_model_t shard_llama_micro = {
    "llama in micro-batches",
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 64, \"hidden_size\": 32,"
    " \"intermediate_size\": 88, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2}",
    {"batch", "2", "seq", "8", "optimizer", "adamw", "lr", "2e-3", "weight-decay", "0.1", "clip",
     "0.5", "microbatches", "5", "fetch", "grad.model.embed_tokens.weight"},
    64,
    3};

const shard_model_t shard_llama_tied = {
    "tied llama in micro-batches",
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 65, \"hidden_size\": 24,"
    " \"intermediate_size\": 40, \"num_hidden_layers\": 3, \"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"tie_word_embeddings\": true}",
    {"batch", "3", "seq", "5", "optimizer", "adamw", "lr", "2e-3", "clip", "0.5", "ema", "0.9",
     "microbatches", "4", "fetch", "grad.model.embed_tokens.weight"},
    65,
    3};

const shard_model_t shard_resnet_micro = {
    "resnet in micro-batches",
    NULL,
    {"depth",        "8", "classes",    "10",   "channels", "1",    "image",    "8",
     "batch",        "3", "optimizer",  "sgd",  "lr",       "0.05", "momentum", "0.9",
     "microbatches", "5", "batch-norm", "micro"},
    10,
    0};

shard_model_t shard_with(const shard_model_t *model, const char *key, const char *value) {
    shard_model_t made = *model;
    size_t n = 0;
    while (made.options[n]) n++;
    assert_true(n + 2 < sizeof made.options / sizeof made.options[0]);
    made.options[n] = key;
    made.options[n + 1] = value;
    return made;
}

/* ---- machines ---- */

const char *shard_machine(const char *name, const char *us, const char *gbps) {
    static char text[1 << 20], out[1 << 20], paths[2][4096];
    char *path = paths[strcmp(name, "free.target") == 0];
    const char *source = STATOR_SOURCE_DIR "/targets/cpu.target";
    FILE *file = fopen(source, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    out[0] = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "link_us", 7) == 0)
            snprintf(out + strlen(out), 128, "link_us %s\n", us);
        else if (strncmp(line, "link_gbps", 9) == 0)
            snprintf(out + strlen(out), 128, "link_gbps %s\n", gbps);
        else if (strncmp(line, "launch_us", 9) == 0)
            strcat(out, "launch_us 0\n");
        else
            strcat(strcat(out, line), "\n");
    }
    snprintf(path, sizeof paths[0], "%s", scratch(name));
    spill(path, out, strlen(out));
    return path;
}

/* ---- one run ---- */

typedef struct trained {
    stator_plan_t *plan;
    stator_session_t *session;
    double outputs[MAX_VALUES];
    size_t n_outputs;
} trained_t;

/* Labels at the beginning of each row count for nothing. */
static void ignore(const stator_tensor_t *port, int64_t *labels, int64_t n) {
    if (strcmp(port->name, "y") != 0 || port->rank != 2) return;
    for (int64_t r = 0; r < port->dims[0]; r++)
        for (int64_t i = 0; i < n; i++) labels[r * port->dims[1] + i] = -100;
}

/* Labels that do not count come in runs, so that micro-batches have unequal numbers of those that
 * do. */
static void ignore_some(const stator_tensor_t *port, int64_t *data, int ignored) {
    size_t n = port->bytes / sizeof *data, run = n / 5 + 1;
    for (size_t i = 0; i < n; i += run)
        if (data[i] % ignored == 0)
            for (size_t k = i; k < n && k < i + run; k++) data[k] = -100;
}

static void step(trained_t *t, const shard_model_t *model, uint64_t *state) {
    stator_tensor_t feeds[8];
    stator_fetch_t fetches[8];
    size_t n = stator_plan_count(t->plan, STATOR_INPUT), n_fetches = 0;
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++) {
        feeds[i] = stator_plan_at(t->plan, STATOR_INPUT, i);
        void *data = malloc(feeds[i].bytes);
        feed_fill(&feeds[i], data, model->labels, state);
        if (model->ignored) ignore(&feeds[i], data, model->ignored);
        if (model->ignored && feeds[i].rank == 3 && strcmp(feeds[i].name, "y") == 0)
            ignore_some(&feeds[i], data, model->ignored);
        feeds[i].data = data;
    }
    for (size_t o = 0; o < stator_plan_count(t->plan, STATOR_OUTPUT); o++) {
        stator_tensor_t port = stator_plan_at(t->plan, STATOR_OUTPUT, o);
        const size_t n_values = port.bytes / sizeof(double);
        if (port.dtype != STATOR_DTYPE_F64 || (port.rank && !strstr(port.name, "grad."))) continue;
        assert_true(n_fetches < 8 && t->n_outputs + n_values <= MAX_VALUES);
        fetches[n_fetches++] = (stator_fetch_t){
            .name = port.name, .data = &t->outputs[t->n_outputs], .bytes = port.bytes};
        t->n_outputs += n_values;
    }
    assert_true(n_fetches >= 1);
    must(stator_session_step(t->session, n, feeds, n_fetches, fetches));
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)feeds[i].data);
}

static const char *const *more_options; /* of the plan; NULL: none */
static const char *refused_says; /* set: compiling has to fail, with a message that contains it */

static void open_training(const shard_model_t *model, const char *mesh, const char *form,
                          trained_t *t, trained_t *evaluation) {
    stator_options_t *options = NULL;
    stator_graph_t *graph = NULL, *training = NULL;
    *t = (trained_t){0};
    must(stator_options_create(&options));
    for (int i = 0; model->options[i]; i += 2)
        must(stator_options_set(options, model->options[i], model->options[i + 1]));
    if (model->config) {
        spill(scratch("config.json"), model->config, strlen(model->config));
        must(stator_options_set(options, "config", scratch("config.json")));
    }
    for (int i = 0; more_options && more_options[i]; i += 2)
        must(stator_options_set(options, more_options[i], more_options[i + 1]));
    must(stator_options_set(options, "mesh", mesh));
    char name[16];
    size_t length = strcspn(form, " ");
    assert_true(length < sizeof name);
    memcpy(name, form, length);
    name[length] = '\0';
    must(stator_options_set(options, "shard", name));
    if (form[length + (form[length] != 0)])
        must(stator_options_set(options, "pin", form + length + 1));
    must(stator_options_set(options, "threads", "1"));
    must(stator_options_set(options, "dtype", "f64"));
    must(model->config ? stator_graph_llama(options, 1, &graph)
                       : stator_graph_resnet(options, 1, &graph));
    must(stator_graph_make_training(graph, options, &training));
    if (refused_says) {
        assert_true(stator_plan_compile(training, options, NULL, &t->plan) != STATOR_OK);
        if (!strstr(stator_last_error(), refused_says))
            fail_msg("'%s' does not say '%s'", stator_last_error(), refused_says);
        stator_graph_destroy(training);
        stator_graph_destroy(graph);
        stator_options_destroy(options);
        return;
    }
    must(stator_plan_compile(training, options, NULL, &t->plan));
    must(stator_session_create(t->plan, NULL, &t->session));
    must(stator_session_initialize(t->session, options));
    if (evaluation) {
        *evaluation = (trained_t){0};
        must(stator_options_set(options, "mode", "eval"));
        must(stator_options_set(options, "fetch", ""));
        must(stator_plan_compile(graph, options, t->plan, &evaluation->plan));
        must(stator_session_create(evaluation->plan, t->session, &evaluation->session));
    }
    stator_graph_destroy(training);
    stator_graph_destroy(graph);
    stator_options_destroy(options);
}

static void train(const shard_model_t *model, const char *mesh, const char *form, trained_t *t) {
    uint64_t state = 1;
    open_training(model, mesh, form, t, NULL);
    for (int i = 0; i < STEPS; i++) step(t, model, &state);
}

static void release(trained_t *t) {
    stator_session_destroy(t->session);
    stator_plan_destroy(t->plan);
    *t = (trained_t){0};
}

/* ---- comparison ---- */

static void compare(const char *what, const char *name, size_t n, const double *one,
                    const double *many) {
    double largest = 0; /* moments are small: they are held against their own size */
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(one[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs(one[i] - many[i]) <= TOLERANCE * largest))
            fail_msg("%s: %s[%zu] is %.17g, on one rank %.17g", what, name, i, many[i], one[i]);
}

static void compare_state(const char *what, const trained_t *one, const trained_t *many,
                          const stator_tensor_t *tensor) {
    void *a = malloc(tensor->bytes), *b = malloc(tensor->bytes);
    must(stator_session_read(one->session, tensor->name, a, tensor->bytes));
    must(stator_session_read(many->session, tensor->name, b, tensor->bytes));
    if (tensor->dtype == STATOR_DTYPE_F64)
        compare(what, tensor->name, tensor->bytes / sizeof(double), a, b);
    else
        assert_memory_equal(a, b, tensor->bytes);
    free(a);
    free(b);
}

static size_t compare_states(const char *what, const trained_t *one, const trained_t *many) {
    size_t n_compared = 0;
    for (int kind = STATOR_PARAMETER; kind <= STATOR_BUFFER; kind++) {
        size_t n = stator_session_count(one->session, (stator_port_kind_t)kind);
        assert_int_equal(n, stator_session_count(many->session, (stator_port_kind_t)kind));
        for (size_t i = 0; i < n; i++, n_compared++) {
            stator_tensor_t tensor = stator_session_at(one->session, (stator_port_kind_t)kind, i);
            compare_state(what, one, many, &tensor);
        }
    }
    return n_compared;
}

unsigned long long shard_check(const shard_model_t *model, const char *mesh, const char *form) {
    static const shard_model_t *of;
    static trained_t one, many;
    char what[256];
    snprintf(what, sizeof what, "%s on %s as %s", model->name, mesh, form);
    if (of != model) {
        release(&one);
        train(model, "data=1", "dp", &one);
        of = model;
    }
    train(model, mesh, form, &many);
    assert_true(one.n_outputs >= 2 * STEPS); /* loss and gradient norm */
    assert_int_equal(one.n_outputs, many.n_outputs);
    compare(what, "outputs", one.n_outputs, one.outputs, many.outputs);
    assert_true(compare_states(what, &one, &many) > 20);
    unsigned long long bytes = stator_plan_info(many.plan).state_bytes;
    release(&many);
    return bytes;
}

unsigned long long shard_check_with(const shard_model_t *model, const char *mesh, const char *form,
                                    const char *const *options) {
    more_options = options;
    unsigned long long bytes = shard_check(model, mesh, form);
    more_options = NULL;
    return bytes;
}

stator_plan_info_t shard_planned(const shard_model_t *model, const char *mesh, const char *form) {
    trained_t *t = calloc(1, sizeof *t);
    open_training(model, mesh, form, t, NULL);
    const stator_plan_info_t info = stator_plan_info(t->plan);
    release(t);
    free(t);
    return info;
}

void shard_check_refused(const shard_model_t *model, const char *mesh, long long token,
                         const char *says) {
    static trained_t t;
    stator_tensor_t feeds[8];
    open_training(model, mesh, "dp", &t, NULL);
    size_t n = stator_plan_count(t.plan, STATOR_INPUT);
    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++) {
        feeds[i] = stator_plan_at(t.plan, STATOR_INPUT, i);
        assert_int_equal(feeds[i].dtype, STATOR_DTYPE_I64);
        int64_t *data = malloc(feeds[i].bytes);
        for (size_t e = 0; e < feeds[i].bytes / sizeof *data; e++) data[e] = token;
        feeds[i].data = data;
    }
    assert_true(stator_session_step(t.session, n, feeds, 0, NULL) != STATOR_OK);
    if (!strstr(stator_last_error(), says))
        fail_msg("'%s' does not say '%s'", stator_last_error(), says);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)feeds[i].data);
    release(&t);
}

void shard_check_resumed(const shard_model_t *model, const char *mesh, const char *form,
                         const char *other_mesh, const char *other_form) {
    static trained_t first, second;
    const stator_progress_t progress = {.step = 3};
    stator_progress_t found;
    uint64_t state = 1;
    open_training(model, mesh, form, &first, NULL);
    open_training(model, other_mesh, other_form, &second, NULL);
    for (int i = 0; i < 3; i++) step(&first, model, &state);
    must(stator_session_save(first.session, scratch("set"), &progress, 1, 0));
    must(stator_session_resume(second.session, scratch("set"), &found));
    assert_int_equal(found.step, 3);
    assert_true(compare_states("what was loaded", &first, &second) > 20);
    uint64_t same = state;
    for (int i = 0; i < 3; i++) step(&first, model, &state);
    for (int i = 0; i < 3; i++) step(&second, model, &same);
    compare_states("what went on", &first, &second);
    release(&first);
    release(&second);
}

void shard_check_evaluation(const shard_model_t *model, const char *mesh, const char *form) {
    static trained_t one, many, one_evaluated, many_evaluated;
    uint64_t state = 1, same = 1;
    open_training(model, "data=1", "dp", &one, &one_evaluated);
    open_training(model, mesh, form, &many, &many_evaluated);
    for (int i = 0; i < 3; i++) {
        step(&one, model, &state);
        step(&many, model, &same);
        step(&one_evaluated, model, &state);
        step(&many_evaluated, model, &same);
    }
    assert_true(one_evaluated.n_outputs == many_evaluated.n_outputs &&
                one_evaluated.n_outputs >= 3);
    compare("evaluation", "outputs", one_evaluated.n_outputs, one_evaluated.outputs,
            many_evaluated.outputs);
    release(&one_evaluated);
    release(&many_evaluated);
    release(&one);
    release(&many);
}

void shard_check_unplanned(const shard_model_t *model, const char *mesh, const char *pins,
                           const char *says) {
    trained_t *t = calloc(1, sizeof *t);
    char form[256];
    snprintf(form, sizeof form, "dp %s", pins);
    refused_says = says;
    open_training(model, mesh, form, t, NULL);
    refused_says = NULL;
    free(t);
}

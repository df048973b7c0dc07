/* Batches: three kinds of sources behind one object. A source reads batch and window sizes from the
 * plan's inputs x and y; with gradient accumulation these have one more leading dim, which
 * multiplies the batch. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "capi/capi.h"
#include "state/convert.h"
#include "state/images.h"
#include "state/sampler.h"
#include "state/tokens.h"

enum { IGNORED_LABEL = -100, MAX_CLASSES = 256 };

/* One input fed from a set: the tensors it takes in turn. */
typedef struct cycle {
    const char *input;
    stator_tensor_t *tensors;
    size_t n;
    long long *numbers; /* [n] of the tensors of a pattern with '*'; NULL without */
    char *stacked;      /* room for the micro-batches of a step; NULL without accumulation */
    ir_type_t type;
} cycle_t;

struct stator_data {
    st_arena_t arena;
    stator_status_t (*fill)(stator_data_t *data);
    stator_tensor_t *feeds;
    size_t n_feeds;
    /* samples */
    sampler_t sampler; /* shuffled */
    bool shuffle;
    int64_t n_samples, batch, next, valid; /* in order: `next` sample, `valid` ones in the batch */
    int64_t *samples;
    void *x, *y;
    ir_type_t x_type, y_type;
    /* kinds */
    tokens_t *tokens;
    int64_t window;
    images_t images;
    float *pixels; /* images as f32, before x where x is f64 */
    double mean, std;
    cycle_t *cycles; /* [n_feeds] */
    int64_t turn, n_turns, n_micro;
};

static st_status_t create(size_t n_feeds, stator_data_t **out_data) {
    stator_data_t *data = st_calloc(1, sizeof *data);
    if (!data) return st_no_memory(sizeof *data, "a data source");
    data->n_feeds = n_feeds;
    data->feeds = st_arena_array(&data->arena, n_feeds, sizeof *data->feeds);
    if (!data->feeds) {
        stator_data_destroy(data);
        return st_no_memory(n_feeds * sizeof *data->feeds, "feeds");
    }
    *out_data = data;
    return ST_OK;
}

void stator_data_destroy(stator_data_t *data) {
    if (!data) return;
    tokens_close(data->tokens);
    images_close(&data->images);
    st_arena_clear(&data->arena);
    st_free(data);
}

/* ---- sampled sources: tokens and images ---- */

static const plan_port_t *find_input(const stator_plan_t *plan, const char *name) {
    for (uint32_t i = 0; i < plan->plan->n_inputs; i++)
        if (strcmp(plan->plan->inputs[i].name, name) == 0) return &plan->plan->inputs[i];
    return NULL;
}

/* Input `name` of the plan, of rank `rank` or one more with a leading accumulation dim; *out_batch
 * is the number of samples it holds. */
static st_status_t sampled_input(const stator_plan_t *plan, const char *name, int32_t rank,
                                 ir_type_t *out_type, int64_t *out_batch) {
    const plan_port_t *port = find_input(plan, name);
    if (!port)
        return FAIL(ST_INVALID, "the graph has no input '%s' for this data: use --input and --map",
                    name);
    *out_type = port->type;
    char text[IR_TYPE_TEXT_BYTES];
    if (port->type.rank != rank && port->type.rank != rank + 1)
        return FAIL(ST_INVALID, "input '%s' is %s, rank %d is expected for this data", name,
                    ir_type_text(&port->type, text, sizeof text), (int)rank);
    *out_batch =
        port->type.rank == rank ? port->type.dims[0] : port->type.dims[0] * port->type.dims[1];
    return ST_OK;
}

static st_status_t sampled_prepare(stator_data_t *data, int64_t n_samples, uint64_t seed,
                                   int shuffle) {
    data->n_samples = n_samples;
    data->shuffle = shuffle != 0;
    if (n_samples < 1) return FAIL(ST_INVALID, "the data has no whole sample");
    if (data->shuffle) TRY(sampler_init(&data->sampler, n_samples, data->batch, seed, true));
    data->samples = st_arena_array(&data->arena, (size_t)data->batch, sizeof *data->samples);
    data->x = st_arena_alloc(&data->arena, ir_type_bytes(&data->x_type));
    data->y = st_arena_alloc(&data->arena, ir_type_bytes(&data->y_type));
    if (!data->samples || !data->x || !data->y)
        return st_no_memory(ir_type_bytes(&data->x_type), "a batch");
    data->feeds[0] = capi_tensor("x", &data->x_type, data->x);
    data->feeds[1] = capi_tensor("y", &data->y_type, data->y);
    return ST_OK;
}

/* Chooses the samples of the next batch; places past `valid` repeat sample 0. */
static void choose_samples(stator_data_t *data) {
    data->valid = data->batch;
    if (data->shuffle) {
        sampler_next(&data->sampler, data->samples);
        return;
    }
    if (data->next >= data->n_samples) data->next = 0;
    int64_t left = data->n_samples - data->next;
    if (left < data->batch) data->valid = left;
    for (int64_t i = 0; i < data->batch; i++)
        data->samples[i] = i < data->valid ? data->next + i : 0;
    data->next += data->valid;
}

/* Labels of the filled-up places, `per_sample` each, are ignored by losses. */
static void ignore_rest(stator_data_t *data, int64_t per_sample) {
    for (int64_t i = data->valid * per_sample; i < data->batch * per_sample; i++) {
        if (data->y_type.dtype == IR_I64)
            ((int64_t *)data->y)[i] = IGNORED_LABEL;
        else
            ((int32_t *)data->y)[i] = IGNORED_LABEL;
    }
}

static st_status_t check_label_type(const stator_data_t *data) {
    if (data->y_type.dtype == IR_I64 || data->y_type.dtype == IR_I32) return ST_OK;
    return FAIL(ST_INVALID, "input 'y' is %s, labels need i64 or i32",
                ir_dtype_text(data->y_type.dtype));
}

static stator_status_t fill_tokens(stator_data_t *data) {
    choose_samples(data);
    st_status_t status = tokens_fill(data->tokens, data->window, data->samples, (size_t)data->batch,
                                     data->x_type.dtype, data->x, data->y);
    if (status == ST_OK) ignore_rest(data, data->window);
    return capi_status(status);
}

static st_status_t open_tokens(const ir_graph_t *source, stator_data_t *data, const char *paths) {
    size_t n = 1;
    for (const char *p = paths; *p; p++) n += *p == ',';
    char *copy = st_arena_strdup(&data->arena, paths);
    const char **list = st_arena_array(&data->arena, n, sizeof *list);
    if (!copy || !list) return st_no_memory(n * sizeof *list, "paths");
    for (size_t i = 0; i < n; i++) {
        list[i] = copy;
        copy = strchr(copy, ',');
        if (copy) *copy++ = '\0';
    }
    for (size_t i = 0; i < n; i++)
        if (*list[i] == '\0') return FAIL(ST_INVALID, "path %zu of %zu is an empty path", i + 1, n);
    TRY(tokens_open(list, n, &data->tokens));
    int64_t vocabulary = tokens_vocab(data->tokens), known = capi_vocabulary(source, "x");
    if (vocabulary > known)
        return FAIL(ST_INVALID,
                    "shard '%s' has vocabulary %lld, the model %lld: encode the text with the "
                    "model's tokenizer",
                    list[0], (long long)vocabulary, (long long)known);
    return ST_OK;
}

static st_status_t token_ports(const stator_plan_t *plan, stator_data_t *data) {
    int64_t y_batch = 0;
    TRY(sampled_input(plan, "x", 2, &data->x_type, &data->batch));
    TRY(sampled_input(plan, "y", 2, &data->y_type, &y_batch));
    TRY(check_label_type(data));
    if (data->x_type.dtype != data->y_type.dtype || !ir_dims_equal(&data->x_type, &data->y_type))
        return FAIL(ST_INVALID, "inputs 'x' and 'y' must have one type and shape for token data");
    data->window = data->x_type.dims[data->x_type.rank - 1];
    return ST_OK;
}

/* What reading reports names its file, what does not fit gets the name here. */
static st_status_t tokens_source(const stator_plan_t *plan, const char *paths, uint64_t seed,
                                 int shuffle, stator_data_t *data) {
    st_status_t status = token_ports(plan, data);
    if (status != ST_OK) return st_error_context(status, "%s", paths);
    TRY(open_tokens(plan->plan->source, data, paths));
    status = sampled_prepare(data, tokens_samples(data->tokens, data->window), seed, shuffle);
    return status == ST_OK ? ST_OK : st_error_context(status, "%s", paths);
}

stator_status_t stator_data_tokens(const stator_plan_t *plan, const char *paths, uint64_t seed,
                                   int shuffle, stator_data_t **out_data) {
    CAPI_OUT(out_data);
    CAPI_REQUIRE(plan);
    CAPI_REQUIRE(paths);
    stator_data_t *data = NULL;
    st_status_t status = create(2, &data);
    if (status == ST_OK) status = tokens_source(plan, paths, seed, shuffle, data);
    if (status != ST_OK) {
        stator_data_destroy(data);
        return capi_status(status);
    }
    data->fill = fill_tokens;
    *out_data = data;
    return STATOR_OK;
}

static stator_status_t fill_images(stator_data_t *data) {
    choose_samples(data);
    st_status_t status = images_fill(&data->images, data->samples, (size_t)data->batch, data->mean,
                                     data->std, data->pixels, data->y_type.dtype, data->y);
    if (status != ST_OK) return capi_status(status);
    if (data->x_type.dtype == IR_F64)
        state_convert(data->pixels, IR_F32, data->x, IR_F64,
                      (size_t)ir_type_elements(&data->x_type));
    ignore_rest(data, 1);
    return STATOR_OK;
}

static st_status_t image_ports(const stator_plan_t *plan, stator_data_t *data, int64_t *y_batch) {
    TRY(sampled_input(plan, "x", 4, &data->x_type, &data->batch));
    TRY(sampled_input(plan, "y", 1, &data->y_type, y_batch));
    return check_label_type(data);
}

static st_status_t check_labels(const stator_plan_t *plan, const images_t *images,
                                const char *path) {
    capi_classes_t classes = capi_classes(plan->plan->source, "y");
    for (int64_t i = 0; i < images->n; i++)
        if (images->labels[i] >= classes.n && images->labels[i] != classes.ignored)
            return FAIL(ST_INVALID, "'%s': label %d of sample %lld is no class, the model has %lld",
                        path, images->labels[i], (long long)i, (long long)classes.n);
    return ST_OK;
}

static st_status_t images_source(const stator_plan_t *plan, const char *images, const char *labels,
                                 uint64_t seed, int shuffle, stator_data_t *data) {
    int64_t y_batch = 0;
    st_status_t status = image_ports(plan, data, &y_batch);
    if (status != ST_OK) return st_error_context(status, "%s", images);
    TRY(images_open(images, labels, MAX_CLASSES, &data->images));
    TRY(check_labels(plan, &data->images, labels));
    const int64_t *dims = data->x_type.dims + data->x_type.rank - 3;
    char text[IR_TYPE_TEXT_BYTES];
    ir_dtype_t dtype = data->x_type.dtype;
    if ((dtype != IR_F32 && dtype != IR_F64) || dims[0] != 1 || dims[1] != data->images.height ||
        dims[2] != data->images.width || y_batch != data->batch)
        return FAIL(ST_INVALID,
                    "%s: input 'x' is %s; these images need f32[batch,1,%lld,%lld] and as many "
                    "labels",
                    images, ir_type_text(&data->x_type, text, sizeof text),
                    (long long)data->images.height, (long long)data->images.width);
    status = sampled_prepare(data, data->images.n, seed, shuffle);
    if (status != ST_OK) return st_error_context(status, "%s", images);
    size_t n = (size_t)ir_type_elements(&data->x_type);
    data->pixels = dtype == IR_F32 ? data->x : st_arena_array(&data->arena, n, sizeof(float));
    return data->pixels ? ST_OK : st_no_memory(n * sizeof(float), "images");
}

stator_status_t stator_data_images(const stator_plan_t *plan, const char *images,
                                   const char *labels, double mean, double std, uint64_t seed,
                                   int shuffle, stator_data_t **out_data) {
    CAPI_OUT(out_data);
    CAPI_REQUIRE(plan);
    CAPI_REQUIRE(images);
    CAPI_REQUIRE(labels);
    stator_data_t *data = NULL;
    if (!(std > 0)) return capi_status(FAIL(ST_INVALID, "the images' deviation must be above 0"));
    st_status_t status = create(2, &data);
    if (status == ST_OK) status = images_source(plan, images, labels, seed, shuffle, data);
    if (status != ST_OK) {
        stator_data_destroy(data);
        return capi_status(status);
    }
    data->mean = mean;
    data->std = std;
    data->fill = fill_images;
    *out_data = data;
    return STATOR_OK;
}

/* ---- tensors of a set ---- */

/* Floats become the plan's float type, so that one file feeds plans of any precision. */
static st_status_t convert_cycle(stator_data_t *data, cycle_t *cycle, ir_dtype_t wanted) {
    for (size_t i = 0; i < cycle->n; i++) {
        stator_tensor_t *tensor = &cycle->tensors[i];
        ir_dtype_t from = (ir_dtype_t)tensor->dtype;
        if (from == wanted || !state_can_convert(from) || !state_can_convert(wanted)) continue;
        size_t n = tensor->bytes / ir_dtype_bytes(from), bytes = 0;
        void *converted = st_mul_size(n, ir_dtype_bytes(wanted), &bytes)
                              ? st_arena_alloc(&data->arena, bytes)
                              : NULL;
        if (!converted) return st_no_memory(bytes, tensor->name);
        state_convert(tensor->data, from, converted, wanted, n);
        tensor->dtype = (stator_dtype_t)wanted;
        tensor->data = converted;
        tensor->bytes = bytes;
    }
    return ST_OK;
}

/* With accumulation an input takes the next `n_micro` tensors, one behind the other in
 * `stacked`. */
static stator_status_t fill_cycle(stator_data_t *data) {
    for (size_t i = 0; i < data->n_feeds; i++) {
        const cycle_t *cycle = &data->cycles[i];
        if (!cycle->stacked) {
            data->feeds[i] = cycle->tensors[data->turn % data->n_turns];
            data->feeds[i].name = cycle->input;
            continue;
        }
        size_t bytes = cycle->tensors[0].bytes;
        for (int64_t m = 0; m < data->n_micro; m++)
            memcpy(cycle->stacked + (size_t)m * bytes,
                   cycle->tensors[(data->turn + m) % data->n_turns].data, bytes);
        data->feeds[i] = capi_tensor(cycle->input, &cycle->type, cycle->stacked);
    }
    data->turn += data->n_micro;
    return STATOR_OK;
}

/* Whether each tensor is a micro-batch of the input: the input's type without its leading dim. */
static bool is_micro_batch(const stator_tensor_t *tensor, const ir_type_t *input) {
    if (input->rank != tensor->rank + 1 || input->dims[0] < 2) return false;
    for (int32_t d = 0; d < tensor->rank; d++)
        if (tensor->dims[d] != input->dims[d + 1]) return false;
    return (ir_dtype_t)tensor->dtype == input->dtype;
}

static st_status_t stack_cycle(stator_data_t *data, cycle_t *cycle, const ir_type_t *input) {
    for (size_t i = 0; i < cycle->n; i++)
        if (!is_micro_batch(&cycle->tensors[i], input))
            return ST_OK; /* the step says what differs */
    cycle->type = *input;
    cycle->stacked = st_arena_alloc(&data->arena, ir_type_bytes(input));
    data->n_micro = input->dims[0];
    return cycle->stacked ? ST_OK : st_no_memory(ir_type_bytes(input), "micro-batches");
}

typedef struct numbered {
    long long number;
    stator_tensor_t tensor;
} numbered_t;

static int by_number(const void *a, const void *b) {
    long long x = ((const numbered_t *)a)->number, y = ((const numbered_t *)b)->number;
    return x < y ? -1 : x > y;
}

/* Tensors "<prefix><number><suffix>" in numeric order. */
static st_status_t match_numbered(stator_data_t *data, const stator_tensors_t *tensors,
                                  const char *pattern, cycle_t *out) {
    const char *star = strchr(pattern, '*');
    size_t prefix = (size_t)(star - pattern), suffix = strlen(star + 1), n = 0;
    size_t count = stator_tensors_count(tensors);
    numbered_t *found = st_arena_array(&data->arena, count, sizeof *found);
    out->tensors = st_arena_array(&data->arena, count, sizeof *out->tensors);
    if (!found || !out->tensors) return st_no_memory(count * sizeof *found, "a pattern");
    for (size_t i = 0; i < count; i++) {
        stator_tensor_t tensor = stator_tensors_at(tensors, i);
        size_t length = strlen(tensor.name);
        if (length <= prefix + suffix || strncmp(tensor.name, pattern, prefix) != 0 ||
            strcmp(tensor.name + length - suffix, star + 1) != 0)
            continue;
        char *end;
        const char *digits = tensor.name + prefix;
        long long number = strtoll(digits, &end, 10);
        if (*digits < '0' || *digits > '9' || end != tensor.name + length - suffix) continue;
        found[n++] = (numbered_t){number, tensor};
    }
    if (n == 0) return FAIL(ST_NOT_FOUND, "no tensor matches '%s'", pattern);
    qsort(found, n, sizeof *found, by_number);
    out->numbers = st_arena_array(&data->arena, n, sizeof *out->numbers);
    if (!out->numbers) return st_no_memory(n * sizeof *out->numbers, "a pattern");
    for (size_t i = 0; i < n; i++) {
        out->tensors[i] = found[i].tensor;
        out->numbers[i] = found[i].number;
    }
    out->n = n;
    return ST_OK;
}

static st_status_t match_source(stator_data_t *data, const stator_tensors_t *tensors,
                                const char *pattern, cycle_t *out) {
    if (strchr(pattern, '*')) return match_numbered(data, tensors, pattern, out);
    out->tensors = st_arena_alloc(&data->arena, sizeof *out->tensors);
    if (!out->tensors) return st_no_memory(sizeof *out->tensors, "a tensor");
    out->n = 1;
    return (st_status_t)stator_tensors_find(tensors, pattern, out->tensors);
}

/* The entry "input=pattern" of a map, copied to the arena; NULL if the map does not name the input.
 * */
static const char *map_entry(stator_data_t *data, const char *map, const char *input) {
    size_t length = strlen(input);
    for (const char *at = map; *at;) {
        size_t one = strcspn(at, ",");
        if (one > length && strncmp(at, input, length) == 0 && at[length] == '=')
            return st_arena_printf(&data->arena, "%.*s", (int)(one - length - 1), at + length + 1);
        at += one + (at[one] == ',');
    }
    return NULL;
}

static st_status_t check_map(const stator_plan_t *plan, const char *map) {
    for (const char *at = map; *at;) {
        size_t one = strcspn(at, ","), name = strcspn(at, "=,");
        bool known = false;
        for (uint32_t i = 0; i < plan->plan->n_inputs; i++)
            known |= strlen(plan->plan->inputs[i].name) == name &&
                     strncmp(plan->plan->inputs[i].name, at, name) == 0;
        if (at[name] != '=' || one == name + 1 || !known)
            return FAIL(ST_INVALID,
                        "option 'map': '%.*s' is not INPUT=TENSOR with an input of the graph",
                        (int)one, at);
        for (const char *other = map; other != at; other += strcspn(other, ",") + 1)
            if (strncmp(other, at, name + 1) == 0)
                return FAIL(ST_INVALID, "option 'map': input '%.*s' is mapped twice", (int)name,
                            at);
        at += one + (at[one] == ',');
    }
    return ST_OK;
}

/* Two inputs take their tensors by the same numbers, or one would feed the other's neighbours. */
static st_status_t check_numbers(const cycle_t *a, const cycle_t *b) {
    for (size_t i = 0; i < a->n || i < b->n; i++) {
        bool a_has = i < a->n, b_has = i < b->n;
        if (a_has && b_has && a->numbers[i] == b->numbers[i]) continue;
        bool b_lacks = !b_has || (a_has && a->numbers[i] < b->numbers[i]);
        const cycle_t *has = b_lacks ? a : b, *lacks = b_lacks ? b : a;
        return FAIL(ST_INVALID, "input '%s' has a tensor numbered %lld ('%s'), input '%s' has none",
                    has->input, has->numbers[i], has->tensors[i].name, lacks->input);
    }
    return ST_OK;
}

static st_status_t tensors_source(const stator_plan_t *plan, const stator_tensors_t *tensors,
                                  const char *map, stator_data_t *data) {
    TRY(check_map(plan, map));
    data->cycles = st_arena_array(&data->arena, data->n_feeds, sizeof *data->cycles);
    if (!data->cycles) return st_no_memory(data->n_feeds * sizeof *data->cycles, "feeds");
    const cycle_t *numbered = NULL; /* the last one that has numbers */
    for (size_t i = 0; i < data->n_feeds; i++) {
        cycle_t *cycle = &data->cycles[i];
        cycle->input = st_arena_strdup(&data->arena, plan->plan->inputs[i].name);
        if (!cycle->input) return st_no_memory(0, "a name");
        const char *pattern = map_entry(data, map, cycle->input);
        st_status_t status = match_source(data, tensors, pattern ? pattern : cycle->input, cycle);
        if (status != ST_OK)
            return st_error_context(status, "input '%s'%s", cycle->input,
                                    pattern ? "" : " (--map says which tensor feeds it)");
        TRY(convert_cycle(data, cycle, plan->plan->inputs[i].type.dtype));
        TRY(stack_cycle(data, cycle, &plan->plan->inputs[i].type));
        if (cycle->numbers && numbered) TRY(check_numbers(numbered, cycle));
        if (cycle->numbers) numbered = cycle;
        if ((int64_t)cycle->n > data->n_turns) data->n_turns = (int64_t)cycle->n;
    }
    /* one tensor for an input means the same one each turn */
    for (size_t i = 0; i < data->n_feeds; i++) {
        cycle_t *cycle = &data->cycles[i];
        if ((int64_t)cycle->n == data->n_turns) continue;
        stator_tensor_t only = cycle->tensors[0];
        cycle->tensors =
            st_arena_array(&data->arena, (size_t)data->n_turns, sizeof *cycle->tensors);
        if (!cycle->tensors) return st_no_memory(0, "feeds");
        for (int64_t t = 0; t < data->n_turns; t++) cycle->tensors[t] = only;
    }
    return ST_OK;
}

/* Samples a step has: the batch extent of the first input that carries one. */
static int64_t batch_extent(const stator_plan_t *plan) {
    for (uint32_t i = 0; i < plan->plan->n_inputs; i++)
        if (plan->plan->inputs[i].type.rank > 0) return plan->plan->inputs[i].type.dims[0];
    return 1;
}

stator_status_t stator_data_tensors(const stator_plan_t *plan, const stator_tensors_t *tensors,
                                    const char *map, stator_data_t **out_data) {
    CAPI_OUT(out_data);
    CAPI_REQUIRE(plan);
    CAPI_REQUIRE(tensors);
    stator_data_t *data = NULL;
    st_status_t status = create(plan->plan->n_inputs, &data);
    if (status == ST_OK) status = tensors_source(plan, tensors, map ? map : "", data);
    if (status != ST_OK) {
        stator_data_destroy(data);
        return capi_status(status);
    }
    if (data->n_turns == 0) data->n_turns = 1;
    if (data->n_micro == 0) data->n_micro = 1;
    data->fill = fill_cycle;
    data->valid = batch_extent(plan);
    *out_data = data;
    return STATOR_OK;
}

/* ---- use ---- */

stator_status_t stator_data_next(stator_data_t *data, size_t *out_n,
                                 const stator_tensor_t **out_feeds) {
    CAPI_REQUIRE(out_n);
    *out_n = 0;
    CAPI_OUT(out_feeds);
    CAPI_REQUIRE(data);
    stator_status_t status = data->fill(data);
    *out_n = data->n_feeds;
    *out_feeds = data->feeds;
    return status;
}

int64_t stator_data_samples(const stator_data_t *data) {
    return data->cycles ? data->n_turns : data->n_samples;
}

int64_t stator_data_valid(const stator_data_t *data) {
    return data->valid;
}

int64_t stator_data_steps(const stator_data_t *data) {
    if (data->cycles) return data->n_turns > data->n_micro ? data->n_turns / data->n_micro : 1;
    if (data->shuffle) return sampler_batches(&data->sampler);
    return (data->n_samples + data->batch - 1) / data->batch;
}

void stator_data_position(const stator_data_t *data, int64_t *out_epoch, int64_t *out_sample) {
    *out_epoch = data->shuffle ? data->sampler.epoch : 0;
    *out_sample = data->cycles ? data->turn : data->shuffle ? data->sampler.index : data->next;
}

stator_status_t stator_data_seek(stator_data_t *data, int64_t epoch, int64_t sample) {
    CAPI_REQUIRE(data);
    if (epoch < 0 || sample < 0)
        return capi_status(FAIL(ST_INVALID, "position (%lld, %lld) is negative", (long long)epoch,
                                (long long)sample));
    if (data->cycles)
        data->turn = sample;
    else if (data->shuffle)
        return capi_status(sampler_seek(&data->sampler, epoch, sample));
    else
        data->next = sample;
    return STATOR_OK;
}

stator_status_t stator_data_resume(stator_data_t *data, const stator_progress_t *progress) {
    CAPI_REQUIRE(data);
    CAPI_REQUIRE(progress);
    int64_t n = stator_data_samples(data);
    if (progress->n_samples > 0 && progress->n_samples != n)
        return capi_status(FAIL(ST_INVALID,
                                "the checkpoint was trained on data of %lld samples, this data has "
                                "%lld: give the same files and the same window",
                                (long long)progress->n_samples, (long long)n));
    return stator_data_seek(data, progress->epoch, progress->sample);
}

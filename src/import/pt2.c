/* torch.export archives: from zip to graph.
 *
 *   <root>/archive_format, byteorder                     checked
 *   <root>/models/<model>.json                           the graph, its signature, the schema's
 * version <root>/data/weights/<model>_weights_config.json      name → file and layout of
 * parameters, buffers <root>/data/constants/<model>_constants_config.json  the same for what is
 * outside the state dict <root>/data/{weights,constants}/<path>               raw storage bytes
 *
 * The graph's inputs come in the order of the signature, which says what each is. */
#include "import/pt2.h"

#include <stdio.h>
#include <string.h>

#include "import/aten.h"
#include "import/pt2_meta.h"
#include "import/zip.h"
#include "ir/op.h"

enum { SCHEMA_MAJOR = 8, MAX_PATH = 512 };

/* One entry of a configuration: where the bytes of a name are. */
typedef struct stored {
    const char *name, *folder, *path; /* path NULL: the value is not in the archive */
    bool pickled;
    json_object *meta;
} stored_t;

/* A graph input that is state. */
typedef struct state {
    const char *name, *argument;
    const char *alias_of; /* the parameter it is tied to, NULL */
    uint32_t slot;
    ir_value_t value; /* the parameter, buffer or constant node */
    bool is_parameter, persistent, written;
} state_t;

typedef struct reader {
    zip_archive_t zip;
    const char *what;
    const import_options_t *options;
    import_result_t *result;
    json_object *model, *weights, *constants; /* owned */
    json_object *graph, *signature;           /* in model */
    st_arena_t arena;
    aten_t aten;
    aten_scope_t scope;
    /* items: .i is an index into `stored` / into `states` / 0 */
    aten_scope_t stored_by_name, state_by_path, names;
    ST_VEC(stored_t) stored;
    ST_VEC(state_t) states;
    pt2_sizes_t sizes;
    int64_t batch; /* dim 0 of the first user input that has one, -1 before */
} reader_t;

bool pt2_probe(const void *data, size_t bytes) {
    return zip_probe(data, bytes);
}

/* ---- the archive ---- */

static st_status_t read_json(reader_t *r, const char *name, bool required, json_object **out) {
    *out = NULL;
    const zip_entry_t *entry = zip_find(&r->zip, name);
    if (!entry) return required ? FAIL(ST_PARSE, "the archive has no '%s'", name) : ST_OK;
    const uint8_t *text;
    size_t bytes;
    TRY(zip_read(&r->zip, entry, &r->arena, &text, &bytes));
    return import_json_parse(text, bytes, name, out);
}

/* A one-word file must hold the word; a missing file is fine. */
static st_status_t check_word(reader_t *r, const char *name, const char *word) {
    const zip_entry_t *entry = zip_find(&r->zip, name);
    if (!entry) return ST_OK;
    const uint8_t *text;
    size_t bytes;
    TRY(zip_read(&r->zip, entry, &r->arena, &text, &bytes));
    if (bytes == strlen(word) && memcmp(text, word, bytes) == 0) return ST_OK;
    return FAIL(ST_UNSUPPORTED, "the archive's '%s' is '%.*s', '%s' is expected", name,
                (int)(bytes > 32 ? 32 : bytes), (const char *)text, word);
}

/* Name of the only model (its file name without the ending). */
static st_status_t find_model(reader_t *r, char out[MAX_PATH]) {
    static const char folder[] = "models/", ending[] = ".json";
    size_t root = strlen(r->zip.root), found = 0;
    for (size_t i = 0; i < r->zip.n_entries; i++) {
        const char *name = r->zip.entries[i].name + root;
        size_t length = strlen(name);
        if (length <= sizeof folder + sizeof ending - 2 || length >= MAX_PATH) continue;
        if (strncmp(name, folder, sizeof folder - 1) != 0) continue;
        if (strcmp(name + length - (sizeof ending - 1), ending) != 0) continue;
        if (found++) continue;
        size_t bytes = length - (sizeof folder - 1) - (sizeof ending - 1);
        memcpy(out, name + sizeof folder - 1, bytes);
        out[bytes] = '\0';
    }
    if (found == 1) return ST_OK;
    if (found > 1)
        return FAIL(ST_UNSUPPORTED, "the archive holds %zu models; one is expected", found);
    if (zip_find(&r->zip, "serialized_exported_program.json"))
        return FAIL(ST_UNSUPPORTED,
                    "the archive is of an older torch.export.save; export again with "
                    "PyTorch 2.8 or later");
    return FAIL(ST_PARSE, "this zip file is no torch.export archive: it has no models/*.json");
}

static st_status_t check_version(reader_t *r) {
    int64_t major = 0;
    if (!import_json_int(import_json_get(import_json_get(r->model, "schema_version"), "major"),
                         &major))
        return FAIL(ST_PARSE, "the model's JSON has no schema_version");
    if (major != SCHEMA_MAJOR)
        return FAIL(ST_UNSUPPORTED,
                    "the model's schema is version %lld, this reader knows %d; export "
                    "with another PyTorch (2.8 or later)",
                    (long long)major, SCHEMA_MAJOR);
    json_object *module = import_json_get(r->model, "graph_module");
    r->graph = import_json_get(module, "graph");
    r->sizes = (pt2_sizes_t){r->result, r->options, import_json_get(r->model, "range_constraints")};
    r->signature = import_json_get(module, "signature");
    if (!r->graph || !r->signature)
        return FAIL(ST_PARSE, "the model's JSON has no graph or no signature");
    return ST_OK;
}

static st_status_t bind_in(reader_t *r, aten_scope_t *scope, const char *name, aten_item_t item) {
    aten_scope_t *outer = r->aten.scope;
    r->aten.scope = scope;
    aten_bind(&r->aten, name, item);
    r->aten.scope = outer;
    return r->aten.b.status;
}

/* Notes where each name's bytes are. */
static st_status_t read_config(reader_t *r, json_object *root, const char *folder) {
    json_object *config = import_json_get(root, "config");
    if (!config) return ST_OK;
    if (!json_object_is_type(config, json_type_object))
        return FAIL(ST_PARSE, "the configuration of data/%s is malformed", folder);
    json_object_object_foreach(config, name, entry) {
        stored_t stored = {.name = name,
                           .folder = folder,
                           .path = import_json_string(entry, "path_name"),
                           .meta = import_json_get(entry, "tensor_meta")};
        import_json_bool(entry, "use_pickle", &stored.pickled);
        if (aten_lookup(&r->stored_by_name, name)) continue;
        TRY(bind_in(r, &r->stored_by_name, name,
                    (aten_item_t){.kind = ATEN_INT, .i = (int64_t)r->stored.n}));
        TRY(ST_VEC_PUSH(&r->stored, stored));
    }
    return ST_OK;
}

static const stored_t *find_stored(const reader_t *r, const char *name) {
    aten_item_t *item = aten_lookup(&r->stored_by_name, name);
    return item ? &r->stored.data[item->i] : NULL;
}

/* ---- values ---- */

static bool is_row_major(const pt2_meta_t *meta) {
    int64_t expected = 1;
    for (int32_t i = meta->type.rank - 1; i >= 0; i--) {
        if (meta->type.dims[i] != 1 && meta->strides[i] != expected) return false;
        expected *= meta->type.dims[i];
    }
    return true;
}

/* Number of elements of the storage that the tensor reaches, 0 if it has none; false on overflow or
 * a negative stride. */
static bool storage_reach(const pt2_meta_t *meta, int64_t *out) {
    int64_t last = meta->offset;
    *out = 0;
    if (last < 0) return false;
    for (int32_t i = 0; i < meta->type.rank; i++) {
        int64_t span = 0;
        if (meta->type.dims[i] == 0) return true;
        if (meta->strides[i] < 0 || !st_mul_i64(meta->type.dims[i] - 1, meta->strides[i], &span) ||
            !st_add_i64(last, span, &last))
            return false;
    }
    return st_add_i64(last, 1, out);
}

/* Copies a strided tensor to row-major order, counting through its index like an odometer. */
static void copy_strided(const pt2_meta_t *meta, const uint8_t *storage, uint8_t *out) {
    size_t width = ir_dtype_bytes(meta->type.dtype);
    int64_t index[IR_MAX_RANK] = {0}, at = meta->offset, n = ir_type_elements(&meta->type);
    for (int64_t e = 0; e < n; e++) {
        memcpy(out + (size_t)e * width, storage + (size_t)at * width, width);
        for (int32_t i = meta->type.rank - 1; i >= 0; i--) {
            at += meta->strides[i];
            if (++index[i] < meta->type.dims[i]) break;
            at -= meta->type.dims[i] * meta->strides[i];
            index[i] = 0;
        }
    }
}

/* Row-major bytes of a stored tensor: a pointer into the file where it is so already. */
static st_status_t load_value(reader_t *r, const stored_t *stored, pt2_meta_t *meta,
                              const void **out_data) {
    char path[MAX_PATH];
    TRY(pt2_meta_read(stored->meta, stored->name, NULL, meta));
    if (stored->pickled || !stored->path || !meta->has_strides)
        return FAIL(ST_UNSUPPORTED, "the value of '%s' is not stored as raw bytes", stored->name);
    int used = snprintf(path, sizeof path, "data/%s/%s", stored->folder, stored->path);
    const zip_entry_t *entry =
        used > 0 && (size_t)used < sizeof path ? zip_find(&r->zip, path) : NULL;
    if (!entry)
        return FAIL(ST_PARSE, "the archive has no '%s', which '%s' needs", path, stored->name);
    const uint8_t *data;
    size_t bytes, width = ir_dtype_bytes(meta->type.dtype), logical = ir_type_bytes(&meta->type);
    TRY(zip_read(&r->zip, entry, &r->result->arena, &data, &bytes));
    int64_t reach = 0;
    char text[IR_TYPE_TEXT_BYTES];
    if (!storage_reach(meta, &reach) || (uint64_t)reach > bytes / width)
        return FAIL(ST_PARSE, "'%s' needs %s at element %lld of '%s', which has %zu bytes",
                    stored->name, ir_type_text(&meta->type, text, sizeof text),
                    (long long)meta->offset, path, bytes);
    if (is_row_major(meta)) {
        *out_data = data + (reach ? (size_t)meta->offset * width : 0);
        return ST_OK;
    }
    /* strides of 0 make much of little */
    if (logical > bytes && logical - bytes > 1 << 20)
        return FAIL(ST_UNSUPPORTED, "'%s' is %s expanded from %zu bytes", stored->name,
                    ir_type_text(&meta->type, text, sizeof text), bytes);
    uint8_t *copy = st_arena_alloc(&r->result->arena, logical);
    if (!copy) return st_no_memory(logical, stored->name);
    copy_strided(meta, data, copy);
    *out_data = copy;
    return ST_OK;
}

/* ---- graph inputs ---- */

/* Two names of one storage must describe the same tensor of it to be one parameter. */
static st_status_t check_tie(const stored_t *a, const stored_t *b) {
    pt2_meta_t x, y;
    TRY(pt2_meta_read(a->meta, a->name, NULL, &x));
    TRY(pt2_meta_read(b->meta, b->name, NULL, &y));
    bool same = ir_type_equal(&x.type, &y.type) && x.offset == y.offset;
    for (int32_t i = 0; same && i < x.type.rank; i++) same = x.strides[i] == y.strides[i];
    if (same) return ST_OK;
    return FAIL(ST_UNSUPPORTED,
                "'%s' and '%s' are different views of one storage: they would have to "
                "train as one",
                a->name, b->name);
}

/* The earlier state that shares the file of `stored`, or NULL. */
static st_status_t find_tied(reader_t *r, const stored_t *stored, const state_t **out) {
    *out = NULL;
    char key[MAX_PATH];
    int used = snprintf(key, sizeof key, "%s/%s", stored->folder, stored->path ? stored->path : "");
    if (!stored->path || used < 0 || (size_t)used >= sizeof key) return ST_OK;
    aten_item_t *item = aten_lookup(&r->state_by_path, key);
    if (item) {
        *out = &r->states.data[item->i];
        return check_tie(find_stored(r, (*out)->name), stored);
    }
    const char *owned = st_arena_strdup(&r->arena, key);
    if (!owned) return st_no_memory(sizeof key, "a path");
    return bind_in(r, &r->state_by_path, owned,
                   (aten_item_t){.kind = ATEN_INT, .i = (int64_t)r->states.n});
}

static st_status_t add_tensor(reader_t *r, const state_t *state, const ir_type_t *type,
                              const void *data) {
    import_tensor_t tensor = {
        .name = st_arena_strdup(&r->result->arena, state->name),
        .type = *type,
        .data = data,
        .bytes = ir_type_bytes(type),
        .kind = state->is_parameter ? IMPORT_PARAMETER : IMPORT_BUFFER,
    };
    if (!tensor.name) return st_no_memory(0, "a name");
    return ST_VEC_PUSH(&r->result->tensors, tensor);
}

/* The type that the graph gives the argument must be the stored one. */
static st_status_t check_argument(reader_t *r, const state_t *state, const ir_type_t *type) {
    json_object *meta =
        import_json_get(import_json_get(r->graph, "tensor_values"), state->argument);
    pt2_meta_t described;
    char a[IR_TYPE_TEXT_BYTES], b[IR_TYPE_TEXT_BYTES];
    TRY(pt2_meta_read(meta, state->argument, NULL, &described));
    if (ir_type_equal(&described.type, type)) return ST_OK;
    return FAIL(ST_PARSE, "'%s' is stored as %s, the graph takes it as %s", state->name,
                ir_type_text(type, a, sizeof a), ir_type_text(&described.type, b, sizeof b));
}

/* A parameter, buffer or tensor constant of the signature. */
static st_status_t add_state(reader_t *r, const char *name, const char *argument, bool is_parameter,
                             bool persistent) {
    state_t state = {.name = name, .argument = argument, .persistent = persistent};
    const stored_t *stored = find_stored(r, name);
    if (!stored) return FAIL(ST_PARSE, "the archive has no value for '%s'", name);
    const state_t *tied = NULL;
    TRY(find_tied(r, stored, &tied));
    if (tied) {
        state = *tied;
        state.alias_of = tied->alias_of ? tied->alias_of : tied->name;
        state.name = name, state.argument = argument;
        TRY(ir_graph_add_alias(r->result->graph, name, state.alias_of));
        TRY(bind_in(r, &r->scope, argument,
                    (aten_item_t){.kind = ATEN_TENSOR, .slot = state.slot}));
        return ST_VEC_PUSH(&r->states, state);
    }
    pt2_meta_t meta;
    const void *data = NULL;
    TRY(load_value(r, stored, &meta, &data));
    TRY(check_argument(r, &state, &meta.type));
    state.is_parameter = is_parameter && meta.requires_grad && ir_dtype_is_float(meta.type.dtype);
    if (is_parameter && !state.is_parameter)
        TRY(import_note(r->result, "parameter '%s' needs no gradient: it becomes a buffer", name));
    ir_build_t *b = &r->aten.b;
    state.value =
        state.is_parameter ? ir_b_parameter(b, name, meta.type) : ir_b_buffer(b, name, meta.type);
    TRY(b->status);
    TRY(add_tensor(r, &state, &meta.type, data));
    if (!state.is_parameter && !persistent) /* a constant of the code, unless something writes it */
        TRY(import_known_set(&r->aten.known, b->graph, state.value, data));
    aten_bind_tensor(&r->aten, argument, state.value);
    TRY(b->status);
    state.slot = aten_lookup(&r->scope, argument)->slot;
    return ST_VEC_PUSH(&r->states, state);
}

static st_status_t add_user_input(reader_t *r, json_object *spec) {
    json_object *member;
    const char *tag = import_json_tag(import_json_get(spec, "arg"), &member);
    const char *name = import_json_string(member, "name");
    if (!tag) return FAIL(ST_PARSE, "an input of the signature is malformed");
    if (strcmp(tag, "as_tensor") != 0) /* a constant baked into the graph */
        return strcmp(tag, "as_none") == 0 || strncmp(tag, "as_sym", 6) != 0
                   ? ST_OK
                   : FAIL(ST_UNSUPPORTED, "an input of kind '%s': only tensors can be fed", tag);
    if (!name) return FAIL(ST_PARSE, "an input of the signature has no name");
    pt2_meta_t meta;
    TRY(pt2_meta_read(import_json_get(import_json_get(r->graph, "tensor_values"), name), name,
                      &r->sizes, &meta));
    if (meta.symbolic)
        TRY(import_note(r->result, "input '%s' has symbolic sizes: those of the example are taken",
                        name));
    if (r->batch < 0 && meta.type.rank > 0) r->batch = meta.type.dims[0];
    bool has_batch = meta.type.rank > 0 && meta.type.dims[0] == r->batch;
    if (meta.type.rank > 0 && !has_batch)
        TRY(import_note(r->result,
                        "input '%s' has %lld items and not the batch's %lld: all ranks read "
                        "all of it",
                        name, (long long)meta.type.dims[0], (long long)r->batch));
    ir_value_t value = ir_b_input(&r->aten.b, name, meta.type, has_batch ? 0 : -1);
    aten_bind_tensor(&r->aten, name, value);
    return r->aten.b.status;
}

static st_status_t unique_name(reader_t *r, const char *name) {
    st_status_t status = bind_in(r, &r->names, name, (aten_item_t){.kind = ATEN_INT});
    return status != ST_PARSE
               ? status
               : FAIL(ST_PARSE, "'%s' names two of the inputs, parameters and buffers", name);
}

static st_status_t add_input(reader_t *r, json_object *spec) {
    static const struct {
        const char *kind, *name_key;
    } kinds[] = {{"parameter", "parameter_name"},
                 {"buffer", "buffer_name"},
                 {"tensor_constant", "tensor_constant_name"}};
    json_object *member;
    const char *tag = import_json_tag(spec, &member);
    if (!tag) return FAIL(ST_PARSE, "an input of the signature is malformed");
    for (int i = 0; i < 3; i++) {
        if (strcmp(tag, kinds[i].kind) != 0) continue;
        const char *name = import_json_string(member, kinds[i].name_key);
        const char *argument = import_json_string(import_json_get(member, "arg"), "name");
        bool persistent = i == 0;
        if (i == 1) import_json_bool(member, "persistent", &persistent);
        if (!name || !argument) return FAIL(ST_PARSE, "a %s of the signature has no name", tag);
        TRY(unique_name(r, name));
        return add_state(r, name, argument, i == 0, persistent);
    }
    if (strcmp(tag, "user_input") == 0) {
        json_object *arg;
        import_json_tag(import_json_get(member, "arg"), &arg);
        const char *name = import_json_string(arg, "name");
        if (name) TRY(unique_name(r, name));
        return add_user_input(r, member);
    }
    if (strcmp(tag, "constant_input") == 0) return ST_OK;
    return FAIL(ST_UNSUPPORTED, "the signature has an input of kind '%s', which is not supported",
                tag);
}

/* ---- outputs ---- */

static st_status_t output_value(reader_t *r, const char *name, ir_value_t *out) {
    aten_item_t *item = name ? aten_lookup(&r->scope, name) : NULL;
    if (!item || item->kind != ATEN_TENSOR)
        return FAIL(ST_PARSE, "the graph's output '%s' is none of its tensors", name ? name : "?");
    *out = aten_slot_value(&r->aten, item->slot);
    return r->aten.b.status;
}

/* Functional graphs list what they change: the buffer takes the output's value. */
static st_status_t apply_mutation(reader_t *r, json_object *spec) {
    const char *buffer = import_json_string(spec, "buffer_name");
    ir_value_t value = IR_NONE;
    TRY(output_value(r, import_json_string(import_json_get(spec, "arg"), "name"), &value));
    for (size_t i = 0; buffer && i < r->states.n; i++) {
        state_t *state = &r->states.data[i];
        if (strcmp(state->name, buffer) != 0) continue;
        r->aten.node_name = buffer;
        aten_mutate(&r->aten, state->slot, value);
        return r->aten.b.status;
    }
    return FAIL(ST_PARSE, "the signature changes a buffer '%s' that it does not have",
                buffer ? buffer : "?");
}

static bool is_loss(const reader_t *r, ir_value_t value) {
    const ir_type_t *type = ir_value_type(r->result->graph, value);
    return type->rank == 0 && ir_dtype_is_float(type->dtype);
}

/* Names outputs as the graph does, but the only scalar float among them "loss". */
static st_status_t add_outputs(reader_t *r, json_object *specs) {
    size_t n = json_object_array_length(specs), n_losses = 0, n_outputs = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            json_object *member, *arg;
            const char *tag = import_json_tag(json_object_array_get_idx(specs, i), &member);
            bool user = tag && strcmp(tag, "user_output") == 0;
            if (!user && !(tag && strcmp(tag, "loss_output") == 0)) continue;
            const char *kind =
                user ? import_json_tag(import_json_get(member, "arg"), &arg) : "as_tensor";
            if (!user) arg = import_json_get(member, "arg");
            if (!kind || strcmp(kind, "as_tensor") != 0)
                continue; /* numbers and None carry nothing */
            const char *name = import_json_string(arg, "name");
            ir_value_t value = IR_NONE;
            TRY(output_value(r, name, &value));
            if (pass == 0) {
                n_losses += is_loss(r, value);
                continue;
            }
            bool loss = n_losses == 1 && is_loss(r, value);
            TRY(ir_graph_add_output(r->result->graph, loss ? "loss" : name, value));
            n_outputs++;
        }
    }
    return n_outputs ? ST_OK : FAIL(ST_UNSUPPORTED, "the model returns no tensor");
}

static st_status_t read_outputs(reader_t *r) {
    json_object *specs = import_json_array(r->signature, "output_specs");
    if (!specs) return FAIL(ST_PARSE, "the signature has no outputs");
    for (size_t i = 0; i < json_object_array_length(specs); i++) {
        json_object *member;
        const char *tag = import_json_tag(json_object_array_get_idx(specs, i), &member);
        if (!tag) return FAIL(ST_PARSE, "an output of the signature is malformed");
        if (strcmp(tag, "user_output") == 0 || strcmp(tag, "loss_output") == 0 ||
            strcmp(tag, "user_input_mutation") == 0)
            continue;
        if (strcmp(tag, "buffer_mutation") != 0)
            return FAIL(ST_UNSUPPORTED,
                        "the signature has an output of kind '%s', which is not "
                        "supported",
                        tag);
        TRY(apply_mutation(r, member));
    }
    return add_outputs(r, specs);
}

/* Buffers take their new values at the end of the step. */
static st_status_t add_updates(reader_t *r) {
    ir_build_t *b = &r->aten.b;
    for (size_t i = 0; i < r->states.n; i++) {
        state_t *state = &r->states.data[i];
        const aten_slot_t *slot = &r->aten.slots.data[state->slot];
        const aten_storage_t *storage = &r->aten.storages.data[slot->storage];
        state->written = storage->version > 0;
        if (!state->written || state->alias_of) continue;
        if (state->is_parameter)
            return FAIL(ST_UNSUPPORTED, "node '%s' changes parameter '%s': only the optimizer may",
                        storage->changed_by, state->name);
        if (state->value < r->aten.known.values.n && r->aten.known.values.data[state->value].used)
            return FAIL(ST_UNSUPPORTED,
                        "how often a loop runs depends on '%s', which node '%s' changes",
                        state->name, storage->changed_by);
        ir_value_t value = aten_slot_value(&r->aten, state->slot);
        ir_b_update(b, state->value, value);
        TRY(b->status);
    }
    if (r->aten.random_step != IR_NONE)
        ir_b_update(b, r->aten.random_step,
                    ir_b_binary(b, IR_OP_ADD, r->aten.random_step, ir_b_scalar(b, IR_I64, 1)));
    return b->status;
}

/* ---- buffers that are constants ---- */

/* Buffers outside the state dict (rotary tables, masks) that nothing changes: no weights file has
 * them, so they become constants, which fold. */
static bool becomes_constant(const state_t *state) {
    return !state->is_parameter && !state->persistent && !state->written && !state->alias_of;
}

static const import_tensor_t *find_tensor(const reader_t *r, const char *name) {
    for (size_t i = 0; i < r->result->tensors.n; i++)
        if (strcmp(r->result->tensors.data[i].name, name) == 0) return &r->result->tensors.data[i];
    return NULL;
}

typedef struct freeze {
    const reader_t *reader;
    bool *frozen; /* [nodes] */
} freeze_t;

static st_status_t freeze_or_clone(void *context, ir_graph_t *to, const ir_graph_t *from,
                                   ir_node_t i, ir_value_t *map) {
    const freeze_t *freeze = context;
    const ir_node_info_t *node = ir_node(from, i);
    const import_tensor_t *tensor =
        freeze->frozen[i] ? find_tensor(freeze->reader, node->name) : NULL;
    if (!tensor) return ir_graph_clone_node(to, from, i, NULL, map);
    ir_build_t b = {.graph = to, .name = node->name};
    map[node->first_output] = ir_b_constant(&b, tensor->type, tensor->data, tensor->bytes);
    return b.status;
}

/* Copies the graph with those buffers replaced. */
static st_status_t freeze_buffers(reader_t *r) {
    ir_graph_t *from = r->result->graph, *to = NULL;
    freeze_t freeze = {r, st_calloc(from->nodes.n, sizeof *freeze.frozen)};
    if (!freeze.frozen) return st_no_memory(from->nodes.n * sizeof *freeze.frozen, "a graph");
    for (size_t i = 0; i < r->states.n; i++)
        if (becomes_constant(&r->states.data[i]))
            freeze.frozen[from->values.data[r->states.data[i].value].producer] = true;
    st_status_t status = ir_graph_rewrite(from, NULL, freeze_or_clone, &freeze, &to);
    st_free(freeze.frozen);
    if (status != ST_OK) return status;
    r->result->graph = to;
    ir_graph_destroy(from);
    return ST_OK;
}

/* Drops the constants from the tensors, and gives the rest their other names. */
static st_status_t finish_tensors(reader_t *r) {
    import_result_t *result = r->result;
    size_t kept = 0;
    for (size_t i = 0; i < result->tensors.n; i++) {
        ir_node_t node = ir_graph_find(result->graph, result->tensors.data[i].name);
        if (node != IR_NONE) result->tensors.data[kept++] = result->tensors.data[i];
    }
    result->tensors.n = kept;
    const ir_graph_t *graph = result->graph;
    for (size_t i = 0; i < kept && graph->aliases.n; i++) {
        import_tensor_t *tensor = &result->tensors.data[i];
        uint32_t n = 0;
        const char **names = st_arena_array(&result->arena, graph->aliases.n, sizeof *names);
        if (!names) return st_no_memory(graph->aliases.n * sizeof *names, "aliases");
        for (size_t j = 0; j < graph->aliases.n; j++)
            if (strcmp(graph->aliases.data[j].stored, tensor->name) == 0)
                names[n++] = st_arena_strdup(&result->arena, graph->aliases.data[j].name);
        tensor->aliases = names;
        tensor->n_aliases = n;
    }
    return ST_OK;
}

static st_status_t add_random_tensors(reader_t *r) {
    static const int64_t zero = 0;
    if (r->aten.random_seed == IR_NONE) return ST_OK;
    ir_type_t type = ir_type_scalar(IR_I64);
    TRY(add_tensor(r, &(state_t){.name = "random.seed"}, &type, &zero));
    return add_tensor(r, &(state_t){.name = "random.step"}, &type, &zero);
}

/* ---- the whole ---- */

static st_status_t read_model(reader_t *r) {
    char model[MAX_PATH - 64], path[MAX_PATH];
    TRY(check_word(r, "archive_format", "pt2"));
    TRY(check_word(r, "byteorder", "little"));
    TRY(find_model(r, path));
    if (strlen(path) >= sizeof model) return FAIL(ST_PARSE, "the model's name is too long");
    strcpy(model, path);
    snprintf(path, sizeof path, "models/%s.json", model);
    TRY(read_json(r, path, true, &r->model));
    TRY(check_version(r));
    snprintf(path, sizeof path, "data/weights/%s_weights_config.json", model);
    TRY(read_json(r, path, false, &r->weights));
    TRY(read_config(r, r->weights, "weights"));
    snprintf(path, sizeof path, "data/constants/%s_constants_config.json", model);
    TRY(read_json(r, path, false, &r->constants));
    TRY(read_config(r, r->constants, "constants"));
    return aten_check_supported(r->graph);
}

static st_status_t make_graph(reader_t *r, const char *path) {
    const char *name = r->options->name, *version = import_json_string(r->model, "torch_version");
    if (!name && path) name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    TRY(ir_graph_create(name ? name : r->what, &r->result->graph));
    ir_graph_t *graph = r->result->graph;
    graph->producer = st_arena_printf(&graph->arena, "pytorch %.64s", version ? version : "?");
    if (!graph->producer) return st_no_memory(64, "a graph");
    r->aten.b.graph = graph;
    return ST_OK;
}

static st_status_t read_archive(reader_t *r, const char *path) {
    TRY(read_model(r));
    TRY(make_graph(r, path));
    r->scope.tensor_values = import_json_get(r->graph, "tensor_values");
    json_object *inputs = import_json_array(r->signature, "input_specs");
    if (!inputs) return FAIL(ST_PARSE, "the signature has no inputs");
    for (size_t i = 0; i < json_object_array_length(inputs); i++)
        TRY(add_input(r, json_object_array_get_idx(inputs, i)));
    aten_run(&r->aten, r->graph);
    TRY(r->aten.b.status);
    TRY(read_outputs(r));
    TRY(add_updates(r));
    TRY(add_random_tensors(r));
    TRY(freeze_buffers(r));
    return finish_tensors(r);
}

st_status_t pt2_read(const char *path, const void *data, size_t bytes, const char *what,
                     const import_options_t *options, import_result_t *result) {
    reader_t r = {.what = what, .options = options, .result = result, .batch = -1};
    r.aten = (aten_t){.result = result,
                      .sizes = &r.sizes,
                      .arena = &r.arena,
                      .scope = &r.scope,
                      .node_name = "",
                      .random_seed = IR_NONE,
                      .random_step = IR_NONE,
                      .known_left = IMPORT_KNOWN_TOTAL};
    r.aten.known = (import_knowns_t){.arena = &r.arena, .left = &r.aten.known_left};
    st_status_t status = zip_open(data, bytes, what, &r.zip);
    if (status != ST_OK) return status;
    status = read_archive(&r, path);
    if (status != ST_OK) status = st_error_context(status, "%s", what);
    aten_free(&r.aten);
    ST_VEC_FREE(&r.stored);
    ST_VEC_FREE(&r.states);
    json_object_put(r.model);
    json_object_put(r.weights);
    json_object_put(r.constants);
    st_arena_clear(&r.arena);
    zip_close(&r.zip);
    return status;
}

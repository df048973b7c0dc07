/* ONNX models: from bytes to graph.
 *
 *   guard      a walk over the wire format that bounds nesting and the memory that unpacking takes;
 *              nothing of the file is unpacked before it has passed
 *   unpack     the reader that protoc-c makes from the system's onnx.proto
 *   inputs     of the graph, with fixed shapes
 *   nodes      in their order, by the table; an initializer enters the graph where it is first
 *              read: as a buffer if it holds running statistics, as a parameter or constant
 *              otherwise
 *   outputs    the only scalar float is called "loss"
 *   prune      shape arithmetic and other nodes that nothing reads are left out */
#include "import/onnx.h"

#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "import/onnx_guard.h"
#include "import/onnx_reader.h"
#include "ir/op.h"

/* ---- names ---- */

onnx_value_t *onnx_lookup(onnx_t *o, const char *name) {
    uint32_t index;
    if (st_map_get_string(&o->names, name, &index)) return &o->values.data[index];
    const onnx_value_t *around = o->outer && onnx_ok(o) ? onnx_lookup(o->outer, name) : NULL;
    if (!around) return NULL;
    onnx_value_t value = {.name = around->name,
                          .value = IR_NONE,
                          .initializer = around->initializer,
                          .outside = true};
    o->b.status = onnx_add_name(o, value, "a value");
    return onnx_ok(o) ? &o->values.data[o->values.n - 1] : NULL;
}

st_status_t onnx_add_name(onnx_t *o, onnx_value_t value, const char *what) {
    bool added;
    if (!value.name || !value.name[0]) return FAIL(ST_PARSE, "%s has no name", what);
    TRY(st_map_add_string(&o->names, value.name, (uint32_t)o->values.n, &added));
    if (!added) return FAIL(ST_PARSE, "%s '%.128s': another value has that name", what, value.name);
    value.setting = IR_NONE;
    return ST_VEC_PUSH(&o->values, value);
}

/* ---- initializers ---- */

/* `name` is `other`, or one of them with a dotted prefix: weights files may drop a leading
 * "model.". */
static bool names_agree(const char *name, const char *other) {
    size_t a = strlen(name), b = strlen(other);
    const char *longer = a > b ? name : other, *shorter = a > b ? other : name;
    size_t extra = a > b ? a - b : b - a;
    if (strcmp(longer + extra, shorter) != 0) return false;
    return extra == 0 || longer[extra - 1] == '.';
}

static bool matches_pattern(const onnx_t *o, const char *name) {
    for (size_t i = 0; i < o->options->n_constant_patterns; i++)
        if (st_glob(o->options->constant_patterns[i], name)) return true;
    return false;
}

/* A pattern without a match is a slip: the parameter it was meant for would silently train. */
static st_status_t check_patterns(const onnx_t *o) {
    for (size_t i = 0; i < o->options->n_constant_patterns; i++) {
        const char *pattern = o->options->constant_patterns[i];
        bool found = false;
        for (size_t j = 0; j < o->values.n && !found; j++)
            found = o->values.data[j].initializer && st_glob(pattern, o->values.data[j].name);
        if (!found)
            return FAIL(ST_INVALID,
                        "option 'constant': no initializer of the %zu matches the pattern '%.128s'",
                        o->graph->n_initializer, pattern);
    }
    return ST_OK;
}

static bool is_named(const onnx_t *o, const char *name) {
    for (size_t i = 0; i < o->options->n_weight_names; i++)
        if (names_agree(o->options->weight_names[i], name)) return true;
    return false;
}

static void add_tensor(onnx_t *o, const char *name, const ir_type_t *type, const void *data,
                       import_kind_t kind) {
    import_tensor_t tensor = {
        .name = name, .type = *type, .data = data, .bytes = ir_type_bytes(type), .kind = kind};
    if (onnx_ok(o)) o->b.status = ST_VEC_PUSH(&o->result->tensors, tensor);
}

/* The whole model's parameters are in its own graph. */
static ir_value_t enter_outside(onnx_t *o, onnx_value_t *value) {
    onnx_t *model = o;
    const char *name = value->name;
    while (model->outer) model = model->outer;
    o->b.status = onnx_add_name(
        model, (onnx_value_t){.name = name, .value = IR_NONE, .initializer = value->initializer},
        "an initializer of a graph in a node");
    ir_value_t made = onnx_outside(o, name);
    if (onnx_ok(o)) onnx_lookup(o, name)->value = made;
    return made;
}

/* What an initializer becomes when it is first read. ONNX does not tell parameters from constants:
 * floating ones are parameters unless the weights' names or a pattern say otherwise. */
static ir_value_t enter(onnx_t *o, onnx_value_t *value) {
    const char *name = value->name;
    ir_type_t type;
    const void *data;
    o->b.status = onnx_tensor_read(o, value->initializer, name, &type, &data);
    if (!onnx_ok(o)) return IR_NONE;
    bool weights_known = o->options->weight_names != NULL;
    bool is_parameter = ir_dtype_is_float(type.dtype) && !matches_pattern(o, name);
    bool trains = is_parameter && (!weights_known || is_named(o, name));
    ir_build_t *b = &o->b;
    if (o->outer && (trains || value->is_buffer)) return enter_outside(o, value);
    if (value->is_buffer && ir_dtype_is_float(type.dtype)) {
        value->value = ir_b_buffer(b, name, type);
        add_tensor(o, name, &type, data, IMPORT_BUFFER);
    } else if (trains) {
        ir_arg_t args[] = {IR_ARG_DTYPE("dtype", type.dtype),
                           IR_ARG_INTS("shape", type.dims, type.rank),
                           IR_ARG_BOOL("assumed", !weights_known)};
        b->status = ir_graph_add(b->graph, IR_OP_PARAMETER, name, 0, NULL, 3, args, &value->value);
        add_tensor(o, name, &type, data, IMPORT_PARAMETER);
        if (!weights_known && type.rank == 0 && onnx_ok(o))
            b->status = ST_VEC_PUSH(&o->all->scalars, name);
    } else {
        value->value = ir_b_constant(b, type, data, ir_type_bytes(&type));
        if (is_parameter && onnx_ok(o)) b->status = ST_VEC_PUSH(&o->all->frozen, name);
    }
    return value->value;
}

ir_value_t onnx_named(onnx_t *o, const char *name) {
    if (!onnx_ok(o)) return IR_NONE;
    onnx_value_t *value = onnx_lookup(o, name);
    if (!value) { /* does nothing after a failure */
        onnx_fail(o, ST_PARSE,
                  "nothing before it makes the value '%.128s': the nodes are out of order, form a "
                  "cycle, or the file is incomplete",
                  name);
        return IR_NONE;
    }
    if (value->value == IR_NONE && value->outside) {
        ir_value_t made = onnx_outside(o, name);
        if (onnx_ok(o)) onnx_lookup(o, name)->value = made;
        return made;
    }
    return value->value != IR_NONE ? value->value : enter(o, value);
}

st_status_t onnx_add_initializers(onnx_t *o) {
    const Onnx__GraphProto *graph = o->graph;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];
        TRY(onnx_add_name(
            o, (onnx_value_t){.name = tensor->name, .value = IR_NONE, .initializer = tensor},
            "an initializer"));
    }
    if (graph->n_sparse_initializer)
        return FAIL(ST_UNSUPPORTED, "the graph has %zu sparse initializers",
                    graph->n_sparse_initializer);
    return ST_OK;
}

/* Running statistics are the initializers that BatchNormalization reads as mean and variance, also
 * through Identity nodes (exporters put them where tensors are equal). */
static st_status_t mark_buffers(onnx_t *o) {
    st_map_t same = {0};
    st_status_t status = ST_OK;
    for (size_t i = 0; i < o->graph->n_node && status == ST_OK; i++) {
        const Onnx__NodeProto *node = o->graph->node[i];
        bool is_norm = strcmp(node->op_type, "BatchNormalization") == 0;
        if (!is_norm && strcmp(node->op_type, "Identity") != 0) continue;
        for (size_t j = is_norm ? 3 : 0; j < node->n_input && j < (is_norm ? 5u : 1u); j++) {
            uint32_t index, found;
            const char *input = node->input[j];
            if (!st_map_get_string(&same, input, &index) &&
                !st_map_get_string(&o->names, input, &index))
                continue;
            if (!o->values.data[index].initializer) continue;
            if (is_norm)
                o->values.data[index].is_buffer = true;
            else if (node->n_output)
                status = st_map_add(&same, node->output[0], strlen(node->output[0]), index, &found);
        }
    }
    st_map_free(&same);
    return status;
}

/* ---- inputs ---- */

/* A dim with a name: letters, digits and underscores of it are the symbol's. */
static st_status_t named_size(onnx_t *o, const char *given, int64_t *out_size) {
    enum { LONGEST_NAME = 64, EXAMPLE = 8 };
    char name[LONGEST_NAME];
    size_t n = 0;
    for (; given[n] && n + 1 < sizeof name; n++) {
        bool letter = (given[n] >= 'a' && given[n] <= 'z') || (given[n] >= 'A' && given[n] <= 'Z');
        bool digit = given[n] >= '0' && given[n] <= '9';
        name[n] = letter || (digit && n) ? given[n] : '_';
    }
    name[n] = '\0';
    return import_size(o->result, o->options, &(ir_symbol_t){name, 1, INT64_MAX, EXAMPLE},
                       out_size);
}

static st_status_t input_type(onnx_t *o, const Onnx__ValueInfoProto *input, ir_type_t *out) {
    const char *name = input->name;
    if (!input->type || input->type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET)
        return FAIL(ST_PARSE, "input '%.128s' has no type", name);
    if (input->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return FAIL(ST_UNSUPPORTED, "input '%.128s' is no tensor", name);
    const Onnx__TypeProto__Tensor *tensor = input->type->tensor_type;
    ir_dtype_t dtype = onnx_dtype(tensor->elem_type);
    if (dtype == IR_DTYPE_NONE)
        return FAIL(ST_UNSUPPORTED,
                    "input '%.128s' has elements of type %s (%d), which is not supported", name,
                    onnx_dtype_name(tensor->elem_type), (int)tensor->elem_type);
    if (!tensor->shape) return FAIL(ST_UNSUPPORTED, "input '%.128s' has no shape", name);
    if (tensor->shape->n_dim > IR_MAX_RANK)
        return FAIL(ST_UNSUPPORTED, "input '%.128s' has %zu dims, the limit is %d", name,
                    tensor->shape->n_dim, IR_MAX_RANK);
    *out = ir_type_make(dtype, 0, NULL);
    for (size_t i = 0; i < tensor->shape->n_dim; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[i];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
            dim->dim_param[0]) {
            TRY(named_size(o, dim->dim_param, &out->dims[out->rank]));
            out->rank++;
            continue;
        }
        if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
            return FAIL(ST_UNSUPPORTED, "dim %zu of input '%.128s' has no size", i, name);
        out->dims[out->rank++] = dim->dim_value;
    }
    st_status_t status = ir_type_check(out);
    return status == ST_OK ? ST_OK : st_error_context(status, "input '%.128s'", name);
}

/* Inputs with as many items as the first that has dims carry the batch. Up to IR version 3 files
 * list initializers among the inputs; they are no inputs. */
static st_status_t add_inputs(onnx_t *o) {
    int64_t batch = -1;
    for (size_t i = 0; i < o->graph->n_input; i++) {
        const Onnx__ValueInfoProto *input = o->graph->input[i];
        ir_type_t type;
        const onnx_value_t *known = input->name ? onnx_lookup(o, input->name) : NULL;
        if (known && known->initializer) continue;
        if (!input->name || !input->name[0]) return FAIL(ST_PARSE, "input %zu has no name", i);
        TRY(input_type(o, input, &type));
        if (batch < 0 && type.rank > 0) batch = type.dims[0];
        bool has_batch = type.rank > 0 && type.dims[0] == batch;
        if (type.rank > 0 && !has_batch)
            TRY(import_note(
                o->result,
                "input '%.128s' has %lld items and not the batch's %lld: all ranks read "
                "all of it",
                input->name, (long long)type.dims[0], (long long)batch));
        TRY(onnx_add_name(o, (onnx_value_t){.name = input->name, .value = IR_NONE}, "an input"));
        ir_value_t value = ir_b_input(&o->b, input->name, type, has_batch ? 0 : -1);
        o->values.data[o->values.n - 1].value = value;
        TRY(o->b.status);
    }
    return ST_OK;
}

/* ---- nodes ---- */

/* An attribute that no handler looked at may change the meaning. */
static void check_attributes(onnx_t *o) {
    for (size_t i = 0; i < o->node->n_attribute && onnx_ok(o); i++)
        if (i >= 64 || !(o->used >> i & 1))
            onnx_fail(o, ST_UNSUPPORTED, "attribute '%.64s' is not supported",
                      o->node->attribute[i]->name ? o->node->attribute[i]->name : "?");
}

st_status_t onnx_run_node(onnx_t *o, size_t index) {
    const Onnx__NodeProto *node = o->graph->node[index];
    bool known;
    o->node = node;
    o->op = onnx_find_op(node->op_type, o->opset, &known);
    o->used = 0;
    o->n_returned = 0;
    o->b.name = node->name && node->name[0] ? node->name : NULL;
    o->op->handle(o);
    check_attributes(o);
    for (size_t k = o->n_returned; k < node->n_output && onnx_ok(o); k++)
        if (onnx_wants(o, k))
            onnx_fail(o, ST_UNSUPPORTED, "output %zu ('%.128s') is not supported", k,
                      node->output[k]);
    if (onnx_ok(o)) return ST_OK;
    return st_error_context(o->b.status, "node %zu '%.128s' (%s)", index,
                            node->name ? node->name : "", node->op_type);
}

/* ---- outputs ---- */

static bool is_loss(const onnx_t *o, ir_value_t value) {
    const ir_type_t *type = ir_value_type(o->b.graph, value);
    return type->rank == 0 && ir_dtype_is_float(type->dtype);
}

/* Outputs keep their names, but the only scalar float among them is "loss". */
static st_status_t add_outputs(onnx_t *o) {
    size_t n = o->graph->n_output, n_losses = 0;
    bool taken = false;
    if (n == 0) return FAIL(ST_PARSE, "the graph has no outputs");
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            const char *name = o->graph->output[i]->name;
            if (!name || !name[0]) return FAIL(ST_PARSE, "output %zu has no name", i);
            ir_value_t value = onnx_named(o, name);
            if (!onnx_ok(o)) return st_error_context(o->b.status, "output '%.128s'", name);
            bool loss = is_loss(o, value);
            if (pass == 0) {
                n_losses += loss;
                taken |= !loss && strcmp(name, "loss") == 0;
                continue;
            }
            bool rename = loss && n_losses == 1 && !taken;
            TRY(ir_graph_add_output(o->b.graph, rename ? "loss" : name, value));
        }
    }
    return ST_OK;
}

static st_status_t add_random_update(onnx_t *o) {
    static const int64_t zero = 0;
    ir_build_t *b = &o->b;
    ir_type_t type = ir_type_scalar(IR_I64);
    if (o->all->random_step == IR_NONE) return ST_OK;
    ir_b_update(b, o->all->random_step,
                ir_b_binary(b, IR_OP_ADD, o->all->random_step, ir_b_scalar(b, IR_I64, 1)));
    add_tensor(o, "random.seed", &type, &zero, IMPORT_BUFFER);
    add_tensor(o, "random.step", &type, &zero, IMPORT_BUFFER);
    return b->status;
}

/* ---- pruning ---- */

/* Marks what outputs and updates need. Inputs stay in any case: they are the model's signature. */
static void mark_live(const ir_graph_t *graph, bool *live) {
    for (size_t i = 0; i < graph->outputs.n; i++)
        live[graph->values.data[graph->outputs.data[i].value].producer] = true;
    for (size_t i = graph->nodes.n; i-- > 0;) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        live[i] |= node->op == IR_OP_UPDATE || node->op == IR_OP_INPUT;
        for (uint32_t j = 0; live[i] && j < node->n_inputs; j++)
            live[graph->values.data[node->inputs[j]].producer] = true;
    }
}

static st_status_t clone_if_live(void *context, ir_graph_t *to, const ir_graph_t *from,
                                 ir_node_t node, ir_value_t *map) {
    const bool *live = context;
    return live[node] ? ir_graph_clone_node(to, from, node, NULL, map) : ST_OK;
}

/* Copies the graph without the nodes that nothing needs, and drops their tensors. */
static st_status_t prune(onnx_t *o) {
    ir_graph_t *from = o->result->graph, *to = NULL;
    bool *live = st_arena_array(o->arena, from->nodes.n + 1, sizeof *live);
    if (!live) return st_no_memory(from->nodes.n * sizeof *live, "a graph");
    mark_live(from, live);
    TRY(ir_graph_rewrite(from, NULL, clone_if_live, live, &to));
    o->result->graph = to;
    ir_graph_destroy(from);
    size_t kept = 0;
    for (size_t i = 0; i < o->result->tensors.n; i++)
        if (ir_graph_find(to, o->result->tensors.data[i].name) != IR_NONE)
            o->result->tensors.data[kept++] = o->result->tensors.data[i];
    o->result->tensors.n = kept;
    return ST_OK;
}

/* ---- the whole ---- */

static st_status_t check_opset(onnx_t *o) {
    for (size_t i = 0; i < o->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = o->model->opset_import[i];
        bool own = !set->domain || !set->domain[0] || strcmp(set->domain, "ai.onnx") == 0;
        if (own && set->version > o->opset) o->opset = set->version;
    }
    if (o->opset == 0) return FAIL(ST_PARSE, "the model names no opset");
    if (o->opset >= ONNX_FIRST_OPSET && o->opset <= ONNX_LAST_OPSET) return ST_OK;
    return FAIL(ST_UNSUPPORTED,
                "the model is of opset %lld; %d to %d are supported: convert or export it again",
                (long long)o->opset, ONNX_FIRST_OPSET, ONNX_LAST_OPSET);
}

static st_status_t make_graph(onnx_t *o, const char *what) {
    const char *name = o->options->name ? o->options->name : o->path ? o->path : what;
    const char *slash = o->options->name ? NULL : strrchr(name, '/');
    TRY(ir_graph_create(slash ? slash + 1 : name, &o->result->graph));
    ir_graph_t *graph = o->result->graph;
    const char *producer = o->model->producer_name, *version = o->model->producer_version;
    graph->producer = st_arena_printf(&graph->arena, "%.64s%s%.64s", producer ? producer : "",
                                      version && version[0] ? " " : "", version ? version : "");
    if (!graph->producer) return st_no_memory(64, "a graph");
    o->b.graph = graph;
    return ST_OK;
}

/* One line: `what`, then the names. */
static st_status_t note_names(onnx_t *o, const char *what, size_t n, const char *const *names) {
    if (n == 0) return ST_OK;
    size_t bytes = strlen(what) + 1, used;
    for (size_t i = 0; i < n; i++) bytes += strlen(names[i]) + 2;
    char *line = st_arena_alloc(&o->result->arena, bytes);
    if (!line) return st_no_memory(bytes, "a note");
    used = (size_t)snprintf(line, bytes, "%s", what);
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(line + used, bytes - used, "%s%s", i ? ", " : "", names[i]);
    return ST_VEC_PUSH(&o->result->messages, (const char *)line);
}

static st_status_t read_model(onnx_t *o, const char *what) {
    o->graph = o->model->graph;
    if (!o->graph) return FAIL(ST_PARSE, "the model has no graph");
    TRY(check_opset(o));
    TRY(onnx_check_supported(o));
    TRY(make_graph(o, what));
    TRY(onnx_add_initializers(o));
    TRY(check_patterns(o));
    TRY(mark_buffers(o));
    TRY(add_inputs(o));
    for (size_t i = 0; i < o->graph->n_node; i++) TRY(onnx_run_node(o, i));
    o->b.name = NULL;
    TRY(add_outputs(o));
    TRY(add_random_update(o));
    TRY(prune(o));
    if (o->model->n_training_info)
        TRY(import_note(o->result, "the model's own training_info is not used"));
    TRY(note_names(o, "constants, as the weights do not name them: ", o->all->frozen.n,
                   o->all->frozen.data));
    return note_names(
        o, "scalars taken as parameters (option 'constant' takes patterns of constants): ",
        o->all->scalars.n, o->all->scalars.data);
}

st_status_t onnx_read(const char *path, const void *data, size_t bytes, const char *what,
                      const import_options_t *options, import_result_t *result) {
    st_arena_t arena = {0};
    onnx_shared_t all = {
        .known_left = IMPORT_KNOWN_TOTAL, .random_seed = IR_NONE, .random_step = IR_NONE};
    import_knowns_t known = {.arena = &arena, .left = &all.known_left};
    onnx_t o = {.result = result,
                .options = options,
                .path = path,
                .arena = &arena,
                .known = &known,
                .all = &all};
    st_status_t status = onnx_unpack(data, bytes, &result->arena, &o.model);
    if (status == ST_OK) status = read_model(&o, what);
    if (status != ST_OK) status = st_error_context(status, "%s", what);
    st_map_free(&o.names);
    ST_VEC_FREE(&o.values);
    ST_VEC_FREE(&known.values);
    ST_VEC_FREE(&all.files);
    ST_VEC_FREE(&all.frozen);
    ST_VEC_FREE(&all.scalars);
    st_arena_clear(&arena);
    return status;
}

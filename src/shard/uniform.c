/* The uniform plans as restrictions of a model's labels (uniform.h). */
#include "shard/uniform.h"

#include <string.h>

typedef enum rule {
    ANY = 0,
    WHOLE,
    SPLIT, /* of inputs: along the batch; of states: along any dim; of products: in parts of the
            * batch */
    OTHER, /* of inputs: along another dim; of products: in parts of anything else */
} rule_t;

typedef struct form {
    const char *name;
    rule_t inputs, weights, moments, products;
} form_t;

static const form_t forms[] = {
    {"dp", SPLIT, WHOLE, WHOLE, SPLIT},      {"zero1", SPLIT, WHOLE, SPLIT, SPLIT},
    {"zero3", SPLIT, SPLIT, SPLIT, SPLIT},   {"tp", WHOLE, ANY, ANY, OTHER},
    {"context", OTHER, WHOLE, SPLIT, OTHER}, {"none", WHOLE, WHOLE, WHOLE, WHOLE},
};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

const char *shard_uniform_name(uint32_t form) {
    return form < N_FORMS ? forms[form].name : NULL;
}

/* Numbers of granules that mark a form's splits: of the inputs' batch, or of their other dims. */
typedef struct marks {
    uint32_t n;
    int64_t granules[8];
} marks_t;

static bool is_marked(const marks_t *marks, ir_placement_t placement) {
    for (uint32_t i = 0; i < marks->n; i++)
        if (placement.kind == IR_SPLIT && placement.granules == marks->granules[i]) return true;
    return false;
}

static rule_t rule_of_input(const ir_node_info_t *node, const ir_strategy_t *way) {
    if (way->out[0].kind != IR_SPLIT) return WHOLE;
    return way->out[0].dim == ir_attr_int(node, "batch_axis") ? SPLIT : OTHER;
}

/* Of the dims of inputs that a rule splits. */
static marks_t find_marks(const shard_model_t *model, const ir_graph_t *graph, rule_t rule) {
    marks_t marks = {0};
    for (uint32_t c = 0; c < shard_model_n_classes(model); c++) {
        const ir_strategy_t *ways;
        uint32_t n_ways;
        const ir_node_info_t *node = ir_node(graph, shard_model_node(model, c, &n_ways, &ways));
        for (uint32_t x = 0; node->op == IR_OP_INPUT && x < n_ways; x++)
            if (rule_of_input(node, &ways[x]) == rule && !is_marked(&marks, ways[x].out[0]) &&
                marks.n < sizeof marks.granules / sizeof marks.granules[0])
                marks.granules[marks.n++] = ways[x].out[0].granules;
    }
    return marks;
}

/* What a way of a product is: whole, in parts that are marked, or in others. */
static rule_t rule_of_product(const ir_node_info_t *node, const ir_strategy_t *way,
                              const marks_t *batch) {
    bool any = false;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_placement_t in = shard_strategy_in(way, node->n_inputs, j);
        if (is_marked(batch, in)) return SPLIT;
        any |= in.kind != IR_REPLICATE;
    }
    return any ? OTHER : WHOLE;
}

static bool is_state(const ir_node_info_t *node) {
    return ir_op_def(node->op)->flags & IR_STATE;
}

/* Whether the form allows a way; ANY where it says nothing of the node. */
static bool allows(const form_t *form, const ir_node_info_t *node, bool moment,
                   const ir_strategy_t *way, const marks_t *batch) {
    rule_t wanted = ANY, is = ANY;
    if (node->op == IR_OP_INPUT) {
        wanted = ir_attr_int(node, "batch_axis") < 0 ? WHOLE : form->inputs;
        is = rule_of_input(node, way);
    } else if (is_state(node)) {
        const bool weight = node->op == IR_OP_PARAMETER || ir_is_shadow(node);
        wanted = moment ? form->moments : weight ? form->weights : WHOLE;
        is = way->out[0].kind == IR_SPLIT ? SPLIT : WHOLE;
    } else if (ir_op_def(node->op)->flags & IR_CONTRACTION) {
        wanted = form->products;
        is = rule_of_product(node, way, batch);
    }
    return wanted == ANY || wanted == is;
}

/* A state that the optimizer alone reads. */
static bool is_moment(const shard_model_t *model, const ir_graph_t *graph, uint32_t class_of,
                      const bool *read_before) {
    const ir_strategy_t *ways;
    uint32_t n_ways;
    const ir_node_t n = shard_model_node(model, class_of, &n_ways, &ways);
    return is_state(ir_node(graph, n)) && ir_node(graph, n)->op != IR_OP_PARAMETER &&
           !read_before[ir_node(graph, n)->first_output];
}

static st_status_t copy_tables(const shard_energy_t *from, shard_energy_t *to) {
    for (size_t p = 0; p < from->pairs.n; p++)
        TRY(shard_energy_pair(to, from->pairs.data[p].a, from->pairs.data[p].b,
                              from->tables.data + from->pairs.data[p].first));
    return ST_OK;
}

static st_status_t restrict_labels(const shard_model_t *model, const shard_energy_t *energy,
                                   const form_t *form, const bool *read_before,
                                   shard_energy_t *out) {
    const ir_graph_t *graph = shard_model_graph(model);
    const marks_t batch = find_marks(model, graph, SPLIT);
    for (uint32_t v = 0; v < energy->variables.n; v++) {
        const shard_variable_t *variable = &energy->variables.data[v];
        int64_t costs[SHARD_MAX_LABELS];
        memcpy(costs, energy->costs.data + variable->first, variable->n_labels * sizeof *costs);
        if (v < shard_model_n_classes(model)) {
            const ir_strategy_t *ways;
            uint32_t n_ways, n_allowed = 0;
            const ir_node_info_t *node = ir_node(graph, shard_model_node(model, v, &n_ways, &ways));
            const bool moment = is_moment(model, graph, v, read_before);
            for (uint32_t x = 0; x < n_ways; x++) /* a pin goes before the form */
                n_allowed +=
                    costs[x] != SHARD_FORBIDDEN && allows(form, node, moment, &ways[x], &batch);
            for (uint32_t x = 0; n_allowed && x < n_ways; x++)
                if (!allows(form, node, moment, &ways[x], &batch)) costs[x] = SHARD_FORBIDDEN;
        }
        TRY(shard_energy_variable(out, variable->n_labels, costs,
                                  energy->classes.data + variable->first,
                                  energy->memory.data + variable->first, NULL));
    }
    for (size_t i = 0; i < energy->ties.n; i++)
        TRY(shard_energy_tie(out, energy->ties.data[i].a, energy->ties.data[i].b));
    return copy_tables(energy, out);
}

st_status_t shard_uniform_energy(const shard_model_t *model, const shard_energy_t *energy,
                                 uint32_t form, shard_energy_t *out_energy) {
    const ir_graph_t *graph = shard_model_graph(model);
    shard_energy_open(out_energy);
    ASSERT(form < N_FORMS);
    bool *read_before = st_calloc(graph->values.n, sizeof *read_before);
    if (!read_before) return st_no_memory(graph->values.n, "a uniform plan");
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        for (uint32_t j = 0; j < ir_node(graph, n)->n_inputs; j++)
            if (ir_node(graph, n)->phase != IR_PHASE_OPTIMIZER)
                read_before[ir_node(graph, n)->inputs[j]] = true;
    const st_status_t status =
        restrict_labels(model, energy, &forms[form], read_before, out_energy);
    st_free(read_before);
    return status;
}

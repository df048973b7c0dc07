/* Shadows of weights.
 *
 * Problem: with float32 masters every step casts every weight, and a second time for the backward
 * pass where the first result is not kept: 12 bytes an element and step. The optimizer has the new
 * value at hand and writes 2 bytes more.
 *
 *   w = parameter f32        → w, s = buffer bf16
 *   c = cast(w) … readers    → readers of s
 *   update(w, new)           → update(w, new), update(s, cast(new))
 *
 * Parameters that are cast to both small types, weights of convolutions, and those whose shadow's
 * name is taken stay as they are.
 * Linear. */
#include "autodiff/shadow.h"

#include <string.h>

#include "base/memory.h"
#include "ir/op.h"

typedef struct shadow {
    ir_dtype_t dtype;  /* of its casts; IR_DTYPE_NONE: there are none */
    bool updated, two; /* two: casts of both types */
    bool turned;       /* read where dims may stand in another order */
    ir_value_t made;   /* in the copy */
} shadow_t;

typedef struct shadows {
    st_arena_t arena;
    shadow_t *of; /* [values of the graph]: of a parameter's */
} shadows_t;

static bool is_master(const ir_graph_t *graph, ir_value_t v) {
    return ir_value_producer(graph, v)->op == IR_OP_PARAMETER &&
           ir_value_type(graph, v)->dtype == IR_F32;
}

/* Images may be computed channels last: the nest that casts a convolution's weight turns it then,
 * and a shadow would have to be turned by itself. */
static bool may_turn(const ir_op_def_t *def) {
    for (const ir_attr_spec_t *attr = def->attrs; attr && attr->key; attr++)
        if (strcmp(attr->key, "channels_last") == 0) return true;
    return false;
}
static void look_at_reader(shadows_t *s, const ir_graph_t *graph, const ir_node_info_t *node) {
    if (!may_turn(ir_op_def(node->op))) return;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_node_info_t *cast = ir_value_producer(graph, node->inputs[j]);
        if (cast->op == IR_OP_CAST && is_master(graph, cast->inputs[0]))
            s->of[cast->inputs[0]].turned = true;
    }
}

static void look_at(shadows_t *s, const ir_graph_t *graph, ir_node_t n) {
    const ir_node_info_t *node = ir_node(graph, n);
    look_at_reader(s, graph, node);
    if (node->op != IR_OP_CAST && node->op != IR_OP_UPDATE) return;
    if (!is_master(graph, node->inputs[0])) return;
    shadow_t *shadow = &s->of[node->inputs[0]];
    if (node->op == IR_OP_UPDATE) {
        shadow->updated = true;
        return;
    }
    ir_dtype_t dtype = ir_value_type(graph, node->first_output)->dtype;
    if (dtype != IR_BF16 && dtype != IR_F16) return;
    shadow->two |= shadow->dtype != IR_DTYPE_NONE && shadow->dtype != dtype;
    shadow->dtype = dtype;
}

static bool wanted(const shadow_t *shadow) {
    return shadow->updated && shadow->dtype != IR_DTYPE_NONE && !shadow->two && !shadow->turned;
}

/* After the parameter's copy; leaves ->made IR_NONE where the name is taken. */
static st_status_t add_buffer(shadows_t *s, ir_graph_t *to, const ir_graph_t *from, ir_node_t n) {
    const ir_node_info_t *node = ir_node(from, n);
    const ir_type_t *type = ir_value_type(from, node->first_output);
    shadow_t *shadow = &s->of[node->first_output];
    const char *name = st_arena_printf(&s->arena, IR_SHADOW_PREFIX "%s", node->name);
    if (!name) return st_no_memory(strlen(node->name), "a weight's shadow");
    if (ir_graph_find(from, name) != IR_NONE) return ST_OK;
    const ir_arg_t args[2] = {IR_ARG_DTYPE("dtype", shadow->dtype),
                              IR_ARG_INTS("shape", type->dims, (uint32_t)type->rank)};
    return ir_graph_add(to, IR_OP_BUFFER, name, 0, NULL, 2, args, &shadow->made);
}

static st_status_t update_shadow(const shadow_t *shadow, ir_graph_t *to, ir_value_t value) {
    ir_value_t in[2] = {shadow->made, IR_NONE};
    const ir_arg_t dtype = IR_ARG_DTYPE("dtype", shadow->dtype);
    TRY(ir_graph_add(to, IR_OP_CAST, NULL, 1, &value, 1, &dtype, &in[1]));
    return ir_graph_add(to, IR_OP_UPDATE, NULL, 2, in, 0, NULL, NULL);
}

static st_status_t emit(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                        ir_value_t *map) {
    shadows_t *s = context;
    const ir_node_info_t *node = ir_node(from, n);
    const shadow_t *shadow = node->n_inputs ? &s->of[node->inputs[0]] : NULL;
    const bool shadowed = shadow && shadow->made != IR_NONE;
    if (shadowed && node->op == IR_OP_CAST &&
        ir_value_type(from, node->first_output)->dtype == shadow->dtype) {
        map[node->first_output] = shadow->made;
        return ST_OK;
    }
    TRY(ir_graph_clone_node(to, from, n, NULL, map));
    if (node->op == IR_OP_PARAMETER && wanted(&s->of[node->first_output]))
        return add_buffer(s, to, from, n);
    return shadowed && node->op == IR_OP_UPDATE ? update_shadow(shadow, to, map[node->inputs[1]])
                                                : ST_OK;
}

st_status_t ad_shadow(const ir_graph_t *graph, ir_graph_t **out_graph) {
    shadows_t s = {0};
    *out_graph = NULL;
    s.of = st_arena_array(&s.arena, graph->values.n, sizeof *s.of);
    if (!s.of) return st_no_memory(graph->values.n * sizeof *s.of, "weights' shadows");
    for (ir_value_t v = 0; v < graph->values.n; v++)
        s.of[v] = (shadow_t){.dtype = IR_DTYPE_NONE, .made = IR_NONE};
    for (ir_node_t n = 0; n < graph->nodes.n; n++) look_at(&s, graph, n);
    st_status_t status = ir_graph_rewrite(graph, NULL, emit, &s, out_graph);
    st_arena_clear(&s.arena);
    return status;
}

/* Graphs that ONNX nodes own, as scopes of the graph around them.
 *
 * A graph inside a node sees the names around it. Its nodes go into a body (ir/body.h), which sees
 * nothing but its operands: an outer value that it reads becomes one more input, once, and the
 * scope lists what the node has to be given for it. What is known while importing enters as a
 * constant, so that shape arithmetic goes on inside. Parameters belong to the whole model: an
 * initializer that trains enters there, wherever it stands. An open scope puts its nodes into the
 * graph around it (a condition that is known, of which one branch is left). */
#include <string.h>

#include "import/onnx_reader.h"
#include "ir/body.h"

void onnx_scope_open(onnx_t *o, const Onnx__GraphProto *graph, bool open, onnx_t *out_inner) {
    *out_inner = *o;
    out_inner->outer = o;
    out_inner->open = open;
    out_inner->graph = graph;
    out_inner->names = (st_map_t){0};
    memset(&out_inner->values, 0, sizeof out_inner->values);
    memset(&out_inner->captures, 0, sizeof out_inner->captures);
    out_inner->used = 0;
    out_inner->n_returned = 0;
    if (open) return;
    out_inner->b = (ir_build_t){.status = o->b.status};
    out_inner->known = NULL;
    if (!onnx_ok(o)) return;
    out_inner->known = st_arena_array(o->arena, 1, sizeof *out_inner->known);
    if (!out_inner->known) {
        out_inner->b.status = st_no_memory(sizeof *out_inner->known, "a graph in a node");
        return;
    }
    *out_inner->known = (import_knowns_t){.arena = o->arena, .left = &o->all->known_left};
    out_inner->b.status = ir_graph_create("", &out_inner->b.graph);
    if (out_inner->b.status == ST_OK) out_inner->b.graph->phase = o->b.graph->phase;
}

void onnx_scope_close(onnx_t *o, onnx_t *inner) {
    if (onnx_ok(o)) o->b.status = inner->b.status;
    if (!inner->open) {
        ir_graph_destroy(inner->b.graph);
        if (inner->known) ST_VEC_FREE(&inner->known->values);
    }
    st_map_free(&inner->names);
    ST_VEC_FREE(&inner->values);
    ST_VEC_FREE(&inner->captures);
}

/* The value in this scope of one of the scope around it. */
static ir_value_t capture(onnx_t *o, ir_value_t outside) {
    onnx_t *outer = o->outer;
    if (o->open || !onnx_ok(o)) return outside;
    const ir_type_t type = onnx_type(outer, outside);
    const void *data = onnx_known(outer, outside);
    if (!onnx_ok(outer)) o->b.status = outer->b.status;
    if (!onnx_ok(o)) return IR_NONE;
    if (data) return ir_b_constant(&o->b, type, data, ir_type_bytes(&type));
    for (size_t i = 0; i < o->captures.n; i++)
        if (o->captures.data[i].outside == outside) return o->captures.data[i].inside;
    ir_value_t inside = ir_b_body_input(&o->b, &type);
    if (onnx_ok(o)) o->b.status = ST_VEC_PUSH(&o->captures, ((onnx_capture_t){outside, inside}));
    return inside;
}

ir_value_t onnx_outside(onnx_t *o, const char *name) {
    ir_value_t outside = onnx_named(o->outer, name);
    if (onnx_ok(o)) o->b.status = o->outer->b.status;
    return onnx_ok(o) ? capture(o, outside) : IR_NONE;
}

/* ---- a graph's nodes ---- */

st_status_t onnx_run_graph(onnx_t *o) {
    TRY(onnx_add_initializers(o));
    for (size_t i = 0; i < o->graph->n_node; i++) TRY(onnx_run_node(o, i));
    o->b.name = NULL;
    return o->b.status;
}

void onnx_bind(onnx_t *o, size_t i, ir_value_t value) {
    const char *name = i < o->graph->n_input ? o->graph->input[i]->name : NULL;
    if (!onnx_ok(o)) return;
    o->b.status = onnx_add_name(o, (onnx_value_t){.name = name, .value = value},
                                "an input of the graph in it");
}

ir_value_t onnx_graph_output(onnx_t *o, size_t k) {
    const char *name = o->graph->output[k]->name;
    if (onnx_ok(o) && (!name || !name[0]))
        onnx_fail(o, ST_PARSE, "output %zu of the graph in it has no name", k);
    return onnx_ok(o) ? onnx_named(o, name) : IR_NONE;
}

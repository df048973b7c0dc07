/* Passes that only change attributes (convert.h): a copy of the graph, node by node. Linear. */
#include "compile/convert.h"

#include <string.h>

#include "ir/convert.h"
#include "ir/op.h"

/* Rewrites a node's attributes in place; `scratch` holds what it allocates. Sets *drop to leave it
 * out. */
typedef st_status_t (*rewrite_t)(const ir_node_info_t *node, ir_attr_t *attrs, st_arena_t *scratch,
                                 bool *drop);

static st_status_t copy_rewritten(const ir_graph_t *graph, rewrite_t rewrite,
                                  ir_graph_t **out_graph) {
    *out_graph = NULL;
    ir_graph_t *made = NULL;
    st_arena_t scratch = {0};
    st_status_t status = ST_OK;
    ir_value_t *map = st_calloc(graph->values.n, sizeof *map);
    if (!map) return st_no_memory(graph->values.n * sizeof *map, "a graph");
    TRY_GOTO(ir_graph_create_like(graph, &made), done);
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        bool drop = false;
        size_t bytes = ir_op_n_attrs(ir_op_def(node->op)) * sizeof(ir_attr_t);
        ir_attr_t *attrs = st_arena_copy(&scratch, node->attrs, bytes);
        if (!attrs) TRY_GOTO(st_no_memory(bytes, "a node's attributes"), done);
        TRY_GOTO(rewrite(node, attrs, &scratch, &drop), done);
        if (!drop) TRY_GOTO(ir_graph_clone_node(made, graph, n, attrs, map), done);
        st_arena_clear(&scratch);
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        TRY_GOTO(ir_graph_add_output(made, graph->outputs.data[o].name,
                                     map[graph->outputs.data[o].value]),
                 done);
    *out_graph = made;
    made = NULL;
done:
    ir_graph_destroy(made);
    st_arena_clear(&scratch);
    st_free(map);
    return status;
}

static st_status_t widen_data(ir_dtype_t from, ir_attr_t *data, st_arena_t *scratch) {
    size_t n = data->data.bytes / ir_dtype_bytes(from);
    double *wide = st_arena_array(scratch, n, sizeof *wide);
    if (!wide) return st_no_memory(n * sizeof *wide, "a constant in float64");
    for (size_t i = 0; i < n; i++)
        wide[i] = ir_element_load(from, data->data.p, i);
    data->data.p = wide;
    data->data.bytes = n * sizeof *wide;
    return ST_OK;
}

static st_status_t rewrite_f64(const ir_node_info_t *node, ir_attr_t *attrs, st_arena_t *scratch,
                               bool *drop) {
    (void)drop;
    const ir_op_def_t *def = ir_op_def(node->op);
    uint32_t n = ir_op_n_attrs(def);
    ir_dtype_t from = IR_DTYPE_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (attrs[i].kind != IR_ATTR_DTYPE || !ir_dtype_is_float((ir_dtype_t)attrs[i].i)) continue;
        from = (ir_dtype_t)attrs[i].i;
        attrs[i].i = IR_F64;
    }
    if (from == IR_DTYPE_NONE || from == IR_F64) return ST_OK;
    for (uint32_t i = 0; i < n; i++)
        if (attrs[i].kind == IR_ATTR_DATA) TRY(widen_data(from, &attrs[i], scratch));
    return ST_OK;
}

static st_status_t rewrite_evaluation(const ir_node_info_t *node, ir_attr_t *attrs,
                                      st_arena_t *scratch, bool *drop) {
    (void)scratch;
    const ir_op_def_t *def = ir_op_def(node->op);
    *drop = node->op == IR_OP_UPDATE;
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++)
        if (strcmp(def->attrs[i].key, "train") == 0) attrs[i].i = 0;
    return ST_OK;
}

st_status_t compile_to_f64(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return copy_rewritten(graph, rewrite_f64, out_graph);
}
st_status_t compile_to_evaluation(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return copy_rewritten(graph, rewrite_evaluation, out_graph);
}

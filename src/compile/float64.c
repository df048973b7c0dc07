/* Float64 everywhere.
 *
 * Problem: what is equal in exact arithmetic (rank counts, fusions, resumed runs) can be told from
 * what is merely near only where rounding is far below the differences that count.
 * In:  the global program, any mix of float types.
 * Out: the same nodes with every float value, state and constant in float64, casts to narrower
 *      types and fp32 sums included; integers and bools stay. Constants keep their value, not their
 *      bits.
 * Algorithm: one copy. Only attributes that name an element type, and the elements that go with
 * them, need to change: shape rules give all other types anew from the operands. A cast to a float
 * becomes a cast to float64, which simplify removes. Bodies of control flow go the same way.
 * Complexity: linear in the graph and in the bytes of its constants.
 * Source: none needed; the rule that nothing narrower remains is the project's own (--dtype
 * f64). */
#include "compile/convert.h"
#include "ir/convert.h"
#include "ir/op.h"

static st_status_t widen_data(ir_dtype_t from, ir_attr_t *data, st_arena_t *scratch) {
    size_t n = data->data.bytes / ir_dtype_bytes(from);
    double *wide = st_arena_array(scratch, n, sizeof *wide);
    if (!wide) return st_no_memory(n * sizeof *wide, "a constant in float64");
    for (size_t i = 0; i < n; i++) wide[i] = ir_element_load(from, data->data.p, i);
    data->data.p = wide;
    data->data.bytes = n * sizeof *wide;
    return ST_OK;
}

static st_status_t widen_node(const ir_node_info_t *node, ir_attr_t *attrs, st_arena_t *scratch) {
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

static st_status_t widen_body(void *context, const ir_graph_t *body, ir_graph_t **out_body) {
    (void)context;
    return compile_to_f64(body, out_body);
}

static st_status_t clone_wide(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                              ir_value_t *map) {
    (void)context;
    const ir_node_info_t *node = ir_node(from, n);
    size_t bytes = ir_op_n_attrs(ir_op_def(node->op)) * sizeof(ir_attr_t);
    st_arena_t scratch = {0};
    ir_attr_t *attrs = st_arena_copy(&scratch, node->attrs, bytes);
    st_status_t status = attrs ? ST_OK : st_no_memory(bytes, "a node's attributes");
    if (status == ST_OK) status = widen_node(node, attrs, &scratch);
    if (status == ST_OK)
        status = ir_graph_clone_node_bodies(to, from, n, attrs, widen_body, NULL, map);
    st_arena_clear(&scratch);
    return status;
}

st_status_t compile_to_f64(const ir_graph_t *graph, ir_graph_t **out_graph) {
    return ir_graph_rewrite(graph, NULL, clone_wide, NULL, out_graph);
}

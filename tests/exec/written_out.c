#include "exec/written_out.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/body.h"

static void write_repeat(ir_build_t *b, const ir_node_info_t *node, ir_value_t *map) {
    const ir_graph_t *body = ir_node_attr(node, "body")->graph;
    uint32_t carried = (uint32_t)ir_attr_int(node, "carried");
    uint32_t scanned = (uint32_t)ir_attr_int(node, "scanned");
    int64_t trip = ir_attr_int(node, "trip");
    ir_value_t carry[32], in[32], out[32], pieces[32][8];
    assert_true(node->n_inputs <= 32 && node->n_outputs <= 32 && trip <= 8);
    for (uint32_t j = 0; j < carried; j++) carry[j] = map[node->inputs[j]];
    for (int64_t n = 0; n < trip; n++) {
        int64_t i = ir_attr_int(node, "reverse") ? trip - 1 - n : n;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            in[j] = j < carried ? carry[j] : map[node->inputs[j]];
            if (j < carried || j >= carried + scanned) continue;
            ir_type_t type = *ir_b_type(b, in[j]);
            in[j] = ir_b_reshape(b, ir_b_slice_axis(b, in[j], 0, i, i + 1), type.rank - 1,
                                 type.dims + 1);
        }
        assert_int_equal(ir_body_inline(b->graph, body, in, out), ST_OK);
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            if (k < carried) carry[k] = out[k];
            if (k < carried) continue;
            ir_type_t type = *ir_b_type(b, out[k]);
            type = ir_type_add_first(&type, 1);
            pieces[k][i] = ir_b_reshape(b, out[k], type.rank, type.dims);
        }
    }
    for (uint32_t k = 0; k < node->n_outputs; k++)
        map[node->first_output + k] =
            k < carried ? carry[k] : ir_b_concat(b, (uint32_t)trip, pieces[k], 0);
}

/* Both branches, and a selection. */
static void write_cond(ir_build_t *b, const ir_node_info_t *node, ir_value_t *map) {
    ir_value_t in[16], yes[16], no[16];
    for (uint32_t j = 1; j < node->n_inputs; j++) in[j - 1] = map[node->inputs[j]];
    assert_int_equal(ir_body_inline(b->graph, ir_node_attr(node, "then")->graph, in, yes), ST_OK);
    assert_int_equal(ir_body_inline(b->graph, ir_node_attr(node, "else")->graph, in, no), ST_OK);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        map[node->first_output + k] = ir_b_select(b, map[node->inputs[0]], yes[k], no[k]);
}

static st_status_t write_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                              ir_value_t *map) {
    const ir_node_info_t *node = ir_node(from, n);
    ir_build_t b = {.graph = to};
    if (node->op == IR_OP_REPEAT || node->op == IR_OP_COND) *(bool *)context = true;
    if (node->op == IR_OP_REPEAT)
        write_repeat(&b, node, map);
    else if (node->op == IR_OP_COND)
        write_cond(&b, node, map);
    else
        return ir_graph_clone_node(to, from, n, NULL, map);
    return b.status;
}

ir_graph_t *written_out(const ir_graph_t *graph) {
    ir_graph_t *flat = NULL;
    assert_int_equal(ir_graph_copy(graph, &flat), ST_OK);
    for (bool any = true; any;) {
        ir_graph_t *next;
        any = false;
        if (ir_graph_rewrite(flat, NULL, write_node, &any, &next) != ST_OK)
            fail_msg("%s", st_last_error());
        ir_graph_destroy(flat);
        flat = next;
    }
    return flat;
}

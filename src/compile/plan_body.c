/* Bodies in plans (plan_body.h). */
#include "compile/plan_body.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "ir/body.h"
#include "ir/expand.h"
#include "ir/structure.h"

enum { NAME_BYTES = 24 };

/* ---- the program's graph ---- */

/* The value whose bytes `v` is. */
static ir_value_t root_of(const ir_graph_t *graph, ir_value_t v) {
    for (;;) {
        const ir_node_info_t *node = ir_value_producer(graph, v);
        if (!(ir_op_def(node->op)->flags & IR_VIEW)) return v;
        v = node->inputs[0];
    }
}

/* Number of the body's input that `v` is; IR_NONE if it is made. */
static uint32_t input_of(const ir_graph_t *body, ir_value_t v) {
    ir_node_t producer = body->values.data[root_of(body, v)].producer;
    uint32_t j = 0;
    if (ir_node(body, producer)->op != IR_OP_INPUT) return IR_NONE;
    for (ir_node_t i = 0; i < producer; i++) j += ir_node(body, i)->op == IR_OP_INPUT;
    return j;
}

uint32_t plan_body_passed(const ir_graph_t *body, size_t k) {
    return input_of(body, body->outputs.data[k].value);
}

/* What carry k takes: nothing if it stays; a copy of another carry, which may have been updated by
 * the time that this one takes it. */
static st_status_t add_update(ir_build_t *b, const ir_graph_t *body, uint32_t carried, uint32_t k,
                              const ir_value_t *map, const ir_value_t *carry) {
    ir_value_t made = map[body->outputs.data[k].value];
    uint32_t from = plan_body_passed(body, k);
    if (from == k) return ST_OK;
    if (from != IR_NONE && from < carried) {
        ir_arg_t dtype = IR_ARG_DTYPE("dtype", ir_b_type(b, made)->dtype);
        made = ir_b_node(b, IR_OP_CAST, 1, &made, 1, &dtype);
    }
    ir_b_update(b, carry[k], made);
    return b->status;
}

st_status_t plan_body_graph(const ir_graph_t *body, uint32_t carried, ir_graph_t **out_graph) {
    *out_graph = NULL;
    ir_graph_t *made = NULL;
    st_status_t status = ST_OK;
    ir_value_t *map = st_calloc(body->values.n, sizeof *map);
    ir_value_t *input = st_calloc(ir_body_n_inputs(body), sizeof *input);
    char name[NAME_BYTES];
    uint32_t j = 0;
    if (!map || !input) TRY_GOTO(st_no_memory(body->values.n * sizeof *map, "a body"), done);
    TRY_GOTO(ir_graph_create(body->name, &made), done);
    ir_build_t b = {.graph = made};
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        if (node->op != IR_OP_INPUT) {
            TRY_GOTO(ir_graph_clone_node(made, body, i, NULL, map), done);
            continue;
        }
        snprintf(name, sizeof name, "%u", j);
        input[j] = ir_b_buffer(&b, name, *ir_value_type(body, node->first_output));
        TRY_GOTO(b.status, done);
        map[node->first_output] = input[j++];
    }
    for (uint32_t k = 0; k < body->outputs.n; k++) {
        snprintf(name, sizeof name, "%u", k);
        if (k < carried)
            TRY_GOTO(add_update(&b, body, carried, k, map, input), done);
        else if (plan_body_passed(body, k) == IR_NONE)
            ir_b_output(&b, name, map[body->outputs.data[k].value]);
    }
    TRY_GOTO(b.status, done);
    *out_graph = made;
    made = NULL;
done:
    ir_graph_destroy(made);
    st_free(map);
    st_free(input);
    return status;
}

/* ---- turns ---- */

static size_t aligned(size_t bytes) {
    return (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
}

size_t plan_turn_offset(const ir_region_info_t *info, uint32_t j) {
    const ir_graph_t *body = info->bodies[0];
    size_t offset = PLAN_ALIGNMENT; /* behind the number */
    uint32_t input = 0;
    for (ir_node_t i = 0; input < j; i++) {
        if (ir_node(body, i)->op != IR_OP_INPUT) continue;
        if (input++ >= info->carried)
            offset += aligned(ir_type_bytes(ir_value_type(body, ir_node(body, i)->first_output)));
    }
    return offset;
}

size_t plan_turn_bytes(const ir_region_info_t *info) {
    return info->n_bodies == 1 ? plan_turn_offset(info, info->carried + info->scanned) : 0;
}

/* ---- proof ---- */

/* Hash of all that each value is made from, chained through the inputs; of buffers: of their
 * name. */
static void hash_values(const ir_graph_t *graph, uint64_t *hashes) {
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        uint64_t hash = ir_attrs_hash(node->op, node->attrs, 1);
        bool named = (ir_op_def(node->op)->flags & IR_STATE) || node->op == IR_OP_INPUT;
        if (named) hash = st_hash64(node->name, strlen(node->name), hash);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            hash = st_hash64(&hashes[node->inputs[j]], sizeof *hashes, hash);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            hashes[node->first_output + k] = st_hash64(&k, sizeof k, hash);
    }
}

static bool same_outputs(const ir_graph_t *a, const uint64_t *hash_a, const ir_graph_t *b,
                         const uint64_t *hash_b) {
    if (a->outputs.n != b->outputs.n) return false;
    for (size_t o = 0; o < a->outputs.n; o++) {
        ir_value_t other = ir_graph_find_output(b, a->outputs.data[o].name);
        if (other == IR_NONE || hash_a[a->outputs.data[o].value] != hash_b[other]) return false;
    }
    return true;
}

/* Sum over what does not give a value: the updates, in any order; and over the buffers. */
static uint64_t hash_effects(const ir_graph_t *graph, const uint64_t *hashes) {
    uint64_t sum = 0;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        uint64_t hash = (uint64_t)node->op;
        if (node->op == IR_OP_UPDATE)
            for (uint32_t j = 0; j < 2; j++)
                hash = st_hash64(&hashes[node->inputs[j]], sizeof *hashes, hash);
        else if ((ir_op_def(node->op)->flags & IR_STATE) || node->op == IR_OP_INPUT)
            hash = st_hash64(&hashes[node->first_output], sizeof *hashes, hash);
        else if (node->n_outputs)
            continue;
        sum += hash;
    }
    return sum;
}

/* Fused nodes mean their bodies, so they are taken apart. */
static bool is_fused(const ir_op_def_t *def) {
    return def->op == IR_OP_FUSED;
}

st_status_t plan_body_check(const ir_graph_t *body, uint32_t carried, const ir_graph_t *program) {
    ir_graph_t *meant = NULL, *graph = NULL;
    uint64_t *mine = NULL, *theirs = NULL;
    st_status_t status = ST_OK;
    TRY_GOTO(ir_expand_composites(program, is_fused, &graph), done);
    TRY_GOTO(plan_body_graph(body, carried, &meant), done);
    mine = st_calloc(graph->values.n, sizeof *mine);
    theirs = st_calloc(meant->values.n, sizeof *theirs);
    if (!mine || !theirs) TRY_GOTO(st_no_memory(graph->values.n * 8, "the plan's proof"), done);
    hash_values(graph, mine);
    hash_values(meant, theirs);
    if (graph->aliases.n || !same_outputs(meant, theirs, graph, mine) ||
        hash_effects(meant, theirs) != hash_effects(graph, mine))
        TRY_GOTO(FAIL(ST_INVALID, "the body's program does not compute the body"), done);
done:
    st_free(mine);
    st_free(theirs);
    ir_graph_destroy(meant);
    ir_graph_destroy(graph);
    return status;
}

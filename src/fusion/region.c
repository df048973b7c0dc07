/* Regions (region.h). All is linear in the region. */
#include "fusion/region.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ir/body.h"
#include "ir/structure.h"

st_status_t regions_open(const groups_t *groups, regions_t *out_regions) {
    const ir_graph_t *graph = groups->graph;
    *out_regions = (regions_t){.groups = groups};
    out_regions->is_output = st_calloc(graph->values.n, sizeof *out_regions->is_output);
    out_regions->slots = st_calloc(graph->values.n, sizeof *out_regions->slots);
    out_regions->map = st_calloc(graph->values.n, sizeof *out_regions->map);
    if (!out_regions->is_output || !out_regions->slots || !out_regions->map) {
        regions_close(out_regions);
        return st_no_memory(graph->values.n * sizeof *out_regions->slots, "the regions");
    }
    for (size_t o = 0; o < graph->outputs.n; o++)
        out_regions->is_output[graph->outputs.data[o].value] = true;
    return ST_OK;
}

void regions_close(regions_t *regions) {
    st_free(regions->is_output);
    st_free(regions->slots);
    st_free(regions->map);
    ST_VEC_FREE(&regions->region.nodes);
    ST_VEC_FREE(&regions->region.inputs);
    ST_VEC_FREE(&regions->region.outputs);
    *regions = (regions_t){0};
}

/* ---- collecting ---- */

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_inside(const groups_t *groups, ir_node_t node, uint32_t n, const group_t *list) {
    for (uint32_t i = 0; i < n; i++)
        if (groups->of[node] == list[i]) return true;
    return false;
}

static bool is_read_outside(const regions_t *regions, ir_value_t v, uint32_t n,
                            const group_t *list) {
    const groups_t *groups = regions->groups;
    if (regions->is_output[v]) return true;
    for (uint32_t u = groups->uses.first[v]; u < groups->uses.first[v + 1]; u++)
        if (!is_inside(groups, groups->uses.node[u], n, list)) return true;
    return false;
}

static bool is_placed(const regions_t *regions, ir_value_t v) {
    return regions->slots[v].stamp == regions->now;
}
static void set_slot(regions_t *regions, ir_value_t v, size_t index) {
    regions->slots[v] = (region_slot_t){regions->now, (uint32_t)index};
}

st_status_t regions_collect(regions_t *regions, uint32_t n, const group_t *list) {
    const groups_t *groups = regions->groups;
    const ir_graph_t *graph = groups->graph;
    region_t *region = &regions->region;
    region->nodes.n = region->inputs.n = region->outputs.n = 0;
    regions->now++;
    for (uint32_t i = 0; i < n; i++)
        for (ir_node_t m = groups->first[list[i]]; m != IR_NONE; m = groups->next[m])
            TRY(ST_VEC_PUSH(&region->nodes, m));
    qsort(region->nodes.data, region->nodes.n, sizeof *region->nodes.data, by_number);
    for (size_t i = 0; i < region->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, region->nodes.data[i]);
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            ir_value_t v = node->inputs[j];
            if (is_placed(regions, v) || is_inside(groups, graph->values.data[v].producer, n, list))
                continue;
            set_slot(regions, v, region->inputs.n);
            TRY(ST_VEC_PUSH(&region->inputs, v));
        }
        for (uint32_t k = 0; k < node->n_outputs; k++)
            if (is_read_outside(regions, node->first_output + k, n, list))
                TRY(ST_VEC_PUSH(&region->outputs, node->first_output + k));
    }
    return ST_OK;
}

/* ---- what it says ---- */

static uint64_t hash_type(const ir_type_t *type, uint64_t seed) {
    uint64_t head[2] = {(uint64_t)type->dtype, (uint64_t)type->rank};
    seed = st_hash64(head, sizeof head, seed);
    return type->rank ? st_hash64(type->dims, (size_t)type->rank * sizeof *type->dims, seed) : seed;
}

uint64_t regions_hash(regions_t *regions) {
    const ir_graph_t *graph = regions->groups->graph;
    const region_t *region = &regions->region;
    uint64_t sizes[3] = {region->nodes.n, region->inputs.n, region->outputs.n};
    uint64_t hash = st_hash64(sizes, sizeof sizes, 0);
    uint32_t n_made = 0;
    for (size_t i = 0; i < region->inputs.n; i++) {
        set_slot(regions, region->inputs.data[i], n_made++);
        hash = hash_type(ir_value_type(graph, region->inputs.data[i]), hash);
    }
    for (size_t i = 0; i < region->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, region->nodes.data[i]);
        hash = ir_attrs_hash(node->op, node->attrs, hash);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            hash = hash * 0x9e3779b97f4a7c15u + regions->slots[node->inputs[j]].index + 1;
        for (uint32_t k = 0; k < node->n_outputs; k++)
            set_slot(regions, node->first_output + k, n_made++);
    }
    for (size_t i = 0; i < region->outputs.n; i++)
        hash = hash * 0x9e3779b97f4a7c15u + regions->slots[region->outputs.data[i]].index + 1;
    return hash;
}

/* ---- bodies ---- */

st_status_t regions_body(regions_t *regions, const ir_graph_t *from, ir_graph_t **out_body) {
    const region_t *region = &regions->region;
    ir_value_t *map = regions->map;
    ir_build_t b = {0};
    st_status_t status = ST_OK;
    *out_body = NULL;
    TRY(ir_graph_create("", &b.graph));
    for (size_t i = 0; i < region->inputs.n; i++) {
        ir_value_t v = region->inputs.data[i];
        map[v] = ir_b_body_input(&b, ir_value_type(from, v));
    }
    TRY_GOTO(b.status, fail);
    for (size_t i = 0; i < region->nodes.n; i++)
        TRY_GOTO(ir_graph_clone_node(b.graph, from, region->nodes.data[i], NULL, map), fail);
    for (size_t i = 0; i < region->outputs.n; i++)
        ir_b_body_output(&b, map[region->outputs.data[i]]);
    TRY_GOTO(b.status, fail);
    *out_body = b.graph;
    return ST_OK;
fail:
    ir_graph_destroy(b.graph);
    return status;
}

st_status_t regions_emit(regions_t *regions, const ir_graph_t *from, ir_graph_t *to,
                         const char *name, ir_value_t *map) {
    const region_t *region = &regions->region;
    ir_graph_t *body;
    ir_value_t first = IR_NONE;
    st_status_t status = ST_OK;
    TRY(regions_body(regions, from, &body));
    for (size_t i = 0; i < region->inputs.n; i++) regions->map[i] = map[region->inputs.data[i]];
    const ir_arg_t arg = IR_ARG_GRAPH("body", body);
    ir_graph_stand_for(to, ir_node(from, region->nodes.data[0]));
    TRY_GOTO(ir_graph_add(to, IR_OP_FUSED, name, (uint32_t)region->inputs.n, regions->map, 1, &arg,
                          &first),
             done);
    for (size_t i = 0; i < region->outputs.n; i++)
        map[region->outputs.data[i]] = first + (ir_value_t)i;
done:
    ir_graph_destroy(body);
    return status;
}

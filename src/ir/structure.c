/* Equality and hash of attributes and graphs. See structure.h for the contract. */
#include "ir/structure.h"

#include <string.h>

#include "base/hash.h"

bool ir_attr_equal(const ir_attr_t *a, const ir_attr_t *b) {
    if (a->kind != b->kind) return false;
    switch (a->kind) {
        case IR_ATTR_INT:
        case IR_ATTR_BOOL:
        case IR_ATTR_DTYPE:
            return a->i == b->i;
        case IR_ATTR_FLOAT:
            return memcmp(&a->f, &b->f, sizeof a->f) == 0;
        case IR_ATTR_INTS:
            return a->ints.n == b->ints.n &&
                   (a->ints.n == 0 ||
                    memcmp(a->ints.v, b->ints.v, a->ints.n * sizeof *a->ints.v) == 0);
        case IR_ATTR_STRING:
            return strcmp(a->s, b->s) == 0;
        case IR_ATTR_DATA:
            return a->data.bytes == b->data.bytes &&
                   (a->data.bytes == 0 || memcmp(a->data.p, b->data.p, a->data.bytes) == 0);
        case IR_ATTR_GRAPH:
            return a->graph == b->graph ||
                   (a->graph && b->graph && ir_graph_equal(a->graph, b->graph));
    }
    return false;
}

bool ir_attrs_equal(ir_op_t op, const ir_attr_t *a, const ir_attr_t *b) {
    uint32_t n = ir_op_n_attrs(ir_op_def(op));
    for (uint32_t i = 0; i < n; i++)
        if (!ir_attr_equal(&a[i], &b[i])) return false;
    return true;
}

uint64_t ir_attrs_hash(ir_op_t op, const ir_attr_t *attrs, uint64_t seed) {
    uint32_t n = ir_op_n_attrs(ir_op_def(op));
    uint32_t id = (uint32_t)op;
    uint64_t hash = st_hash64(&id, sizeof id, seed);
    for (uint32_t i = 0; i < n; i++) {
        const ir_attr_t *attr = &attrs[i];
        switch (attr->kind) {
            case IR_ATTR_INT:
            case IR_ATTR_BOOL:
            case IR_ATTR_DTYPE:
                hash = st_hash64(&attr->i, sizeof attr->i, hash);
                break;
            case IR_ATTR_FLOAT:
                hash = st_hash64(&attr->f, sizeof attr->f, hash);
                break;
            case IR_ATTR_INTS:
                hash = st_hash64(attr->ints.v, attr->ints.n * sizeof *attr->ints.v, hash);
                break;
            case IR_ATTR_STRING:
                hash = st_hash64(attr->s, strlen(attr->s), hash);
                break;
            case IR_ATTR_DATA:
                hash = st_hash64(attr->data.p, attr->data.bytes, hash);
                break;
            case IR_ATTR_GRAPH:
                hash = ir_graph_hash(attr->graph, hash);
                break;
        }
    }
    return hash;
}

bool ir_graph_equal(const ir_graph_t *a, const ir_graph_t *b) {
    if (a->nodes.n != b->nodes.n || a->values.n != b->values.n || a->outputs.n != b->outputs.n)
        return false;
    for (size_t i = 0; i < a->nodes.n; i++) {
        const ir_node_info_t *x = &a->nodes.data[i], *y = &b->nodes.data[i];
        if (x->op != y->op || x->n_inputs != y->n_inputs || x->first_output != y->first_output ||
            (x->n_inputs && memcmp(x->inputs, y->inputs, x->n_inputs * sizeof *x->inputs) != 0) ||
            !ir_attrs_equal(x->op, x->attrs, y->attrs))
            return false;
    }
    for (size_t i = 0; i < a->outputs.n; i++)
        if (a->outputs.data[i].value != b->outputs.data[i].value) return false;
    return true;
}

uint64_t ir_graph_hash(const ir_graph_t *graph, uint64_t seed) {
    uint64_t hash = seed;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        hash = ir_attrs_hash(node->op, node->attrs, hash);
        hash = st_hash64(node->inputs, node->n_inputs * sizeof *node->inputs, hash);
    }
    for (size_t i = 0; i < graph->outputs.n; i++)
        hash = st_hash64(&graph->outputs.data[i].value, sizeof graph->outputs.data[i].value, hash);
    return hash;
}

ir_attr_t ir_attr_default(const ir_attr_spec_t *spec) {
    ir_attr_t attr = {.kind = spec->kind};
    if (spec->kind == IR_ATTR_FLOAT)
        attr.f = spec->number;
    else if (spec->kind == IR_ATTR_STRING)
        attr.s = spec->text ? spec->text : "";
    else if (spec->kind != IR_ATTR_INTS && spec->kind != IR_ATTR_DATA &&
             spec->kind != IR_ATTR_GRAPH)
        attr.i = (int64_t)spec->number;
    return attr;
}

const char *ir_attr_kind_text(ir_attr_kind_t kind) {
    static const char *const texts[] = {
        [IR_ATTR_INT] = "int",     [IR_ATTR_FLOAT] = "float",      [IR_ATTR_BOOL] = "bool",
        [IR_ATTR_DTYPE] = "dtype", [IR_ATTR_INTS] = "list of int", [IR_ATTR_STRING] = "string",
        [IR_ATTR_DATA] = "data",   [IR_ATTR_GRAPH] = "graph",
    };
    return kind >= IR_ATTR_INT && kind <= IR_ATTR_GRAPH ? texts[kind] : "unknown kind";
}

/* Trimming of control flow (trim.h). Liveness in a body is found from the results that are read,
 * backwards; a live carry makes the body's output that feeds it live, until nothing is added.
 * Linear in the bodies, times the carries in a chain that are found one after the other. */
#include "fusion/trim.h"

#include <string.h>

#include "base/memory.h"
#include "ir/body.h"
#include "ir/structure.h"

enum { MAX_ATTRS = 16 };

typedef struct trim {
    ir_body_pass_t simplify;
    void *context;
    const bool *used; /* [values of the graph] */
    bool changed;
} trim_t;

typedef struct region {
    const ir_node_info_t *node;
    st_arena_t arena;
    ir_region_info_t info;
    ir_graph_t *body[IR_MAX_BODIES]; /* simplified */
    bool *live[IR_MAX_BODIES];       /* [nodes of the body] */
    bool *keep_in;                   /* [n_inputs] of the body */
    bool *keep_out;                  /* [n_outputs] */
} region_t;

/* ---- what stays ---- */

static void mark(const ir_graph_t *body, bool *live) {
    for (ir_node_t i = (ir_node_t)body->nodes.n; i-- > 0;) {
        const ir_node_info_t *node = ir_node(body, i);
        if (!live[i]) continue;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            live[body->values.data[node->inputs[j]].producer] = true;
    }
}

/* One round; true if a carry has been added. */
static bool spread(region_t *r) {
    bool added = false;
    for (uint32_t b = 0; b < r->info.n_bodies; b++) {
        const ir_graph_t *body = r->body[b];
        for (uint32_t k = 0; k < r->node->n_outputs; k++)
            if (r->keep_out[k])
                r->live[b][body->values.data[body->outputs.data[k].value].producer] = true;
        mark(body, r->live[b]);
        for (uint32_t j = 0, i = ir_body_next_input(body, 0); j < r->info.n_inputs;
             j++, i = ir_body_next_input(body, i + 1))
            r->keep_in[j] |= r->live[b][i];
    }
    for (uint32_t j = 0; j < r->info.carried; j++) {
        bool keep = r->keep_in[j] || r->keep_out[j];
        added |= keep && !r->keep_out[j];
        r->keep_in[j] = r->keep_out[j] = keep;
    }
    return added;
}

/* ---- the new node ---- */

static st_status_t cut_body(const region_t *r, const ir_graph_t *body, const bool *live,
                            ir_graph_t **out_body) {
    ir_value_t *map = st_calloc(body->values.n, sizeof *map);
    ir_graph_t *made = NULL;
    st_status_t status = ST_OK;
    uint32_t j = 0;
    if (!map) return st_no_memory(body->values.n * sizeof *map, "a body");
    TRY_GOTO(ir_graph_create(body->name, &made), fail);
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        bool keep = ir_node(body, i)->op == IR_OP_INPUT ? r->keep_in[j++] : live[i];
        if (keep) TRY_GOTO(ir_graph_clone_node(made, body, i, NULL, map), fail);
    }
    for (size_t k = 0; k < body->outputs.n; k++)
        if (r->keep_out[k])
            TRY_GOTO(ir_graph_append_output(made, body->outputs.data[k].name,
                                            map[body->outputs.data[k].value]),
                     fail);
    st_free(map);
    *out_body = made;
    return ST_OK;
fail:
    st_free(map);
    ir_graph_destroy(made);
    return status;
}

static uint32_t count(const bool *keep, uint32_t from, uint32_t to) {
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) n += keep[i];
    return n;
}

static st_status_t rebuild(region_t *r, ir_graph_t *to, ir_value_t *map) {
    const ir_node_info_t *node = r->node;
    const ir_op_def_t *def = ir_op_def(node->op);
    uint32_t n_attrs = ir_op_n_attrs(def), n_in = 0,
             first_stack = r->info.carried + r->info.scanned;
    ir_arg_t args[MAX_ATTRS];
    ir_value_t *in = st_arena_array(&r->arena, node->n_inputs, sizeof *in), first;
    if (!in) return st_no_memory(node->n_inputs * sizeof *in, "a node");
    for (uint32_t j = 0; j < node->n_inputs; j++)
        if (j < r->info.first || r->keep_in[j - r->info.first]) in[n_in++] = map[node->inputs[j]];
    ASSERT(n_attrs <= MAX_ATTRS);
    for (uint32_t a = 0; a < n_attrs; a++) {
        args[a] = (ir_arg_t){def->attrs[a].key, node->attrs[a]};
        if (strcmp(def->attrs[a].key, "carried") == 0)
            args[a].value.i = count(r->keep_in, 0, r->info.carried);
        if (strcmp(def->attrs[a].key, "scanned") == 0)
            args[a].value.i = count(r->keep_in, r->info.carried, first_stack);
    }
    for (uint32_t b = 0; b < r->info.n_bodies; b++) args[r->info.attr[b]].value.graph = r->body[b];
    TRY(ir_graph_add(to, node->op, node->name, n_in, in, n_attrs, args, &first));
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (r->keep_out[k]) map[node->first_output + k] = first++;
    return ST_OK;
}

static st_status_t open_region(const trim_t *t, region_t *r, bool *out_changed) {
    const ir_node_info_t *node = r->node;
    r->info = ir_region_info(node);
    for (uint32_t b = 0; b < r->info.n_bodies; b++) {
        TRY(t->simplify(t->context, r->info.bodies[b], &r->body[b]));
        *out_changed |= !ir_graph_equal(r->info.bodies[b], r->body[b]);
        r->live[b] = st_arena_array(&r->arena, r->body[b]->nodes.n, sizeof(bool));
        if (!r->live[b]) return st_no_memory(r->body[b]->nodes.n, "a body");
    }
    r->keep_in = st_arena_array(&r->arena, r->info.n_inputs, sizeof(bool));
    r->keep_out = st_arena_array(&r->arena, node->n_outputs, sizeof(bool));
    if (!r->keep_in || !r->keep_out) return st_no_memory(node->n_outputs, "a body");
    for (uint32_t k = 0; k < node->n_outputs; k++) r->keep_out[k] = t->used[node->first_output + k];
    return ST_OK;
}

static st_status_t trim_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                             ir_value_t *map) {
    trim_t *t = context;
    region_t r = {.node = ir_node(from, n)};
    st_status_t status = ST_OK;
    bool changed = false;
    if (!(ir_op_def(r.node->op)->flags & IR_REGION))
        return ir_graph_clone_node(to, from, n, NULL, map);
    TRY_GOTO(open_region(t, &r, &changed), done);
    while (spread(&r)) continue;
    if (count(r.keep_in, 0, r.info.n_inputs) < r.info.n_inputs ||
        count(r.keep_out, 0, r.node->n_outputs) < r.node->n_outputs) {
        changed = true;
        for (uint32_t b = 0; b < r.info.n_bodies; b++) {
            ir_graph_t *cut = NULL;
            TRY_GOTO(cut_body(&r, r.body[b], r.live[b], &cut), done);
            ir_graph_destroy(r.body[b]);
            r.body[b] = cut;
        }
    }
    TRY_GOTO(rebuild(&r, to, map), done);
    t->changed |= changed;
done:
    for (uint32_t b = 0; b < IR_MAX_BODIES; b++) ir_graph_destroy(r.body[b]);
    st_arena_clear(&r.arena);
    return status == ST_OK ? ST_OK : st_error_context(status, "%s", ir_node_label(from, n));
}

st_status_t fuse_trim(const ir_graph_t *graph, ir_body_pass_t simplify, void *context,
                      ir_graph_t **out_graph, bool *out_changed) {
    *out_graph = NULL;
    bool *used = st_calloc(graph->values.n, sizeof *used);
    trim_t t = {.simplify = simplify, .context = context, .used = used};
    if (!used) return st_no_memory(graph->values.n, "the simplify pass");
    for (size_t i = 0; i < graph->nodes.n; i++)
        for (uint32_t j = 0; j < graph->nodes.data[i].n_inputs; j++)
            used[graph->nodes.data[i].inputs[j]] = true;
    for (size_t o = 0; o < graph->outputs.n; o++) used[graph->outputs.data[o].value] = true;
    st_status_t status = ir_graph_rewrite(graph, NULL, trim_node, &t, out_graph);
    *out_changed = t.changed;
    st_free(used);
    return status;
}

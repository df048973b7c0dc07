/* Bodies node by node (body.h). */
#include "kernels/reference/body.h"

#include <string.h>

#include "ir/body.h"
#include "kernels/table.h"

enum { ALIGNMENT = 64 };

typedef struct body_step {
    ir_node_t node;
    const kern_impl_t *impl;
    kern_problem_t problem;
    const void **in;
    void **out;
    void *prepared;
} body_step_t;

struct ref_body {
    const ir_graph_t *graph;
    st_arena_t arena;
    uint32_t n_steps;
    body_step_t *steps;
    size_t *offsets;  /* [values] in the workspace */
    uint32_t *direct; /* [values] output in whose memory it is made, or IR_NONE */
    void **address;   /* [values] of the run in progress */
    size_t scratch;   /* offset of the nodes' own workspace */
};

static st_status_t no_memory(size_t bytes) {
    return st_no_memory(bytes, "a body's steps");
}

static bool is_view(const ir_node_info_t *node) {
    return (ir_op_def(node->op)->flags & IR_VIEW) != 0;
}

/* Whether a node has something to compute. */
static bool does_work(const ir_graph_t *body, const ir_node_info_t *node) {
    if (node->op == IR_OP_INPUT || is_view(node)) return false;
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (ir_type_bytes(ir_value_type(body, node->first_output + k))) return true;
    return false;
}

/* The node as a kernel's problem, its types in the arena. */
static st_status_t make_problem(const ir_graph_t *body, const ir_node_info_t *node,
                                st_arena_t *arena, kern_problem_t *out) {
    ir_type_t *in = st_arena_array(arena, node->n_inputs, sizeof *in);
    ir_type_t *made = st_arena_array(arena, node->n_outputs, sizeof *made);
    if (!in || !made) return no_memory(node->n_inputs * sizeof *in);
    for (uint32_t j = 0; j < node->n_inputs; j++) in[j] = *ir_value_type(body, node->inputs[j]);
    for (uint32_t k = 0; k < node->n_outputs; k++)
        made[k] = *ir_value_type(body, node->first_output + k);
    *out = (kern_problem_t){node->op, node->n_inputs, node->n_outputs, in,
                            made,     node->attrs,    node->name};
    return ST_OK;
}

/* Offset after the values; fills offsets[] unless NULL. */
static size_t lay_out(const ir_graph_t *body, size_t *offsets) {
    size_t end = 0;
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        for (uint32_t k = 0; does_work(body, node) && k < node->n_outputs; k++) {
            ir_value_t v = node->first_output + k;
            if (offsets) offsets[v] = end;
            end = st_size_add(end, st_size_align(ir_type_bytes(ir_value_type(body, v)), ALIGNMENT));
        }
    }
    return end;
}

size_t ref_body_workspace(const ir_graph_t *body, int n_threads) {
    size_t values = lay_out(body, NULL), widest = 0;
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        const kern_impl_t *impl = NULL;
        kern_problem_t problem;
        st_arena_t arena = {0};
        size_t bytes = 0;
        if (!does_work(body, node)) continue;
        if (make_problem(body, node, &arena, &problem) != ST_OK ||
            kern_choose("cpu", &problem, true, &impl) != ST_OK)
            bytes = ST_SIZE_TOO_LARGE;
        else if (impl->workspace)
            bytes = impl->workspace(&problem, n_threads);
        st_arena_clear(&arena);
        if (bytes > widest) widest = bytes;
    }
    return st_size_add(values, st_size_align(widest, ALIGNMENT));
}

static st_status_t make_step(ref_body_t *made, ir_node_t i, int n_threads) {
    const ir_node_info_t *node = ir_node(made->graph, i);
    body_step_t *step = &made->steps[made->n_steps];
    step->node = i;
    TRY(make_problem(made->graph, node, &made->arena, &step->problem));
    step->in = st_arena_array(&made->arena, node->n_inputs, sizeof *step->in);
    step->out = st_arena_array(&made->arena, node->n_outputs, sizeof *step->out);
    if (!step->in || !step->out) return no_memory(node->n_inputs * sizeof *step->in);
    TRY(kern_choose("cpu", &step->problem, true, &step->impl));
    if (step->impl->prepare) TRY(step->impl->prepare(&step->problem, n_threads, &step->prepared));
    made->n_steps++;
    return ST_OK;
}

/* An output is made in place unless it is an input, a view, or was already another output. */
static void choose_direct(ref_body_t *made) {
    const ir_graph_t *body = made->graph;
    for (ir_value_t v = 0; v < body->values.n; v++) made->direct[v] = IR_NONE;
    for (uint32_t k = 0; k < body->outputs.n; k++) {
        ir_value_t v = body->outputs.data[k].value;
        if (does_work(body, ir_value_producer(body, v)) && made->direct[v] == IR_NONE)
            made->direct[v] = k;
    }
}

st_status_t ref_body_create(const ir_graph_t *body, int n_threads, ref_body_t **out_made) {
    *out_made = NULL;
    st_status_t status = ST_OK;
    size_t n = body->values.n;
    ref_body_t *made = st_calloc(1, sizeof *made);
    if (!made) return no_memory(sizeof *made);
    made->graph = body;
    made->steps = st_arena_array(&made->arena, body->nodes.n, sizeof *made->steps);
    made->offsets = st_arena_array(&made->arena, n, sizeof *made->offsets);
    made->direct = st_arena_array(&made->arena, n, sizeof *made->direct);
    made->address = st_arena_array(&made->arena, n, sizeof *made->address);
    if (!made->steps || !made->offsets || !made->direct || !made->address)
        TRY_GOTO(no_memory(n * sizeof *made->address), fail);
    made->scratch = lay_out(body, made->offsets);
    choose_direct(made);
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        if (!does_work(body, ir_node(body, i))) continue;
        status = make_step(made, i, n_threads);
        if (status != ST_OK) {
            st_error_context(status, "%s of a body", ir_node_label(body, i));
            goto fail;
        }
    }
    *out_made = made;
    return ST_OK;
fail:
    ref_body_destroy(made);
    return status;
}

void ref_body_destroy(ref_body_t *made) {
    if (!made) return;
    for (uint32_t i = 0; i < made->n_steps; i++)
        if (made->steps[i].prepared) made->steps[i].impl->release(made->steps[i].prepared);
    st_arena_clear(&made->arena);
    st_free(made);
}

/* Whether an output lies in an operand's memory: it is then made aside, for nodes that come later
 * may read the operand. */
static bool is_operand(const void *out, const void *const *in, uint32_t n_in) {
    for (uint32_t j = 0; j < n_in; j++)
        if (in[j] == out) return true;
    return false;
}

static void find_addresses(ref_body_t *made, const void *const *in, void *const *out,
                           void *workspace) {
    const ir_graph_t *body = made->graph;
    uint32_t n_in = ir_body_n_inputs(body), j = 0;
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            ir_value_t v = node->first_output + k;
            if (node->op == IR_OP_INPUT)
                made->address[v] = (void *)(uintptr_t)in[j++];
            else if (is_view(node))
                made->address[v] = made->address[node->inputs[0]];
            else if (!ir_type_bytes(ir_value_type(body, v)))
                made->address[v] = NULL;
            else if (made->direct[v] != IR_NONE && !is_operand(out[made->direct[v]], in, n_in))
                made->address[v] = out[made->direct[v]];
            else
                made->address[v] = (char *)workspace + made->offsets[v];
        }
    }
}

st_status_t ref_body_run(ref_body_t *made, const kern_call_t *call, const void *const *in,
                         void *const *out, void *workspace) {
    const ir_graph_t *body = made->graph;
    find_addresses(made, in, out, workspace);
    for (uint32_t i = 0; i < made->n_steps; i++) {
        body_step_t *step = &made->steps[i];
        const ir_node_info_t *node = ir_node(body, step->node);
        for (uint32_t j = 0; j < node->n_inputs; j++) step->in[j] = made->address[node->inputs[j]];
        for (uint32_t k = 0; k < node->n_outputs; k++)
            step->out[k] = made->address[node->first_output + k];
        kern_call_t inner = {.problem = &step->problem,
                             .in = step->in,
                             .out = step->out,
                             .workspace = (char *)workspace + made->scratch,
                             .prepared = step->prepared,
                             .stream = call->stream,
                             .team = call->team};
        st_status_t status = step->impl->launch(&inner);
        if (status != ST_OK)
            return st_error_context(status, "%s of the body", ir_node_label(body, step->node));
    }
    for (uint32_t k = 0; k < body->outputs.n; k++) {
        ir_value_t v = body->outputs.data[k].value;
        size_t bytes = ir_type_bytes(ir_value_type(body, v));
        if (bytes && made->address[v] != out[k]) memcpy(out[k], made->address[v], bytes);
    }
    return ST_OK;
}

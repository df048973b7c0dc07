/* Ranks in different processes make sure that they have one plan, or say what differs.
 *
 * Plans are compared by their options first, then by a hash of all. Options of training (--lr,
 * --betas …) stand in the source graph, as attributes of its nodes: where the graphs differ, the
 * first node that does is found by hashes of the nodes up to one, a bit of its number at a time,
 * and named with the attribute, the option that it comes from where that is known, and both values.
 * So what goes over the wire is some hashes, however large the graphs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "exec/internal.h"
#include "ir/structure.h"
#include "ir/text.h"

enum { HEX_BYTES = 20, NODE_BITS = 30, MOST_ATTRS = 64, NAME_BYTES = 192, VALUE_BYTES = 160 };

static void hex(uint64_t value, char *out) {
    snprintf(out, HEX_BYTES, "%016" PRIx64, value);
}

/* ---- the first node that differs ---- */

/* hashes[k]: of the nodes before k. */
static st_status_t hash_nodes(const ir_graph_t *graph, uint64_t **out_hashes) {
    uint64_t *hashes = st_calloc(graph->nodes.n + 1, sizeof *hashes);
    *out_hashes = hashes;
    if (!hashes) return st_no_memory(graph->nodes.n * sizeof *hashes, "an agreement");
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        uint64_t hash = ir_attrs_hash(node->op, node->attrs, hashes[n]);
        hash = st_hash64(node->inputs, node->n_inputs * sizeof *node->inputs, hash);
        hashes[n + 1] = st_hash64(node->name, strlen(node->name), hash + (uint64_t)node->phase);
    }
    return ST_OK;
}

/* Whether all ranks have the same first `n` nodes; all that there are, where there are fewer. */
static st_status_t same_nodes(comm_t *comm, const ir_graph_t *graph, const uint64_t *hashes,
                              size_t n, bool *out_same) {
    char text[2 * HEX_BYTES];
    const size_t own = n < graph->nodes.n ? n : graph->nodes.n;
    snprintf(text, sizeof text, "%016" PRIx64 "/%zu", hashes[own], own);
    st_status_t status = comm_agree(comm, 1, &(comm_fact_t){"the nodes", text});
    *out_same = status == ST_OK;
    return status == ST_RANKS_DISAGREE ? ST_OK : status;
}

/* Options of training by what they become in the graph. */
static const char *option_of(const char *op, const char *attr) {
    static const struct {
        const char *op, *attr, *option;
    } rows[] = {
        {"lr_schedule", "base", "lr"},
        {"lr_schedule", "kind", "schedule"},
        {"lr_schedule", "warmup", "warmup"},
        {"lr_schedule", "total", "steps"},
        {"lr_schedule", "min", "min-lr"},
        {"adamw", "beta1", "betas"},
        {"adamw", "beta2", "betas"},
        {"adamw", "eps", "eps"},
        {"adamw", "weight_decay", "weight-decay"},
        {"adamw", "decoupled", "optimizer"},
        {"sgd", "momentum", "momentum"},
        {"sgd", "nesterov", "nesterov"},
        {"sgd", "weight_decay", "weight-decay"},
        {"repeat", "trip", "accumulate"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].op, op) == 0 && strcmp(rows[i].attr, attr) == 0) return rows[i].option;
    return NULL;
}

typedef struct told {
    comm_fact_t facts[MOST_ATTRS + 1];
    char names[MOST_ATTRS + 1][NAME_BYTES], values[MOST_ATTRS + 1][VALUE_BYTES];
    size_t n;
} told_t;

/* The fact whose name and value have been written. */
static void add_fact(told_t *t) {
    t->facts[t->n] = (comm_fact_t){t->names[t->n], t->values[t->n]};
    t->n++;
}

/* Long values, constants and bodies, by their hash. */
static st_status_t write_value(const ir_node_info_t *node, uint32_t i, char *out) {
    char *text;
    TRY(ir_attr_print(node, i, &text));
    const size_t bytes = strlen(text);
    if (bytes < VALUE_BYTES)
        memcpy(out, text, bytes + 1);
    else
        snprintf(out, VALUE_BYTES, "%.60s… (%zu bytes, hash %016" PRIx64 ")", text, bytes,
                 st_hash64(text, bytes, 0));
    st_free(text);
    return ST_OK;
}

/* Operator, name and operands of a node, then its attributes. */
static st_status_t tell_node(const ir_graph_t *graph, size_t n, told_t *t) {
    snprintf(t->names[0], NAME_BYTES, "node %zu of the source graph", n);
    if (n >= graph->nodes.n) {
        snprintf(t->values[0], VALUE_BYTES, "none");
        add_fact(t);
        return ST_OK;
    }
    const ir_node_info_t *node = ir_node(graph, (ir_node_t)n);
    const ir_op_def_t *def = ir_op_def(node->op);
    int used = snprintf(t->values[0], VALUE_BYTES, "%.60s%s%s(", node->name,
                        node->name[0] ? " " : "", def->name);
    for (uint32_t j = 0; j < node->n_inputs && used < VALUE_BYTES - 16; j++)
        used += snprintf(t->values[0] + used, VALUE_BYTES - (size_t)used, "%s%%%u", j ? ", " : "",
                         node->inputs[j]);
    snprintf(t->values[0] + used, VALUE_BYTES - (size_t)used, ")");
    add_fact(t);
    for (uint32_t i = 0; i < ir_op_n_attrs(def) && i < MOST_ATTRS; i++) {
        const char *option = option_of(def->name, def->attrs[i].key);
        snprintf(t->names[t->n], NAME_BYTES, "%s%s%s'%s' of node %zu (%s%s%.60s)",
                 option ? "option '" : "", option ? option : "", option ? "', " : "",
                 def->attrs[i].key, n, def->name, node->name[0] ? " " : "", node->name);
        TRY(write_value(node, i, t->values[t->n]));
        add_fact(t);
    }
    return ST_OK;
}

/* The graphs' hashes differ: RANKS_DISAGREE with the first difference of their nodes; `general`
 * where they have none (outputs, aliases). All ranks go the same way. */
static st_status_t tell_difference(exec_session_t *session, const comm_fact_t *general) {
    const ir_graph_t *graph = session->plan->source;
    uint64_t *hashes;
    size_t first = 0;
    bool same;
    told_t *told = NULL;
    st_status_t status = ST_OK;
    TRY(hash_nodes(graph, &hashes));
    for (int bit = NODE_BITS; bit >= 0; bit--) {
        const size_t more = first + ((size_t)1 << bit);
        TRY_GOTO(same_nodes(session->beside, graph, hashes, more, &same), done);
        if (same) first = more;
    }
    told = st_calloc(1, sizeof *told);
    if (!told) TRY_GOTO(st_no_memory(sizeof *told, "an agreement"), done);
    TRY_GOTO(tell_node(graph, first, told), done);
    TRY_GOTO(comm_agree(session->beside, told->n, told->facts), done);
    status = comm_agree(session->beside, 1, general);
done:
    st_free(told);
    st_free(hashes);
    return status;
}

st_status_t exec_agree(exec_session_t *session) {
    const plan_t *plan = session->plan;
    uint8_t *encoded = NULL;
    size_t bytes = 0, n = 0;
    char graph[HEX_BYTES], whole[HEX_BYTES], threads[HEX_BYTES];
    TRY(plan_encode(plan, &encoded, &bytes));
    hex(plan->graph_hash, graph);
    hex(st_hash64(encoded, bytes, 0), whole);
    snprintf(threads, sizeof threads, "%u", plan->n_threads);
    st_free(encoded);
    const comm_fact_t source = {"the source graph's hash", graph};
    st_status_t status = comm_agree(session->beside, 1, &source);
    if (status == ST_RANKS_DISAGREE) return tell_difference(session, &source);
    if (status != ST_OK) return status;
    comm_fact_t *facts = st_calloc(plan->n_options + 3, sizeof *facts);
    if (!facts) return st_no_memory((plan->n_options + 3) * sizeof *facts, "a session");
    facts[n++] = (comm_fact_t){"the device", plan->device};
    facts[n++] = (comm_fact_t){"the threads of a rank", threads};
    for (uint32_t i = 0; i < plan->n_options; i++)
        facts[n++] = (comm_fact_t){plan->options[i].key, plan->options[i].value};
    facts[n++] = (comm_fact_t){"the plan's hash", whole};
    status = comm_agree(session->beside, n, facts);
    st_free(facts);
    return status;
}

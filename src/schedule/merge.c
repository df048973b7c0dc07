/* Merging of collectives (merge.h). */
#include "schedule/merge.h"

#include <string.h>

#include "base/memory.h"
#include "schedule/dag.h"

/* The lists of a merged start's attributes, one entry an operand. */
enum { MOST_LISTS = 3 };

typedef struct bucket {
    ST_VEC(ir_node_t) starts; /* in order */
    uint32_t n_emitted;       /* starts passed */
    uint32_t n_operands;
    ir_value_t in_flight; /* merged start's first output, once it is there */
    bool waited;
} bucket_t;

typedef struct merging {
    const ir_graph_t *graph;
    const uint32_t *group_of;
    bucket_t *buckets;
    ir_value_t *waited_as; /* [values] in flight: what its wait makes of it */
} merging_t;

static bool is_wait(const ir_graph_t *graph, ir_node_t n) {
    return sched_is_collective(graph, n) && !sched_is_start(graph, n);
}

static st_status_t find_buckets(merging_t *m, const ir_node_t *order) {
    const ir_graph_t *graph = m->graph;
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_t n = order ? order[i] : i;
        const ir_node_info_t *node = ir_node(graph, n);
        if (sched_is_start(graph, n)) {
            bucket_t *bucket = &m->buckets[m->group_of[n]];
            bucket->n_operands += node->n_inputs;
            TRY(ST_VEC_PUSH(&bucket->starts, n));
        }
        for (uint32_t j = 0; is_wait(graph, n) && j < node->n_inputs; j++)
            m->waited_as[node->inputs[j]] = node->first_output + j;
    }
    return ST_OK;
}

/* Joins the lists of the members' attribute `key` in `out`, which has room. */
static ir_arg_t join_lists(const merging_t *m, const bucket_t *bucket, const char *key,
                           int64_t *out) {
    uint32_t n = 0;
    for (size_t i = 0; i < bucket->starts.n; i++) {
        const ir_attr_t *list = ir_node_attr(ir_node(m->graph, bucket->starts.data[i]), key);
        memcpy(out + n, list->ints.v, list->ints.n * sizeof *out);
        n += list->ints.n;
    }
    return IR_ARG_INTS(key, out, n);
}

static st_status_t emit_start(merging_t *m, bucket_t *bucket, ir_graph_t *to,
                              const ir_value_t *map) {
    const ir_node_info_t *first = ir_node(m->graph, bucket->starts.data[0]);
    const ir_attr_spec_t *specs = ir_op_def(first->op)->attrs;
    ir_arg_t args[MOST_LISTS + 1];
    uint32_t n_args = 0, n = 0, n_lists = 0;
    st_status_t status = ST_OK;
    ir_value_t *inputs = st_calloc(bucket->n_operands, sizeof *inputs);
    int64_t *lists = st_calloc(MOST_LISTS * (size_t)bucket->n_operands, sizeof *lists);
    if (!inputs || !lists)
        TRY_GOTO(st_no_memory(bucket->n_operands * sizeof *inputs, "a merged collective"), done);
    for (size_t i = 0; i < bucket->starts.n; i++) {
        const ir_node_info_t *node = ir_node(m->graph, bucket->starts.data[i]);
        for (uint32_t j = 0; j < node->n_inputs; j++) inputs[n++] = map[node->inputs[j]];
    }
    for (uint32_t a = 0; specs[a].key; a++) {
        if (specs[a].kind != IR_ATTR_INTS) {
            args[n_args++] = (ir_arg_t){specs[a].key, first->attrs[a]};
            continue;
        }
        ASSERT(n_lists < MOST_LISTS);
        args[n_args++] =
            join_lists(m, bucket, specs[a].key, lists + n_lists++ * (size_t)bucket->n_operands);
    }
    TRY_GOTO(ir_graph_add(to, first->op, NULL, n, inputs, n_args, args, &bucket->in_flight), done);
done:
    st_free(inputs);
    st_free(lists);
    return status;
}

static st_status_t emit_wait(merging_t *m, bucket_t *bucket, ir_op_t op, ir_graph_t *to,
                             ir_value_t *map) {
    ir_value_t made, *inputs = st_calloc(bucket->n_operands, sizeof *inputs);
    if (!inputs) return st_no_memory(bucket->n_operands * sizeof *inputs, "a merged collective");
    for (uint32_t j = 0; j < bucket->n_operands; j++) inputs[j] = bucket->in_flight + j;
    st_status_t status = ir_graph_add(to, op, NULL, bucket->n_operands, inputs, 0, NULL, &made);
    st_free(inputs);
    bucket->waited = true;
    for (size_t i = 0; status == ST_OK && i < bucket->starts.n; i++) {
        const ir_node_info_t *start = ir_node(m->graph, bucket->starts.data[i]);
        for (uint32_t k = 0; k < start->n_outputs; k++)
            map[m->waited_as[start->first_output + k]] = made++;
    }
    return status;
}

static st_status_t emit(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t n,
                        ir_value_t *map) {
    merging_t *m = context;
    if (sched_is_start(from, n)) {
        bucket_t *bucket = &m->buckets[m->group_of[n]];
        if (bucket->starts.n == 1) return ir_graph_clone_node(to, from, n, NULL, map);
        return ++bucket->n_emitted == bucket->starts.n ? emit_start(m, bucket, to, map) : ST_OK;
    }
    if (!is_wait(from, n)) return ir_graph_clone_node(to, from, n, NULL, map);
    const ir_value_t taken = ir_node(from, n)->inputs[0];
    bucket_t *bucket = &m->buckets[m->group_of[from->values.data[taken].producer]];
    if (bucket->starts.n == 1) return ir_graph_clone_node(to, from, n, NULL, map);
    if (bucket->n_emitted < bucket->starts.n)
        return FAIL(ST_INTERNAL, "%s stands before the collective that it is merged into",
                    ir_node_label(from, n));
    return bucket->waited ? ST_OK : emit_wait(m, bucket, ir_node(from, n)->op, to, map);
}

st_status_t sched_merge(const ir_graph_t *graph, const ir_node_t *order, const uint32_t *group_of,
                        uint32_t n_groups, ir_graph_t **out_graph) {
    merging_t m = {.graph = graph, .group_of = group_of};
    st_status_t status = ST_OK;
    *out_graph = NULL;
    m.buckets = st_calloc(n_groups, sizeof *m.buckets);
    m.waited_as = st_calloc(graph->values.n, sizeof *m.waited_as);
    if (!m.buckets || !m.waited_as)
        TRY_GOTO(st_no_memory(graph->values.n * sizeof *m.waited_as, "merged collectives"), done);
    TRY_GOTO(find_buckets(&m, order), done);
    TRY_GOTO(ir_graph_rewrite(graph, order, emit, &m, out_graph), done);
done:
    for (uint32_t g = 0; m.buckets && g < n_groups; g++) ST_VEC_FREE(&m.buckets[g].starts);
    st_free(m.buckets);
    st_free(m.waited_as);
    return status;
}

/* Merging of all-reduces (buckets.h). */
#include "fusion/buckets.h"

#include <string.h>

#include "ir/op.h"

typedef ST_VEC(ir_value_t) values_t;

/* Bucket of a start or wait node; IR_NONE for other nodes. */
typedef struct bucket {
    ir_node_t last_start; /* where the merged start stands */
    uint64_t bytes;
    ir_dtype_t dtype; /* of all members; NONE: a start of several types, which stays alone */
    const char *mesh; /* axis of all members */
    ir_node_t first_wait;
    uint32_t phase;       /* starts before first_wait */
    ir_value_t in_flight; /* merged start's first output, once it is emitted */
    bool waited;
    values_t inputs,
        outputs; /* values of the old graph: inputs of the starts, outputs of the waits */
} bucket_t;

typedef struct buckets {
    const ir_graph_t *graph;
    const ir_graph_t *model; /* the same nodes: whose bytes count */
    uint32_t *of_node;       /* [nodes] */
    ir_node_t *wait;         /* [nodes]: of a start, its wait */
    uint32_t *n_starts;      /* [nodes]: starts before it */
    ST_VEC(bucket_t) list;
} buckets_t;

static void buckets_free(buckets_t *buckets) {
    for (size_t i = 0; i < buckets->list.n; i++) {
        ST_VEC_FREE(&buckets->list.data[i].inputs);
        ST_VEC_FREE(&buckets->list.data[i].outputs);
    }
    ST_VEC_FREE(&buckets->list);
    st_free(buckets->of_node);
    st_free(buckets->wait);
    st_free(buckets->n_starts);
}

static uint64_t start_bytes(const ir_graph_t *graph, const ir_node_info_t *start) {
    uint64_t bytes = 0;
    for (uint32_t j = 0; j < start->n_inputs; j++)
        bytes += ir_type_bytes(ir_value_type(graph, start->inputs[j]));
    return bytes;
}

static bool one_dtype(const ir_graph_t *graph, const ir_node_info_t *start, ir_dtype_t dtype) {
    for (uint32_t j = 0; j < start->n_inputs; j++)
        if (ir_value_type(graph, start->inputs[j])->dtype != dtype) return false;
    return true;
}

/* The newest bucket that the start could join but for its size: no wait passed, and no other start
 * between its wait and the bucket's. NULL: none. */
static bucket_t *find_bucket(const buckets_t *buckets, ir_node_t n, ir_dtype_t dtype,
                             const char *mesh) {
    for (size_t i = buckets->list.n; i-- > 0;) {
        bucket_t *bucket = &buckets->list.data[i];
        if (bucket->dtype == dtype && strcmp(bucket->mesh, mesh) == 0 && bucket->first_wait > n &&
            bucket->phase == buckets->n_starts[buckets->wait[n]])
            return bucket;
    }
    return NULL;
}

static st_status_t place_start(buckets_t *buckets, ir_node_t n, uint64_t limit) {
    const ir_node_info_t *start = ir_node(buckets->graph, n);
    ir_dtype_t dtype = ir_value_type(buckets->graph, start->inputs[0])->dtype;
    uint64_t bytes = start_bytes(buckets->model, ir_node(buckets->model, n));
    bool uniform = one_dtype(buckets->graph, start, dtype);
    ir_node_t wait = buckets->wait[n];
    const char *mesh = ir_node_attr(start, "mesh")->s;
    bucket_t *bucket = uniform ? find_bucket(buckets, n, dtype, mesh) : NULL;
    if (!bucket || bucket->bytes + bytes > limit) {
        TRY(ST_VEC_PUSH(&buckets->list, ((bucket_t){.in_flight = IR_NONE,
                                                    .dtype = uniform ? dtype : IR_DTYPE_NONE,
                                                    .mesh = mesh,
                                                    .first_wait = wait,
                                                    .phase = buckets->n_starts[wait]})));
        bucket = &buckets->list.data[buckets->list.n - 1];
    }
    buckets->of_node[n] = buckets->of_node[wait] = (uint32_t)(bucket - buckets->list.data);
    bucket->last_start = n;
    bucket->bytes += bytes;
    if (wait < bucket->first_wait) bucket->first_wait = wait;
    for (uint32_t j = 0; j < start->n_inputs; j++)
        TRY(ST_VEC_PUSH(&bucket->inputs, start->inputs[j]));
    return ST_OK;
}

static void link_waits(buckets_t *buckets) {
    const ir_graph_t *graph = buckets->graph;
    uint32_t n_starts = 0;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        buckets->of_node[n] = IR_NONE;
        buckets->n_starts[n] = n_starts;
        n_starts += node->op == IR_OP_ALL_REDUCE_START;
        if (node->op == IR_OP_ALL_REDUCE_WAIT)
            buckets->wait[graph->values.data[node->inputs[0]].producer] = n;
    }
}

/* Old wait outputs in the order of the merged start's inputs. */
static st_status_t collect_outputs(buckets_t *buckets) {
    const ir_graph_t *graph = buckets->graph;
    ir_value_t *wait_of = st_calloc(graph->values.n, sizeof *wait_of); /* in flight → waited for */
    if (!wait_of) return st_no_memory(graph->values.n * sizeof *wait_of, "the buckets");
    st_status_t status = ST_OK;
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *wait = ir_node(graph, n);
        if (wait->op != IR_OP_ALL_REDUCE_WAIT) continue;
        for (uint32_t j = 0; j < wait->n_inputs; j++)
            wait_of[wait->inputs[j]] = wait->first_output + j;
    }
    for (ir_node_t n = 0; n < graph->nodes.n; n++) {
        const ir_node_info_t *start = ir_node(graph, n);
        if (start->op != IR_OP_ALL_REDUCE_START) continue;
        bucket_t *bucket = &buckets->list.data[buckets->of_node[n]];
        for (uint32_t k = 0; k < start->n_outputs; k++)
            TRY_GOTO(ST_VEC_PUSH(&bucket->outputs, wait_of[start->first_output + k]), done);
    }
done:
    st_free(wait_of);
    return status;
}

static st_status_t emit_start(bucket_t *bucket, ir_graph_t *to, const ir_value_t *map) {
    values_t inputs = {0};
    st_status_t status = ST_OK;
    ir_arg_t mesh = IR_ARG_STRING("mesh", bucket->mesh);
    for (size_t i = 0; i < bucket->inputs.n; i++)
        TRY_GOTO(ST_VEC_PUSH(&inputs, map[bucket->inputs.data[i]]), done);
    TRY_GOTO(ir_graph_add(to, IR_OP_ALL_REDUCE_START, NULL, (uint32_t)inputs.n, inputs.data, 1,
                          &mesh, &bucket->in_flight),
             done);
done:
    ST_VEC_FREE(&inputs);
    return status;
}

static st_status_t emit_wait(bucket_t *bucket, ir_graph_t *to, ir_value_t *map) {
    values_t inputs = {0};
    ir_value_t first = IR_NONE;
    st_status_t status = ST_OK;
    for (size_t i = 0; i < bucket->outputs.n; i++)
        TRY_GOTO(ST_VEC_PUSH(&inputs, bucket->in_flight + (ir_value_t)i), done);
    TRY_GOTO(ir_graph_add(to, IR_OP_ALL_REDUCE_WAIT, NULL, (uint32_t)inputs.n, inputs.data, 0, NULL,
                          &first),
             done);
    for (size_t i = 0; i < bucket->outputs.n; i++)
        map[bucket->outputs.data[i]] = first + (ir_value_t)i;
    bucket->waited = true;
done:
    ST_VEC_FREE(&inputs);
    return status;
}

static st_status_t emit(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                        ir_value_t *map) {
    buckets_t *buckets = context;
    if (buckets->of_node[node] == IR_NONE) return ir_graph_clone_node(to, from, node, NULL, map);
    bucket_t *bucket = &buckets->list.data[buckets->of_node[node]];
    if (node == bucket->last_start) TRY(emit_start(bucket, to, map));
    if (ir_node(from, node)->op == IR_OP_ALL_REDUCE_WAIT && !bucket->waited)
        TRY(emit_wait(bucket, to, map));
    return ST_OK;
}

st_status_t fuse_buckets(const ir_graph_t *graph, const ir_graph_t *model, uint64_t bucket_bytes,
                         ir_graph_t **out_graph) {
    *out_graph = NULL;
    buckets_t buckets = {.graph = graph, .model = model};
    st_status_t status = ST_OK;
    ASSERT(graph->nodes.n == model->nodes.n);
    buckets.of_node = st_calloc(graph->nodes.n, sizeof *buckets.of_node);
    buckets.wait = st_calloc(graph->nodes.n, sizeof *buckets.wait);
    buckets.n_starts = st_calloc(graph->nodes.n, sizeof *buckets.n_starts);
    if (!buckets.of_node || !buckets.wait || !buckets.n_starts)
        TRY_GOTO(st_no_memory(graph->nodes.n * sizeof *buckets.wait, "the buckets"), done);
    link_waits(&buckets);
    for (ir_node_t n = 0; n < graph->nodes.n; n++)
        if (ir_node(graph, n)->op == IR_OP_ALL_REDUCE_START)
            TRY_GOTO(place_start(&buckets, n, bucket_bytes), done);
    TRY_GOTO(collect_outputs(&buckets), done);
    TRY_GOTO(ir_graph_rewrite(graph, NULL, emit, &buckets, out_graph), done);
done:
    buckets_free(&buckets);
    return status;
}

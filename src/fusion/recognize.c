/* Recognition (recognize.h): the search, the choice of matches, and the rewriting. */
#include "fusion/recognize.h"

#include <pthread.h>
#include <string.h>

#include "base/memory.h"
#include "base/vec.h"
#include "fusion/asking.h"
#include "fusion/patterns.h"
#include "fusion/simplify.h"
#include "ir/op.h"

enum { MAX_ROWS = 64, MAX_ROUNDS = 8 };

static const fuse_patterns_t *const tables[] = {
    &fuse_patterns_attention,  &fuse_patterns_norm,    &fuse_patterns_rope,
    &fuse_patterns_activation, &fuse_patterns_softmax,
};

/* The tables' rows with their patterns read. */
typedef struct pattern_rows {
    uint32_t n_rows;
    const fuse_row_t *rows[MAX_ROWS];
    match_pattern_t *patterns[MAX_ROWS];
    uint64_t by_op[IR_OP_END]; /* rows that can start with the op, a bit each */
} pattern_rows_t;

typedef struct recognition {
    const ir_graph_t *graph;
    const pattern_rows_t *table;
    asking_t asking;
    fuse_cone_t cone;
    uint64_t *forbidden; /* [nodes]: rows that did not pay there */
    uint8_t *trained;    /* [values] */
    uint8_t *claimed;    /* [nodes]: inside a match */
    uint8_t *live;       /* [nodes] with all matches in place */
    uint32_t *site_of;   /* [nodes]: of a root, its site plus one */
    ST_VEC(fuse_site_t) sites;
} recognition_t;

/* ---- helpers of the pattern files ---- */

uint32_t site_add(fuse_site_t *site, ir_value_t value) {
    ASSERT(site->n_in < SITE_MAX_IN);
    site->in[site->n_in] = value;
    return site->n_in++;
}

bool site_reduces_trailing(const fuse_site_t *site, ir_value_t reduction, const ir_type_t *x,
                           int32_t *out_n) {
    const ir_node_info_t *node = site_producer(site, reduction);
    const ir_attr_t *axes = ir_node_attr(node, "axes");
    *out_n = axes->ints.n ? (int32_t)axes->ints.n : x->rank;
    if (!ir_dims_equal(site_type(site, node->inputs[0]), x) || *out_n < 1) return false;
    for (uint32_t i = 0; i < axes->ints.n; i++)
        if (axes->ints.v[i] != x->rank - *out_n + (int32_t)i) return false;
    return true;
}

bool site_is_statistic(const fuse_site_t *site, ir_value_t value, const ir_type_t *x, int32_t n) {
    ir_type_t expected = *x;
    for (int32_t i = x->rank - n; i < x->rank; i++) expected.dims[i] = 1;
    return ir_dims_equal(site_type(site, value), &expected);
}

bool site_is_trailing(const fuse_site_t *site, ir_value_t value, const ir_type_t *x, int32_t n) {
    const ir_type_t *type = site_type(site, value);
    if (type->rank < n || type->rank > x->rank) return false;
    for (int32_t i = 0; i < type->rank; i++) {
        int32_t from_end = type->rank - i;
        if (type->dims[i] != (from_end <= n ? x->dims[x->rank - from_end] : 1)) return false;
    }
    return true;
}

ir_value_t site_trailing(ir_build_t *b, ir_value_t x, const ir_type_t *type, int32_t n) {
    x = ir_b_reshape(b, x, n, &type->dims[type->rank - n]);
    return ir_b_cast(b, x, ir_dtype_wide(type->dtype));
}

ir_value_t site_as_root(const fuse_site_t *site, ir_build_t *b, ir_value_t x) {
    x = ir_b_reshape(b, x, site->type.rank, site->type.dims);
    return ir_b_cast(b, x, site->type.dtype);
}

/* ---- the search ---- */

static st_status_t read_rows(pattern_rows_t *r) {
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const fuse_row_t *row = tables[t]->rows; row->pattern; row++) {
            ASSERT(r->n_rows < MAX_ROWS);
            match_pattern_t **pattern = &r->patterns[r->n_rows];
            TRY(match_compile(row->pattern, tables[t]->definitions, pattern));
            for (int op = 1; op < IR_OP_END; op++)
                if (match_may_start(*pattern, (ir_op_t)op))
                    r->by_op[op] |= (uint64_t)1 << r->n_rows;
            r->rows[r->n_rows++] = row;
        }
    }
    return ST_OK;
}

/* The tables are read when they are first asked for, and stay, for all threads: reading them takes
 * as long as a small graph. What failed for lack of memory is tried again. */
static st_status_t open_rows(const pattern_rows_t **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pattern_rows_t table;
    static bool is_read;
    st_status_t status = ST_OK;
    pthread_mutex_lock(&lock);
    if (!is_read) {
        status = read_rows(&table);
        is_read = status == ST_OK;
        for (uint32_t i = 0; !is_read && i < MAX_ROWS; i++) match_free(table.patterns[i]);
        if (!is_read) table = (pattern_rows_t){0};
    }
    pthread_mutex_unlock(&lock);
    *out = &table;
    return status;
}

static st_status_t open_recognition(recognition_t *r, const ir_target_t *target) {
    const ir_graph_t *graph = r->graph;
    size_t n = graph->nodes.n + 1;
    TRY(fuse_cone_open(graph, target, &r->cone));
    TRY(open_rows(&r->table));
    r->forbidden = st_calloc(n, sizeof *r->forbidden);
    r->claimed = st_calloc(n, 1);
    r->live = st_calloc(n, 1);
    r->site_of = st_calloc(n, sizeof *r->site_of);
    r->trained = st_calloc(graph->values.n + 1, 1);
    if (!r->forbidden || !r->claimed || !r->live || !r->site_of || !r->trained)
        return st_no_memory(n * sizeof *r->forbidden, "recognition");
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(graph, i);
        bool trained = node->op == IR_OP_PARAMETER;
        for (uint32_t j = 0; j < node->n_inputs; j++) trained |= r->trained[node->inputs[j]];
        for (uint32_t k = 0; k < node->n_outputs; k++) r->trained[node->first_output + k] = trained;
    }
    return ST_OK;
}

static void close_recognition(recognition_t *r) {
    asking_close(&r->asking);
    fuse_cone_close(&r->cone);
    st_free(r->forbidden);
    st_free(r->claimed);
    st_free(r->live);
    st_free(r->site_of);
    st_free(r->trained);
    ST_VEC_FREE(&r->sites);
}

static st_status_t check_site(match_t *match, void *context, bool *out_accepted) {
    fuse_site_t *site = context;
    (void)match; /* the site's own */
    site->n_in = 0;
    return site->row->check(site, out_accepted);
}

static st_status_t try_node(recognition_t *r, ir_node_t n, fuse_site_t *site) {
    const ir_node_info_t *node = ir_node(r->graph, n);
    uint64_t rows = r->table->by_op[node->op] & ~r->forbidden[n];
    for (uint32_t i = 0; i < r->table->n_rows && rows >> i; i++) {
        if (!(rows >> i & 1)) continue;
        bool found;
        *site = (fuse_site_t){.row = r->table->rows[i],
                              .trained = r->trained,
                              .type = *ir_value_type(r->graph, node->first_output)};
        TRY(match_at(r->table->patterns[i], &r->cone, node->first_output, check_site, site,
                     &site->match, &found));
        if (!found) continue;
        TRY(ST_VEC_PUSH(&r->sites, *site));
        r->site_of[n] = (uint32_t)r->sites.n;
        for (uint32_t k = 0; k < site->match.n_nodes; k++) r->claimed[site->match.nodes[k]] = 1;
        return ST_OK;
    }
    return ST_OK;
}

static st_status_t find_sites(recognition_t *r) {
    size_t n = r->graph->nodes.n;
    fuse_site_t *site = st_malloc(sizeof *site);
    st_status_t status = ST_OK;
    if (!site) return st_no_memory(sizeof *site, "recognition");
    memset(r->claimed, 0, n);
    memset(r->site_of, 0, n * sizeof *r->site_of);
    r->sites.n = 0;
    for (ir_node_t i = (ir_node_t)n; i-- > 0 && status == ST_OK;)
        if (!r->claimed[i] && ir_node(r->graph, i)->n_outputs > 0 &&
            r->table->by_op[ir_node(r->graph, i)->op])
            status = try_node(r, i, site);
    st_free(site);
    return status;
}

/* ---- which matches pay ---- */

static void mark(recognition_t *r, ir_value_t value) {
    r->live[r->graph->values.data[value].producer] = 1;
}

static void mark_live(recognition_t *r) {
    const ir_graph_t *graph = r->graph;
    const uint32_t kept = IR_SIDE_EFFECT | IR_COLLECTIVE | IR_STATE;
    memset(r->live, 0, graph->nodes.n);
    for (size_t i = 0; i < graph->outputs.n; i++) mark(r, graph->outputs.data[i].value);
    for (ir_node_t i = (ir_node_t)graph->nodes.n; i-- > 0;) {
        const ir_node_info_t *node = ir_node(graph, i);
        if (node->op == IR_OP_INPUT || (ir_op_def(node->op)->flags & kept)) r->live[i] = 1;
        if (!r->live[i]) continue;
        const fuse_site_t *site = r->site_of[i] ? &r->sites.data[r->site_of[i] - 1] : NULL;
        uint32_t n = site ? site->n_in : node->n_inputs;
        const ir_value_t *inputs = site ? site->in : node->inputs;
        for (uint32_t j = 0; j < n; j++) mark(r, inputs[j]);
    }
}

/* Views, and casts: several readers of one are usual, and none is what a composite saves. */
static bool is_cheap(ir_op_t op) {
    static const bool rows[IR_OP_END] = {
        [IR_OP_RESHAPE] = true, [IR_OP_BROADCAST] = true, [IR_OP_TRANSPOSE] = true,
        [IR_OP_CAST] = true,    [IR_OP_SLICE] = true,     [IR_OP_SELECT] = true,
        [IR_OP_NE] = true,      [IR_OP_CONCAT] = true};
    return rows[op];
}

/* A match pays if no value inside it that is as large as its result is computed all the same. */
static bool pays(const recognition_t *r, ir_node_t root) {
    const fuse_site_t *site = &r->sites.data[r->site_of[root] - 1];
    const ir_graph_t *graph = r->graph;
    for (uint32_t k = 0; k < site->match.n_nodes; k++) {
        ir_node_t n = site->match.nodes[k];
        const ir_node_info_t *node = ir_node(graph, n);
        if (n == root || !r->live[n] || is_cheap(node->op)) continue;
        if (2 * ir_type_elements(ir_value_type(graph, node->first_output)) >
            ir_type_elements(&site->type))
            return false;
    }
    return true;
}

static st_status_t choose_sites(recognition_t *r) {
    for (int round = 0;; round++) {
        bool again = false;
        TRY(find_sites(r));
        mark_live(r);
        for (ir_node_t n = 0; n < r->graph->nodes.n; n++) {
            if (!r->site_of[n] || !r->live[n] || pays(r, n)) continue;
            const fuse_row_t *row = r->sites.data[r->site_of[n] - 1].row;
            uint32_t i = 0;
            while (r->table->rows[i] != row) i++;
            r->forbidden[n] |= round < MAX_ROUNDS ? (uint64_t)1 << i : UINT64_MAX;
            again = true;
        }
        if (!again) return ST_OK;
    }
}

/* ---- rewriting ---- */

static st_status_t rewrite(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                           ir_value_t *map) {
    recognition_t *r = context;
    if (!r->live[node]) return ST_OK;
    if (!r->site_of[node]) return asking_clone(&r->asking, to, node, map);
    const fuse_site_t *site = &r->sites.data[r->site_of[node] - 1];
    const ir_node_info_t *info = ir_node(from, node);
    ir_build_t b = {.graph = to, .name = info->name};
    ir_value_t in[SITE_MAX_IN];
    for (uint32_t k = 0; k < site->n_in; k++) in[k] = map[site->in[k]];
    ir_value_t out = site->row->build(site, &b, in);
    if (b.status != ST_OK)
        return st_error_context(b.status, "recognition at %s", ir_node_label(from, node));
    for (uint32_t k = 0; k < info->n_outputs; k++) {
        if (!ir_type_equal(ir_value_type(to, out + k), ir_value_type(from, info->first_output + k)))
            return FAIL(ST_INTERNAL, "recognition changed the type of %s",
                        ir_node_label(from, node));
        map[info->first_output + k] = out + k;
    }
    return ST_OK;
}

st_status_t fuse_recognize(const ir_graph_t *graph, const ir_target_t *target,
                           ir_graph_t **out_graph, size_t *out_n_found) {
    recognition_t r = {0};
    st_status_t status = ST_OK;
    *out_graph = NULL;
    if (out_n_found) *out_n_found = 0;
    TRY_GOTO(asking_open(graph, &r.asking), done);
    r.graph = graph = r.asking.graph;
    TRY_GOTO(open_recognition(&r, target), done);
    TRY_GOTO(choose_sites(&r), done);
    TRY_GOTO(ir_graph_rewrite(graph, NULL, rewrite, &r, out_graph), done);
    for (ir_node_t n = 0; out_n_found && n < graph->nodes.n; n++)
        *out_n_found += r.site_of[n] && r.live[n];
done:
    close_recognition(&r);
    return status;
}

st_status_t fuse_capture(const ir_graph_t *graph, const ir_target_t *target,
                         ir_graph_t **out_graph) {
    ir_graph_t *current = NULL, *made = NULL;
    size_t n_found = 1;
    *out_graph = NULL;
    TRY(fuse_simplify_exact(graph, target, &current));
    for (int round = 0; round < MAX_ROUNDS && n_found; round++) {
        st_status_t status = fuse_recognize(current, target, &made, &n_found);
        ir_graph_destroy(current);
        if (status != ST_OK) return status;
        current = made;
        if (!n_found) break;
        status = fuse_simplify_exact(current, target, &made);
        ir_graph_destroy(current);
        if (status != ST_OK) return status;
        current = made;
    }
    *out_graph = current;
    return ST_OK;
}

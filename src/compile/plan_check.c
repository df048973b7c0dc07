/* Proof of a plan (plan.h): each program is executed in the abstract; plan_ranks.c lays the
 * programs against each other.
 *
 * The abstract machine keeps, a region, the list of values whose bytes are intact. A node reads:
 * its inputs must be intact. It writes: every value whose bytes overlap the written ones is intact
 * no more. So two values that need the same bytes at the same time show up as a read of a value
 * that was overwritten, whatever the planner thought about lifetimes. It shares no code with the
 * planner: what a fused node may write over its operands is proved from its body (plan_reuse.h),
 * not asked of its nest.
 *
 * At the end of the step the outputs, the constants, and each state, holding its old or its updated
 * content, must be intact. The intact values stand in a tree over their offsets, so that a write
 * finds those that it overwrites without a look at the others: O((nodes + edges) · log values). */
#include <string.h>

#include "base/memory.h"
#include "compile/intact.h"
#include "compile/plan.h"
#include "compile/plan_body.h"
#include "compile/plan_ranks.h"
#include "compile/plan_reuse.h"
#include "ir/body.h"
#include "ir/verify.h"

/* The operands of a node that one value stands for. */
typedef struct read {
    ir_node_t by;          /* the last node that read the value; IR_NONE: none yet */
    uint32_t first, times; /* its first operand of the value, and how many are it */
} read_t;

static st_status_t check_program(const plan_t *plan, const plan_program_t *program);

typedef struct machine {
    const plan_t *plan;
    const plan_program_t *program;
    const ir_graph_t *graph;
    bool shares_state;
    bool *intact;         /* [values] */
    bool *copied;         /* [values]: a state whose new content has been copied in */
    intact_t places;      /* where the intact ones lie */
    ir_value_t *update;   /* [values]: of a state: its new value, else IR_NONE */
    read_t *reads;        /* [values] */
    ir_node_t *waited_by; /* [nodes]: of a start: its wait */
    uint32_t n_stages;    /* starts in flight that have a workspace … */
    ir_node_t *stages;    /* … [nodes] */
    plan_reuse_t *reuse;  /* of the fused node at hand, once it is asked for */
} machine_t;

static const char *const region_names[PLAN_REGION_END] = {"nowhere", "state", "work", "comm",
                                                          "feeds"};

static bool overlap(const plan_place_t *a, const plan_place_t *b) {
    return a->region == b->region && a->region != PLAN_NOWHERE && a->bytes && b->bytes &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool same_place(const plan_place_t *a, const plan_place_t *b) {
    return a->region == b->region && a->offset == b->offset && a->bytes == b->bytes;
}

static const plan_place_t *place_of(const machine_t *m, ir_value_t v) {
    return &m->program->places[v];
}

static bool is_op(const machine_t *m, ir_node_t n, ir_op_t op) {
    return ir_node(m->graph, n)->op == op;
}

static bool is_source(const machine_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    return (ir_op_def(node->op)->flags & IR_STATE) || node->op == IR_OP_INPUT ||
           ir_op_is_lasting(node->op);
}

/* ---- places and steps by themselves ---- */

static st_status_t check_place(const machine_t *m, const plan_place_t *place, const char *what) {
    if (place->region == PLAN_NOWHERE)
        return place->bytes ? FAIL(ST_INVALID, "%s of %llu bytes has no place", what,
                                   (unsigned long long)place->bytes)
                            : ST_OK;
    uint64_t size = m->program->region_bytes[place->region], end;
    if (place->offset % PLAN_ALIGNMENT)
        return FAIL(ST_INVALID, "%s at offset %llu is not aligned to %d bytes", what,
                    (unsigned long long)place->offset, PLAN_ALIGNMENT);
    if (__builtin_add_overflow(place->offset, place->bytes, &end) || end > size)
        return FAIL(ST_INVALID, "%s at offset %llu with %llu bytes leaves region %s of %llu bytes",
                    what, (unsigned long long)place->offset, (unsigned long long)place->bytes,
                    region_names[place->region], (unsigned long long)size);
    return ST_OK;
}

static bool outputs_are_empty(const machine_t *m, const ir_node_info_t *node) {
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (ir_type_bytes(ir_value_type(m->graph, node->first_output + k))) return false;
    return node->n_outputs > 0;
}

/* The kind of step that the op calls for. */
static st_status_t check_step(const machine_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    const plan_step_t *step = &m->program->steps[n];
    uint32_t flags = ir_op_def(node->op)->flags;
    bool right = step->kind == PLAN_STEP_KERNEL ||
                 (step->kind == PLAN_STEP_NOTHING && outputs_are_empty(m, node));
    if (is_source(m, n))
        right = step->kind == PLAN_STEP_NOTHING;
    else if (flags & IR_VIEW)
        right = step->kind == PLAN_STEP_NOTHING &&
                same_place(place_of(m, node->first_output), place_of(m, node->inputs[0]));
    else if (node->op == IR_OP_UPDATE)
        right = step->kind == PLAN_STEP_COPY ||
                (step->kind == PLAN_STEP_NOTHING &&
                 same_place(place_of(m, node->inputs[0]), place_of(m, node->inputs[1])));
    else if (flags & IR_COLLECTIVE)
        right = step->kind == (flags & IR_START ? PLAN_STEP_START : PLAN_STEP_WAIT);
    else if (flags & IR_REGION)
        right = step->kind == PLAN_STEP_REGION ||
                (step->kind == PLAN_STEP_NOTHING && outputs_are_empty(m, node));
    if (!right || (step->kind == PLAN_STEP_KERNEL) != (step->kernel != NULL) ||
        (step->kind != PLAN_STEP_REGION && step->n_bodies))
        return FAIL(ST_INVALID, "step %d does not carry out its node", (int)step->kind);
    return check_place(m, &step->workspace, "the workspace");
}

/* Each body's program computes the body, is sound by itself, and has its memory in the
 * workspace. */
static st_status_t check_bodies(const machine_t *m, ir_node_t n) {
    const plan_step_t *step = &m->program->steps[n];
    ir_region_info_t info = ir_region_info(ir_node(m->graph, n));
    const uint64_t turns = plan_turn_bytes(&info);
    if (step->n_bodies != info.n_bodies)
        return FAIL(ST_INVALID, "the step has %u bodies, the node %u", step->n_bodies,
                    info.n_bodies);
    for (uint32_t i = 0; i < step->n_bodies; i++) {
        const plan_program_t *body = &step->bodies[i];
        st_status_t status = plan_body_check(info.bodies[i], info.carried, body->graph);
        if (status == ST_OK) status = check_program(m->plan, body);
        if (status != ST_OK) return st_error_context(status, "body %u", i);
        if (body->region_bytes[PLAN_WORK] + turns > step->workspace.bytes)
            return FAIL(ST_INVALID,
                        "body %u works in %llu bytes, its turns in %llu, the workspace has %llu", i,
                        (unsigned long long)body->region_bytes[PLAN_WORK],
                        (unsigned long long)turns, (unsigned long long)step->workspace.bytes);
    }
    return ST_OK;
}

static st_status_t check_values(const machine_t *m) {
    for (ir_value_t v = 0; v < m->graph->values.n; v++) {
        const plan_place_t *place = place_of(m, v);
        ir_node_t producer = m->graph->values.data[v].producer;
        if (place->bytes != ir_type_bytes(ir_value_type(m->graph, v)))
            return FAIL(ST_INVALID, "%s: value %u has %llu bytes, its type needs %llu",
                        ir_node_label(m->graph, producer), v, (unsigned long long)place->bytes,
                        (unsigned long long)ir_type_bytes(ir_value_type(m->graph, v)));
        st_status_t status = check_place(m, place, "a value");
        if (status != ST_OK)
            return st_error_context(status, "%s", ir_node_label(m->graph, producer));
        bool is_state = ir_op_def(ir_node(m->graph, producer)->op)->flags & IR_STATE;
        if (is_state && place->bytes && place->region != PLAN_STATE)
            return FAIL(ST_INVALID, "%s lies outside the state region",
                        ir_node_label(m->graph, producer));
    }
    return ST_OK;
}

/* A session makes shadows from their weights: a program that has the one has the other, and as much
 * of it. */
static st_status_t check_shadows(const machine_t *m) {
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (!ir_is_shadow(node)) continue;
        const ir_node_t master = ir_master_of(m->graph, node);
        if (master == IR_NONE)
            return FAIL(ST_INVALID, "%s is the shadow of no parameter of the program",
                        ir_node_label(m->graph, n));
        const ir_type_t *own = ir_value_type(m->graph, node->first_output);
        const ir_type_t *weight = ir_value_type(m->graph, ir_node(m->graph, master)->first_output);
        char text[2][IR_TYPE_TEXT_BYTES];
        if (!ir_dims_equal(own, weight))
            return FAIL(ST_INVALID, "%s has %s, its weight %s", ir_node_label(m->graph, n),
                        ir_type_text(own, text[0], sizeof text[0]),
                        ir_type_text(weight, text[1], sizeof text[1]));
    }
    return ST_OK;
}

static void grow(uint64_t *end, const plan_place_t *place) {
    uint64_t stop = place->offset + place->bytes;
    if (end[place->region] < stop) end[place->region] = stop;
}

static st_status_t check_state_has_no_gaps(const machine_t *m) {
    uint64_t used = 0, given = m->program->region_bytes[PLAN_STATE];
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++)
        if (ir_op_def(ir_node(m->graph, n)->op)->flags & IR_STATE)
            used = st_size_add(used,
                               st_size_align(place_of(m, ir_node(m->graph, n)->first_output)->bytes,
                                             PLAN_ALIGNMENT));
    if (given <= used) return ST_OK;
    return FAIL(ST_INVALID, "region state has %llu bytes, parameters and buffers need %llu",
                (unsigned long long)given, (unsigned long long)used);
}

/* Regions are no larger than what lies in them: a plan cannot ask for memory without use. State has
 * no gaps either; only one that lies in another plan's region has, and then a session does not
 * allocate it. */
static st_status_t check_regions(const machine_t *m) {
    uint64_t end[PLAN_REGION_END] = {0};
    for (ir_value_t v = 0; v < m->graph->values.n; v++) grow(end, place_of(m, v));
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) grow(end, &m->program->steps[n].workspace);
    if (!m->shares_state) TRY(check_state_has_no_gaps(m));
    for (int r = PLAN_WORK; r <= PLAN_COMM; r++)
        if (m->program->region_bytes[r] > st_align_up(end[r], PLAN_ALIGNMENT))
            return FAIL(ST_INVALID, "region %s has %llu bytes, what lies in it ends at %llu",
                        region_names[r], (unsigned long long)m->program->region_bytes[r],
                        (unsigned long long)end[r]);
    uint64_t feeds = m->program->region_bytes[PLAN_FEEDS], inputs = plan_feeds_bytes(m->program);
    if (feeds && feeds != inputs)
        return FAIL(ST_INVALID, "region feeds has %llu bytes, the inputs need %llu",
                    (unsigned long long)feeds, (unsigned long long)inputs);
    return ST_OK;
}

/* ---- the machine ---- */

static void set_intact(machine_t *m, ir_value_t v) {
    if (m->intact[v]) return;
    m->intact[v] = true;
    intact_add(&m->places, v);
}

static st_status_t need(const machine_t *m, ir_value_t v, const char *by) {
    if (m->intact[v]) return ST_OK;
    char type[IR_TYPE_TEXT_BYTES];
    return FAIL(ST_INVALID, "value %u (%s) of %s is overwritten before %s", v,
                ir_type_text(ir_value_type(m->graph, v), type, sizeof type),
                ir_node_label(m->graph, m->graph->values.data[v].producer), by);
}

/* Output k may lie on input j's bytes while the node runs: a kernel's where the op allows it, a
 * collective's buffer where the sum is made in place. */
static st_status_t may_share(const machine_t *m, const ir_node_info_t *node, uint32_t k, uint32_t j,
                             bool *out_may) {
    const ir_op_def_t *def = ir_op_def(node->op);
    *out_may = false;
    if (!same_place(place_of(m, node->first_output + k), place_of(m, node->inputs[j])))
        return ST_OK;
    if (def->flags & IR_COLLECTIVE) {
        *out_may = !ir_start_reads_input(def) && j == k;
        return ST_OK;
    }
    if (m->reuse) return plan_reuse_allows(m->reuse, k, j, out_may);
    const ir_type_t *out = ir_value_type(m->graph, node->first_output + k);
    const ir_type_t *in = ir_value_type(m->graph, node->inputs[j]);
    bool op_allows =
        (def->flags & IR_ELEMENTWISE) || (k < sizeof def->reuse && def->reuse[k] == j + 1);
    *out_may = op_allows && ir_type_elements(out) == ir_type_elements(in) &&
               ir_dtype_bytes(out->dtype) == ir_dtype_bytes(in->dtype);
    return ST_OK;
}

/* What node n reads, to be found by value. */
static void note_reads(machine_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        read_t *read = &m->reads[node->inputs[j]];
        if (read->by != n) *read = (read_t){n, j, 0};
        read->times++;
    }
}

/* Output k of node n goes where its input v lies: every operand that v stands for must allow it. */
static st_status_t check_sharing(machine_t *m, ir_node_t n, uint32_t k, ir_value_t v) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    const read_t *read = &m->reads[v];
    if (node->op == IR_OP_FUSED && !m->reuse)
        TRY(plan_reuse_open(ir_node_attr(node, "body")->graph, &m->reuse));
    uint32_t last = read->times > 1 ? node->n_inputs - 1 : read->first;
    for (uint32_t j = read->first; j <= last; j++) {
        bool may = true;
        if (node->inputs[j] == v) TRY(may_share(m, node, k, j, &may));
        if (!may)
            return FAIL(ST_INVALID, "output %u lies on input %u, which the op does not allow", k,
                        j);
    }
    return ST_OK;
}

/* Nobody may write where a collective in flight lays out its parts. */
static st_status_t check_stages(const machine_t *m, const plan_place_t *place) {
    for (uint32_t i = 0; i < m->n_stages; i++)
        if (overlap(&m->program->steps[m->stages[i]].workspace, place))
            return FAIL(ST_INVALID, "it writes into the workspace of %s, which is in flight",
                        ir_node_label(m->graph, m->stages[i]));
    return ST_OK;
}

/* Node n writes the place of its output k (IR_NONE: its workspace): what overlaps is intact no
 * more, and must not be what the node itself needs. A value is looked at once for each time it is
 * written, so that nodes with many operands take no longer than many nodes. */
static st_status_t write_place(machine_t *m, ir_node_t n, uint32_t k, const plan_place_t *place) {
    TRY(check_stages(m, place));
    for (ir_value_t v; (v = intact_take(&m->places, place)) != IR_NONE;) {
        const ir_value_info_t *value = &m->graph->values.data[v];
        m->intact[v] = false;
        if (value->producer == n)
            return FAIL(ST_INVALID, "outputs %u and %u lie on each other", value->index, k);
        if (m->reads[v].by != n) continue;
        if (k == IR_NONE)
            return FAIL(ST_INVALID, "the workspace lies on input %u", m->reads[v].first);
        TRY(check_sharing(m, n, k, v));
    }
    return ST_OK;
}

static st_status_t run_kernel(machine_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    const plan_place_t *workspace = &m->program->steps[n].workspace;
    TRY(write_place(m, n, IR_NONE, workspace));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const plan_place_t *out = place_of(m, node->first_output + k);
        if (overlap(workspace, out)) return FAIL(ST_INVALID, "the workspace lies on output %u", k);
        TRY(write_place(m, n, k, out));
        set_intact(m, node->first_output + k);
    }
    return ST_OK;
}

/* A start copies inputs that lie elsewhere into the in-flight buffers. */
static st_status_t run_start(machine_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    const plan_place_t *workspace = &m->program->steps[n].workspace;
    if (m->waited_by[n] == IR_NONE) return FAIL(ST_INVALID, "no one waits for the collective");
    TRY(write_place(m, n, IR_NONE, workspace));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const plan_place_t *out = place_of(m, node->first_output + k);
        if (out->region != PLAN_COMM && out->bytes)
            return FAIL(ST_INVALID, "the collective's buffer %u lies outside the comm region", k);
        if (overlap(workspace, out)) return FAIL(ST_INVALID, "the workspace lies on output %u", k);
        TRY(write_place(m, n, k, out));
        set_intact(m, node->first_output + k);
    }
    if (workspace->bytes) m->stages[m->n_stages++] = n;
    return ST_OK;
}

static st_status_t run_wait(machine_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    ir_node_t start = m->graph->values.data[node->inputs[0]].producer;
    if (m->waited_by[start] != n || node->n_inputs != ir_node(m->graph, start)->n_outputs)
        return FAIL(ST_INVALID, "it does not wait for all of one collective");
    for (uint32_t i = 0; i < m->n_stages; i++)
        if (m->stages[i] == start) m->stages[i] = m->stages[--m->n_stages];
    const bool reads = ir_start_reads_input(ir_op_def(ir_node(m->graph, start)->op));
    for (uint32_t j = 0; reads && j < ir_node(m->graph, start)->n_inputs; j++)
        TRY(need(m, ir_node(m->graph, start)->inputs[j], "the collective has read it"));
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        if (node->inputs[k] != ir_node(m->graph, start)->first_output + k)
            return FAIL(ST_INVALID, "input %u is not output %u of the start", k, k);
        if (!same_place(place_of(m, node->inputs[k]), place_of(m, node->first_output + k)))
            return FAIL(ST_INVALID, "result %u does not lie where the collective put it", k);
    }
    return ST_OK;
}

static st_status_t run_node(machine_t *m, ir_node_t n) {
    const ir_node_info_t *node = ir_node(m->graph, n);
    const plan_step_t *step = &m->program->steps[n];
    TRY(check_step(m, n));
    for (uint32_t j = node->op == IR_OP_UPDATE; j < node->n_inputs; j++) {
        TRY(need(m, node->inputs[j], "it is read"));
        if (m->copied[node->inputs[j]])
            return FAIL(ST_INVALID, "input %u is a state that was updated before", j);
        ir_node_t maker = m->graph->values.data[node->inputs[j]].producer;
        if (m->program->steps[maker].kind == PLAN_STEP_START && step->kind != PLAN_STEP_WAIT)
            return FAIL(ST_INVALID, "input %u is still in flight", j);
    }
    note_reads(m, n);
    if (step->kind == PLAN_STEP_KERNEL || step->kind == PLAN_STEP_REGION) TRY(run_kernel(m, n));
    if (step->kind == PLAN_STEP_REGION) TRY(check_bodies(m, n));
    plan_reuse_close(m->reuse);
    m->reuse = NULL;
    if (step->kind == PLAN_STEP_START) TRY(run_start(m, n));
    if (step->kind == PLAN_STEP_WAIT) TRY(run_wait(m, n));
    if (step->kind == PLAN_STEP_COPY) {
        TRY(check_stages(m, place_of(m, node->inputs[0])));
        /* the old content goes; the new one is intact at the state's place from here on */
        if (overlap(place_of(m, node->inputs[0]), place_of(m, node->inputs[1])))
            return FAIL(ST_INVALID, "the copy's source lies on the state");
        for (ir_value_t v; (v = intact_take(&m->places, place_of(m, node->inputs[0]))) != IR_NONE;)
            m->intact[v] = false;
        m->update[node->inputs[0]] = node->inputs[0];
        m->copied[node->inputs[0]] = true;
        set_intact(m, node->inputs[0]);
        return ST_OK;
    }
    if (node->op == IR_OP_UPDATE || is_source(m, n)) return ST_OK;
    for (uint32_t k = 0; k < node->n_outputs; k++) set_intact(m, node->first_output + k);
    return ST_OK;
}

/* Sources are in place before the first node runs. None may lie on another. */
static st_status_t load_sources(machine_t *m) {
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (!is_source(m, n)) continue;
        ir_value_t other = intact_find(&m->places, place_of(m, node->first_output));
        if (other != IR_NONE)
            return FAIL(ST_INVALID, "%s lies on value %u, which lives as long",
                        ir_node_label(m->graph, n), other);
        set_intact(m, node->first_output);
    }
    return ST_OK;
}

static st_status_t check_end(const machine_t *m) {
    for (size_t o = 0; o < m->graph->outputs.n; o++)
        TRY(need(m, m->graph->outputs.data[o].value, "it is delivered as an output"));
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (ir_op_is_lasting(node->op)) TRY(need(m, node->first_output, "the next step"));
        if (!(ir_op_def(node->op)->flags & IR_STATE)) continue;
        ir_value_t held = m->update[node->first_output];
        TRY(need(m, held == IR_NONE ? node->first_output : held, "the next step"));
    }
    return ST_OK;
}

static st_status_t link_nodes(machine_t *m) {
    for (ir_value_t v = 0; v < m->graph->values.n; v++) {
        m->update[v] = IR_NONE;
        m->reads[v].by = IR_NONE;
    }
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) m->waited_by[n] = IR_NONE;
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(m->graph, n);
        if (node->op == IR_OP_UPDATE) m->update[node->inputs[0]] = node->inputs[1];
        ir_op_t wanted = ir_op_def(node->op)->waits_for;
        if (wanted == IR_OP_NONE) continue;
        ir_node_t start = m->graph->values.data[node->inputs[0]].producer;
        if (!is_op(m, start, wanted) || m->waited_by[start] != IR_NONE)
            return FAIL(ST_INVALID,
                        "%s waits for no collective, or for one that is already waited for",
                        ir_node_label(m->graph, n));
        m->waited_by[start] = n;
    }
    return ST_OK;
}

static st_status_t machine_run(machine_t *m) {
    TRY(ir_graph_verify(m->graph));
    TRY(check_values(m));
    TRY(check_shadows(m));
    TRY(intact_open(&m->places, m->graph->values.n, m->program->places));
    TRY(link_nodes(m));
    TRY(load_sources(m));
    for (ir_node_t n = 0; n < m->graph->nodes.n; n++) {
        st_status_t status = run_node(m, n);
        if (status != ST_OK) {
            char label[256];
            strncpy(label, ir_node_label(m->graph, n), sizeof label - 1);
            label[sizeof label - 1] = '\0';
            return st_error_context(status, "%s", label);
        }
    }
    TRY(check_regions(m));
    return check_end(m);
}

static st_status_t check_program(const plan_t *plan, const plan_program_t *program) {
    machine_t m = {.plan = plan,
                   .program = program,
                   .graph = program->graph,
                   .shares_state = plan->shares_state};
    size_t n_values = m.graph->values.n, n_nodes = m.graph->nodes.n;
    st_status_t status = ST_OK;
    m.intact = st_calloc(n_values, sizeof *m.intact);
    m.copied = st_calloc(n_values, sizeof *m.copied);
    m.update = st_calloc(n_values, sizeof *m.update);
    m.reads = st_calloc(n_values, sizeof *m.reads);
    m.waited_by = st_calloc(n_nodes, sizeof *m.waited_by);
    m.stages = st_calloc(n_nodes, sizeof *m.stages);
    if (!m.intact || !m.copied || !m.update || !m.reads || !m.waited_by || !m.stages)
        TRY_GOTO(st_no_memory(n_values * sizeof *m.update, "the plan's proof"), done);
    status = machine_run(&m);
done:
    intact_close(&m.places);
    plan_reuse_close(m.reuse);
    st_free(m.intact);
    st_free(m.copied);
    st_free(m.update);
    st_free(m.reads);
    st_free(m.stages);
    st_free(m.waited_by);
    return status;
}

st_status_t plan_check(const plan_t *plan) {
    enum { MAX_RANKS = 1 << 16, MAX_THREADS = 1 << 12 };
    if (plan->n_ranks != ir_mesh_ranks(&plan->mesh) || plan->n_ranks > MAX_RANKS ||
        plan->n_threads < 1 || plan->n_threads > MAX_THREADS || plan->n_programs < 1 ||
        plan->timeout_ms > INT32_MAX)
        return FAIL(ST_INVALID,
                    "%u ranks, %u threads a rank, %u programs and a timeout of %llu ms: outside "
                    "what a plan can have",
                    plan->n_ranks, plan->n_threads, plan->n_programs,
                    (unsigned long long)plan->timeout_ms);
    for (uint32_t rank = 0; rank < plan->n_ranks; rank++)
        if (plan->program_of[rank] >= plan->n_programs)
            return FAIL(ST_INVALID, "rank %u runs program %u, there are %u", rank,
                        plan->program_of[rank], plan->n_programs);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        st_status_t status = check_program(plan, &plan->programs[p]);
        if (status != ST_OK) return st_error_context(status, "program %u", p);
    }
    return plan_check_ranks(plan);
}

/* Control flow (control.h).
 *
 * Turns are counted so: what the test reads, and what that comes from in the turn before, is marked
 * backwards through both graphs until nothing is added. Then the turns are taken with the elements
 * of those values alone, two sets in turns, so that memory does not grow. Time is that of the
 * marked values times the turns. */
#include "import/control.h"

#include "base/memory.h"
#include "ir/body.h"

st_status_t import_check_condition(const ir_type_t *type) {
    char text[IR_TYPE_TEXT_BYTES];
    if (type->dtype == IR_BOOL && ir_type_elements(type) == 1) return ST_OK;
    return FAIL(ST_INVALID, "the condition is %s, one bool is needed",
                ir_type_text(type, text, sizeof text));
}

st_status_t import_check_carried(const char *name, const ir_type_t *before,
                                 const ir_type_t *after) {
    char a[IR_TYPE_TEXT_BYTES], b[IR_TYPE_TEXT_BYTES];
    if (ir_type_equal(before, after)) return ST_OK;
    return FAIL(
        ST_UNSUPPORTED,
        "the carried value '%.128s' begins as %s and is %s after a turn: its shape and type "
        "must stay",
        name, ir_type_text(before, a, sizeof a), ir_type_text(after, b, sizeof b));
}

ir_value_t import_cond(ir_build_t *b, ir_value_t condition, size_t n, const ir_value_t *operands,
                       ir_graph_t *const bodies[2]) {
    ir_value_t all[IMPORT_MOST_VALUES + 1];
    if (b->status == ST_OK && n > IMPORT_MOST_VALUES)
        b->status =
            FAIL(ST_UNSUPPORTED, "%zu values are read, the limit is %d", n, IMPORT_MOST_VALUES);
    if (b->status != ST_OK) return IR_NONE;
    all[0] = ir_b_reshape(b, condition, 0, NULL);
    for (size_t i = 0; i < n; i++) all[1 + i] = operands[i];
    return ir_b_node(
        b, IR_OP_COND, (uint32_t)n + 1, all, 2,
        (ir_arg_t[]){IR_ARG_GRAPH("then", bodies[0]), IR_ARG_GRAPH("else", bodies[1])});
}

ir_value_t import_repeat(ir_build_t *b, const import_loop_t *loop) {
    if (b->status != ST_OK) return IR_NONE;
    return ir_b_node(b, IR_OP_REPEAT, (uint32_t)loop->n, loop->operands, 5,
                     (ir_arg_t[]){IR_ARG_GRAPH("body", loop->body), IR_ARG_INT("trip", loop->trip),
                                  IR_ARG_INT("carried", (int64_t)loop->n_carried),
                                  IR_ARG_INT("scanned", (int64_t)loop->n_scanned),
                                  IR_ARG_BOOL("reverse", loop->reverse)});
}

/* ---- turns ---- */

typedef struct turns {
    const import_while_t *loop;
    bool *needed;            /* [n] of the operands */
    const void **at, **next; /* [n] elements before and after the turn at hand */
    import_knowns_t test, body;
    st_arena_t arenas[2]; /* of this turn and of the one before */
} turns_t;

/* Marks the inputs that a value comes from; true if one is new. */
static st_status_t mark(turns_t *t, const ir_graph_t *graph, ir_value_t value, bool *out_added) {
    bool *live = st_calloc(graph->nodes.n + 1, sizeof *live);
    if (!live) return st_no_memory(graph->nodes.n, "a loop's condition");
    live[graph->values.data[value].producer] = true;
    for (ir_node_t i = (ir_node_t)graph->nodes.n; i-- > 0;)
        for (uint32_t j = 0; live[i] && j < ir_node(graph, i)->n_inputs; j++)
            live[graph->values.data[ir_node(graph, i)->inputs[j]].producer] = true;
    ir_node_t i = ir_body_next_input(graph, 0);
    for (size_t j = 0; j < t->loop->n; j++, i = ir_body_next_input(graph, i + 1)) {
        if (!live[i] || t->needed[j]) continue;
        t->needed[j] = true;
        *out_added = true;
    }
    st_free(live);
    return ST_OK;
}

static st_status_t mark_all(turns_t *t) {
    bool added = false;
    TRY(mark(t, t->loop->test, t->loop->test->outputs.data[0].value, &added));
    while (added) {
        added = false;
        for (size_t j = 0; j < t->loop->n_carried; j++)
            if (t->needed[j])
                TRY(mark(t, t->loop->body, t->loop->body->outputs.data[j].value, &added));
    }
    return ST_OK;
}

/* Forgets what was computed, and takes the needed inputs' elements. */
static st_status_t seed(const turns_t *t, import_knowns_t *k, const ir_graph_t *graph) {
    ir_node_t i = ir_body_next_input(graph, 0);
    k->values.n = 0;
    for (size_t j = 0; j < t->loop->n; j++, i = ir_body_next_input(graph, i + 1))
        TRY(import_known_set(k, graph, ir_node(graph, i)->first_output,
                             t->needed[j] ? t->at[j] : NULL));
    return ST_OK;
}

static st_status_t computed(const turns_t *t) {
    if (*t->test.left < (int64_t)t->loop->n + 1)
        return FAIL(ST_UNSUPPORTED, "its turns take more than %d numbers to count, the limit",
                    IMPORT_KNOWN_TOTAL);
    return FAIL(
        ST_UNSUPPORTED,
        "whether there is another turn is computed from data: a plan needs a number of turns "
        "that is known");
}

/* One turn, or none: *out_more. */
static st_status_t turn(turns_t *t, bool *out_more) {
    const import_while_t *loop = t->loop;
    const unsigned char *more;
    const void *known;
    TRY(seed(t, &t->test, loop->test));
    TRY(import_known(&t->test, loop->test, loop->test->outputs.data[0].value, &known));
    more = known;
    if (!more) return computed(t);
    *out_more = *more != 0;
    if (!*out_more) return ST_OK;
    TRY(seed(t, &t->body, loop->body));
    for (size_t j = 0; j < loop->n_carried; j++) {
        if (!t->needed[j]) continue;
        TRY(import_known(&t->body, loop->body, loop->body->outputs.data[j].value, &t->next[j]));
        if (!t->next[j]) return computed(t);
    }
    for (size_t j = 0; j < loop->n_carried; j++) t->at[j] = t->next[j];
    return ST_OK;
}

static st_status_t count(turns_t *t, int64_t *out_turns) {
    bool more = true;
    TRY(mark_all(t));
    for (size_t j = 0; j < t->loop->n; j++) t->at[j] = t->loop->operands[j];
    for (*out_turns = 0;; ++*out_turns) {
        st_arena_t *arena = &t->arenas[*out_turns % 2];
        st_arena_clear(arena); /* what the turn before the last made */
        t->test.arena = t->body.arena = arena;
        TRY(turn(t, &more));
        if (!more) return ST_OK;
        if (*out_turns == t->loop->most)
            return FAIL(ST_UNSUPPORTED, "the loop still goes on after %lld turns, the limit",
                        (long long)t->loop->most);
    }
}

st_status_t import_count_turns(const import_while_t *loop, int64_t *left, int64_t *out_turns) {
    turns_t t = {.loop = loop, .test = {.left = left}, .body = {.left = left}};
    st_status_t status = ST_OK;
    t.needed = st_calloc(loop->n + 1, sizeof *t.needed);
    t.at = st_calloc(loop->n + 1, sizeof *t.at);
    t.next = st_calloc(loop->n + 1, sizeof *t.next);
    *out_turns = 0;
    if (!t.needed || !t.at || !t.next)
        status = st_no_memory(loop->n * sizeof *t.at, "a loop's turns");
    if (status == ST_OK) status = count(&t, out_turns);
    st_free(t.needed);
    st_free(t.at);
    st_free(t.next);
    ST_VEC_FREE(&t.test.values);
    ST_VEC_FREE(&t.body.values);
    st_arena_clear(&t.arenas[0]);
    st_arena_clear(&t.arenas[1]);
    return status;
}

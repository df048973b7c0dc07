/* Steps of all ranks on two streams each (simulate.h).
 *
 * Event driven, without a queue of times: what a rank does depends on others only through
 * collectives, and a collective's times follow from its members' arrivals alone. So each lane runs
 * as far as it can; where it stands at a wait whose transfer has no times yet, it is left. A lane
 * arrives at a collective when it has started it and its earlier one has ended; the last arrival
 * gives the transfer its times, frees the members' link streams, and lets those go on that stand at
 * that wait. Each lane waits in at most one meeting at a time, so meetings are lists through the
 * lanes. A send or receive waits for the other side in the line of its channel, and has its times
 * as soon as both are there. Linear in the moves. */
#include "compile/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "compile/predict.h"

static const uint32_t NONE = UINT32_MAX;
static const double UNKNOWN = -1;

/* The collective that a group's members meet at. */
typedef struct meeting {
    uint32_t n_arrived, first; /* lanes that are there */
    double ready_us, us;
} meeting_t;

/* A group of one set. Its meetings are met in order, so one at a time is open: a member can arrive
 * at the next one only when the transfer of this one has ended. */
typedef struct group {
    uint32_t n_members;
    meeting_t open;
} group_t;

/* From one lane to another: starts of one side that the other side has not met yet, a list by their
 * numbers. */
typedef struct channel {
    bool sends; /* those in line are sends */
    uint32_t first, last;
    double free_us;
} channel_t;

/* The ranks of one lane do the same at the same times. */
typedef struct lane {
    uint32_t rank; /* one of them */
    const simulate_program_t *program;
    const uint32_t *starts;  /* [n_starts]: their moves */
    const uint32_t *ordinal; /* [moves]: which start of the program it is */
    const uint32_t *meets;   /* [n_meets]: of the starts, those of collectives */
    uint32_t n_starts, n_meets;
    uint32_t at;       /* the next move */
    uint32_t n_issued; /* collectives that were issued */
    uint32_t n_ended;  /* of these, those whose transfer has times */
    bool arrived;      /* at its meeting, which is that of collective n_ended */
    uint32_t next_met; /* in the meeting's list */
    uint32_t next;     /* in the list of those that can go on */
    bool queued;       /* it is in that */
    channel_t *to;     /* [lanes]; NULL: nothing was sent to any */
    uint32_t *in_line; /* [n_starts]: the one behind it in its channel */
    double now_us, link_free_us;
    double *issued_us, *ready_us; /* [n_starts]; ready: issued, and the link is free */
    simulate_span_t *transfers;
    simulate_rank_t sum;
} lane_t;

typedef struct run {
    const simulate_input_t *input;
    simulation_t *made;
    st_arena_t arena;
    uint32_t n_lanes;
    lane_t *lanes;
    uint32_t *starts_of, *ordinals_of; /* by program: first place in the arrays below */
    uint32_t *starts, *ordinals, *meets;
    uint32_t *n_starts, *n_meets; /* [programs] */
    group_t **groups;             /* [sets][lanes] */
    uint32_t **group_of;          /* [sets][lanes]: the lane's group */
    uint32_t runnable;            /* list of lanes */
} run_t;

#define ARRAY(arena_, out, n)                                                 \
    do {                                                                      \
        (out) = st_arena_array((arena_), (n), sizeof *(out));                 \
        if (!(out)) return st_no_memory((n) * sizeof *(out), "a simulation"); \
    } while (0)

static bool is_start(const simulate_move_t *move) {
    return move->kind != SIMULATE_COMPUTE && move->kind != SIMULATE_WAIT;
}

/* ---- preparing ---- */

static st_status_t check_moves(const simulate_input_t *in, uint32_t p) {
    const simulate_program_t *program = &in->programs[p];
    for (uint32_t i = 0; i < program->n_moves; i++) {
        const simulate_move_t *move = &program->moves[i];
        if (move->kind == SIMULATE_WAIT &&
            (move->start >= i || !is_start(&program->moves[move->start])))
            return FAIL(ST_INVALID, "move %u of program %u waits for move %u, which starts nothing",
                        i, p, move->start);
        if (is_start(move) && move->set >= in->n_sets)
            return FAIL(ST_INVALID, "move %u of program %u is among set %u of %u", i, p, move->set,
                        in->n_sets);
        if (is_start(move) && move->kind != SIMULATE_START &&
            move->peer >= in->sets[move->set].size)
            return FAIL(ST_INVALID, "move %u of program %u is with member %u of %u", i, p,
                        move->peer, in->sets[move->set].size);
        if (!(move->us >= 0) || isinf(move->us))
            return FAIL(ST_INVALID, "move %u of program %u takes %g us", i, p, move->us);
    }
    return ST_OK;
}

static st_status_t number_starts(run_t *run) {
    const simulate_input_t *in = run->input;
    size_t n = 0;
    for (uint32_t p = 0; p < in->n_programs; p++) {
        TRY(check_moves(in, p));
        n += in->programs[p].n_moves;
    }
    ARRAY(&run->arena, run->starts, n);
    ARRAY(&run->arena, run->ordinals, n);
    ARRAY(&run->arena, run->starts_of, in->n_programs);
    ARRAY(&run->arena, run->meets, n);
    ARRAY(&run->arena, run->n_starts, in->n_programs);
    ARRAY(&run->arena, run->n_meets, in->n_programs);
    uint32_t first = 0;
    for (uint32_t p = 0; p < in->n_programs; p++) {
        const simulate_program_t *program = &in->programs[p];
        run->starts_of[p] = first;
        for (uint32_t i = 0; i < program->n_moves; i++) {
            if (!is_start(&program->moves[i])) continue;
            run->ordinals[first + i] = run->n_starts[p];
            if (program->moves[i].kind == SIMULATE_START)
                run->meets[first + run->n_meets[p]++] = run->n_starts[p];
            run->starts[first + run->n_starts[p]++] = i;
        }
        first += program->n_moves;
    }
    return ST_OK;
}

/* ---- lanes: ranks whose course is the same ----
 *
 * Colour refinement: a rank's colour is at first its program, then again and again that with the
 * colours in its group of each set, until no colour falls apart. Ranks of one colour then meet
 * groups of the same colours, and so have the same course: one of them stands for all, and groups
 * of the same colours for each other. Colours are 64-bit hashes. */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
/* Sorts, drops what is there already, returns how many are left. */
static uint32_t distinct(uint64_t *values, uint32_t n) {
    uint32_t kept = 0;
    if (n) qsort(values, n, sizeof *values, by_value);
    for (uint32_t i = 0; i < n; i++)
        if (!i || values[i] != values[kept - 1]) values[kept++] = values[i];
    return kept;
}
static uint32_t index_of(const uint64_t *values, uint32_t n, uint64_t value) {
    const uint64_t *found = bsearch(&value, values, n, sizeof value, by_value);
    ASSERT(found);
    return (uint32_t)(found - values);
}

/* sums[group]: of its members' colours, mixed so that sums tell them apart; in any order. */
static void add_colours(const simulate_input_t *in, const uint32_t *group_of,
                        const uint64_t *colours, uint64_t *sums) {
    memset(sums, 0, in->n_ranks * sizeof *sums);
    for (uint32_t r = 0; r < in->n_ranks; r++)
        sums[group_of[r]] += st_hash64(&colours[r], sizeof *colours, 1);
}

static st_status_t colour_ranks(run_t *run, uint64_t *colours) {
    const simulate_input_t *in = run->input;
    uint64_t *next, *sums, *sorted;
    uint32_t n_before = 0, n = 0;
    ARRAY(&run->arena, next, in->n_ranks);
    ARRAY(&run->arena, sums, in->n_ranks);
    ARRAY(&run->arena, sorted, in->n_ranks);
    for (uint32_t r = 0; r < in->n_ranks; r++) colours[r] = in->program_of[r];
    do {
        memcpy(sorted, colours, in->n_ranks * sizeof *sorted);
        n_before = n;
        n = distinct(sorted, in->n_ranks);
        if (n == n_before) break;
        memcpy(next, colours, in->n_ranks * sizeof *next);
        for (uint32_t s = 0; s < in->n_sets; s++) {
            const uint32_t *group_of = in->sets[s].group_of;
            if (!group_of) continue;
            add_colours(in, group_of, colours, sums);
            for (uint32_t r = 0; r < in->n_ranks; r++)
                next[r] = st_hash64(&sums[group_of[r]], sizeof *sums, next[r]);
        }
        memcpy(colours, next, in->n_ranks * sizeof *next);
    } while (n < in->n_ranks);
    return ST_OK;
}

static st_status_t make_lanes(run_t *run, const uint64_t *colours) {
    const simulate_input_t *in = run->input;
    uint64_t *sorted;
    uint32_t *lane_of;
    ARRAY(&run->arena, sorted, in->n_ranks);
    memcpy(sorted, colours, in->n_ranks * sizeof *sorted);
    uint32_t n = distinct(sorted, in->n_ranks);
    ARRAY(&run->arena, lane_of, n);
    ARRAY(&run->arena, run->lanes, n);
    for (uint32_t i = 0; i < n; i++) lane_of[i] = NONE;
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        uint32_t *lane = &lane_of[index_of(sorted, n, colours[r])];
        if (*lane == NONE) {
            *lane = run->n_lanes++;
            run->lanes[*lane].rank = r;
        }
        run->made->lane_of[r] = *lane;
    }
    return ST_OK;
}

/* A group of each set for every kind that lanes are in. */
static st_status_t make_groups(run_t *run, const uint64_t *colours) {
    const simulate_input_t *in = run->input;
    uint64_t *sums, *sorted;
    ARRAY(&run->arena, sums, in->n_ranks);
    ARRAY(&run->arena, sorted, run->n_lanes);
    ARRAY(&run->arena, run->groups, in->n_sets);
    ARRAY(&run->arena, run->group_of, in->n_sets);
    for (uint32_t s = 0; s < in->n_sets; s++) {
        const uint32_t *group_of = in->sets[s].group_of;
        ARRAY(&run->arena, run->groups[s], run->n_lanes);
        ARRAY(&run->arena, run->group_of[s], run->n_lanes);
        if (group_of) add_colours(in, group_of, colours, sums);
        for (uint32_t l = 0; l < run->n_lanes; l++)
            sorted[l] = group_of ? sums[group_of[run->lanes[l].rank]] : 0;
        uint32_t n = distinct(sorted, run->n_lanes);
        for (uint32_t l = 0; l < run->n_lanes; l++) {
            uint64_t sum = group_of ? sums[group_of[run->lanes[l].rank]] : 0;
            run->group_of[s][l] = index_of(sorted, n, sum);
            run->groups[s][run->group_of[s][l]].n_members++;
        }
    }
    return ST_OK;
}

static st_status_t check_ranks(const simulate_input_t *in) {
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        if (in->program_of[r] >= in->n_programs)
            return FAIL(ST_INVALID, "rank %u has program %u of %u", r, in->program_of[r],
                        in->n_programs);
        for (uint32_t s = 0; s < in->n_sets; s++)
            if (in->sets[s].group_of && in->sets[s].group_of[r] >= in->n_ranks)
                return FAIL(ST_INVALID, "rank %u is in group %u of set %u; there are %u at most", r,
                            in->sets[s].group_of[r], s, in->n_ranks);
    }
    return ST_OK;
}

static st_status_t divide(run_t *run) {
    uint64_t *colours;
    TRY(check_ranks(run->input));
    ARRAY(&run->arena, colours, run->input->n_ranks);
    TRY(colour_ranks(run, colours));
    TRY(make_lanes(run, colours));
    return make_groups(run, colours);
}

static st_status_t prepare_lanes(run_t *run) {
    const simulate_input_t *in = run->input;
    simulation_t *made = run->made;
    made->transfers = st_calloc(run->n_lanes, sizeof *made->transfers);
    if (!made->transfers)
        return st_no_memory(run->n_lanes * sizeof *made->transfers, "a simulation");
    made->n_lanes = run->n_lanes;
    run->runnable = NONE;
    for (uint32_t l = run->n_lanes; l-- > 0;) {
        lane_t *lane = &run->lanes[l];
        uint32_t p = in->program_of[lane->rank];
        lane->program = &in->programs[p];
        lane->starts = run->starts + run->starts_of[p];
        lane->ordinal = run->ordinals + run->starts_of[p];
        lane->n_starts = run->n_starts[p];
        lane->meets = run->meets + run->starts_of[p];
        lane->n_meets = run->n_meets[p];
        lane->queued = true;
        lane->next = run->runnable;
        run->runnable = l;
        ARRAY(&run->arena, lane->issued_us, lane->n_starts);
        ARRAY(&run->arena, lane->ready_us, lane->n_starts);
        ARRAY(&run->arena, lane->in_line, lane->n_starts);
        made->transfers[l] = st_calloc(lane->n_starts, sizeof **made->transfers);
        if (!made->transfers[l])
            return st_no_memory(lane->n_starts * sizeof **made->transfers, "a simulation");
        lane->transfers = made->transfers[l];
        for (uint32_t k = 0; k < lane->n_starts; k++) lane->transfers[k].end_us = UNKNOWN;
    }
    return ST_OK;
}

/* ---- running ---- */

static void queue_lane(run_t *run, uint32_t l) {
    lane_t *lane = &run->lanes[l];
    if (lane->queued) return;
    lane->queued = true;
    lane->next = run->runnable;
    run->runnable = l;
}

/* Of the lane's collective number `meet`. */
static const simulate_move_t *collective_at(const lane_t *lane, uint32_t meet) {
    return &lane->program->moves[lane->starts[lane->meets[meet]]];
}

static group_t *group_at(run_t *run, const lane_t *lane, uint32_t meet) {
    uint32_t set = collective_at(lane, meet)->set;
    return &run->groups[set][run->group_of[set][lane - run->lanes]];
}

/* Gives the transfer its times. Its members come off the list; they may go on. */
static void meet(run_t *run, group_t *group) {
    meeting_t open = group->open;
    const double overlap = run->input->link_overlap;
    double end = open.ready_us + open.us * overlap;
    group->open = (meeting_t){0};
    for (uint32_t l = open.first; l != NONE;) {
        lane_t *lane = &run->lanes[l];
        uint32_t next = lane->next_met;
        lane->transfers[lane->meets[lane->n_ended]] = (simulate_span_t){open.ready_us, end};
        lane->sum.link_us += open.us;
        lane->link_free_us = end;
        lane->n_ended++;
        lane->arrived = false;
        queue_lane(run, l);
        l = next;
    }
}

/* At the collective that is next on the lane's link stream, if it was issued. */
static void arrive(run_t *run, uint32_t l) {
    lane_t *lane = &run->lanes[l];
    uint32_t k = lane->n_ended;
    if (lane->arrived || k == lane->n_issued) return;
    group_t *group = group_at(run, lane, k);
    meeting_t *open = &group->open;
    double ready = fmax(lane->issued_us[lane->meets[k]], lane->link_free_us);
    double us = collective_at(lane, k)->us;
    lane->ready_us[lane->meets[k]] = ready;
    lane->arrived = true;
    lane->next_met = open->n_arrived ? open->first : NONE;
    open->first = l;
    open->ready_us = open->n_arrived ? fmax(open->ready_us, ready) : ready;
    open->us = open->n_arrived ? fmax(open->us, us) : us;
    if (++open->n_arrived == group->n_members) meet(run, group);
}

/* ---- sends and receives ---- */

static uint32_t lane_of_peer(const run_t *run, const lane_t *lane, const simulate_move_t *move) {
    const simulate_set_t *set = &run->input->sets[move->set];
    const uint32_t own = lane->rank / set->stride % set->size;
    return run->made->lane_of[lane->rank - own * set->stride + move->peer * set->stride];
}

static channel_t *channel_between(run_t *run, uint32_t from, uint32_t to) {
    lane_t *lane = &run->lanes[from];
    if (!lane->to) {
        lane->to = st_arena_array(&run->arena, run->n_lanes, sizeof *lane->to);
        for (uint32_t l = 0; lane->to && l < run->n_lanes; l++)
            lane->to[l] = (channel_t){.first = NONE};
    }
    return lane->to ? &lane->to[to] : NULL;
}

/* Both sides are there: the transfer gets its times. */
static void pass(run_t *run, lane_t *a, uint32_t i, lane_t *b, uint32_t j, channel_t *channel) {
    const double us = fmax(a->program->moves[a->starts[i]].us, b->program->moves[b->starts[j]].us);
    const double begin = fmax(fmax(a->issued_us[i], b->issued_us[j]), channel->free_us);
    channel->free_us = begin + us * run->input->link_overlap;
    a->transfers[i] = b->transfers[j] = (simulate_span_t){begin, channel->free_us};
    a->sum.link_us += us;
    b->sum.link_us += us;
}

/* Start `k` of the lane meets the first in line of the other side, or gets in line. */
static st_status_t join_line(run_t *run, lane_t *lane, uint32_t k, const simulate_move_t *move) {
    const bool sends = move->kind == SIMULATE_SEND;
    const uint32_t own = (uint32_t)(lane - run->lanes), other = lane_of_peer(run, lane, move);
    channel_t *channel = channel_between(run, sends ? own : other, sends ? other : own);
    if (!channel) return st_no_memory(run->n_lanes * sizeof *channel, "a simulation");
    lane->ready_us[k] = lane->issued_us[k] = lane->now_us;
    if (channel->first != NONE && channel->sends != sends) {
        const uint32_t met = channel->first;
        channel->first = run->lanes[other].in_line[met];
        pass(run, lane, k, &run->lanes[other], met, channel);
        queue_lane(run, other);
        return ST_OK;
    }
    lane->in_line[k] = NONE;
    if (channel->first == NONE)
        channel->first = k;
    else
        lane->in_line[channel->last] = k;
    channel->last = k;
    channel->sends = sends;
    return ST_OK;
}

/* ---- the course of a lane ---- */

/* At a wait for start `k`, which has its times. */
static void pass_wait(run_t *run, lane_t *lane, uint32_t k) {
    const simulate_span_t *span = &lane->transfers[k];
    double begin = lane->now_us;
    double own = lane->program->moves[lane->starts[k]].us * (1 - run->input->link_overlap);
    lane->now_us = fmax(begin, span->end_us) + own;
    double from = fmax(begin, lane->ready_us[k]);
    if (span->begin_us > from) lane->sum.peers_us += span->begin_us - from;
    lane->sum.exposed_us += lane->now_us - begin;
}

/* As far as it goes. A lane in a meeting's list is not in the runnable one, so it runs on until it
 * stands at a wait only while its next transfer has not been arrived at: arrivals come first. */
static st_status_t advance(run_t *run, lane_t *lane) {
    for (; lane->at < lane->program->n_moves; lane->at++) {
        const simulate_move_t *move = &lane->program->moves[lane->at];
        if (move->kind == SIMULATE_COMPUTE) {
            lane->now_us += move->us;
            lane->sum.compute_us += move->us;
        } else if (move->kind == SIMULATE_START) {
            lane->issued_us[lane->meets[lane->n_issued++]] = lane->now_us;
        } else if (is_start(move)) {
            TRY(join_line(run, lane, lane->ordinal[lane->at], move));
        } else {
            uint32_t k = lane->ordinal[move->start];
            if (lane->transfers[k].end_us == UNKNOWN) return ST_OK;
            pass_wait(run, lane, k);
        }
    }
    return ST_OK;
}

static st_status_t run_lanes(run_t *run) {
    while (run->runnable != NONE) {
        uint32_t l = run->runnable;
        lane_t *lane = &run->lanes[l];
        run->runnable = lane->next;
        lane->queued = false;
        TRY(advance(run, lane));
        arrive(run, l);
    }
    return ST_OK;
}

/* Why a lane has not come to its end. */
static st_status_t stuck(const run_t *run, const lane_t *lane) {
    uint32_t k = lane->n_ended;
    if (k == lane->n_meets)
        return FAIL(ST_INVALID,
                    "rank %u stands at move %u: what it waits for is never sent, or taken",
                    lane->rank, lane->at);
    uint32_t set = collective_at(lane, k)->set;
    const uint32_t *group_of = run->group_of[set];
    for (uint32_t l = 0; l < run->n_lanes; l++) {
        const lane_t *other = &run->lanes[l];
        if (other == lane || group_of[l] != group_of[lane - run->lanes]) continue;
        if (other->arrived && collective_at(other, other->n_ended)->set == set) continue;
        return FAIL(ST_INVALID,
                    "rank %u stands at its collective %u, which rank %u does not start, or only "
                    "after another that never ends",
                    lane->rank, k, other->rank);
    }
    return FAIL(ST_INVALID, "rank %u never ends its collective %u", lane->rank, k);
}

static st_status_t finish(run_t *run) {
    simulation_t *made = run->made;
    for (uint32_t l = 0; l < run->n_lanes; l++) {
        lane_t *lane = &run->lanes[l];
        if (lane->n_ended < lane->n_meets || lane->at < lane->program->n_moves)
            return stuck(run, lane);
        lane->sum.step_us = fmax(lane->now_us, lane->link_free_us);
        /* what no one waited for */
        lane->sum.exposed_us += lane->sum.step_us - lane->now_us;
    }
    for (uint32_t r = 0; r < made->n_ranks; r++) {
        made->ranks[r] = run->lanes[made->lane_of[r]].sum;
        if (made->ranks[r].step_us <= made->step_us) continue;
        made->step_us = made->ranks[r].step_us;
        made->slowest = r;
    }
    return ST_OK;
}

void simulate_destroy(simulation_t *simulation) {
    if (!simulation) return;
    for (uint32_t l = 0; simulation->transfers && l < simulation->n_lanes; l++)
        st_free(simulation->transfers[l]);
    st_free(simulation->transfers);
    st_free(simulation->lane_of);
    st_free(simulation->ranks);
    st_free(simulation);
}

static st_status_t make(run_t *run) {
    const simulate_input_t *in = run->input;
    simulation_t *made = run->made;
    if (!(in->link_overlap >= 0 && in->link_overlap <= 1))
        return FAIL(ST_INVALID, "link_overlap is %g; 0 to 1 are possible", in->link_overlap);
    made->n_ranks = in->n_ranks;
    made->link_overlap = in->link_overlap;
    made->ranks = st_calloc(in->n_ranks, sizeof *made->ranks);
    made->lane_of = st_calloc(in->n_ranks, sizeof *made->lane_of);
    if (!made->ranks || !made->lane_of)
        return st_no_memory(in->n_ranks * sizeof *made->ranks, "a simulation");
    TRY(number_starts(run));
    TRY(divide(run));
    TRY(prepare_lanes(run));
    TRY(run_lanes(run));
    return finish(run);
}

st_status_t simulate_moves(const simulate_input_t *input, simulation_t **out) {
    run_t run = {.input = input};
    *out = NULL;
    run.made = st_calloc(1, sizeof *run.made);
    if (!run.made) return st_no_memory(sizeof *run.made, "a simulation");
    st_status_t status = make(&run);
    st_arena_clear(&run.arena);
    if (status == ST_OK)
        *out = run.made;
    else
        simulate_destroy(run.made);
    return status;
}

/* ---- plans ---- */

/* A program as moves. What lies between two collectives is one move. */
static st_status_t tell_program(const plan_t *plan, const target_t *target, uint32_t p,
                                st_arena_t *arena, simulate_program_t *out) {
    const plan_program_t *program = &plan->programs[p];
    size_t n = program->graph->nodes.n;
    simulate_move_t *moves;
    uint32_t *move_of;
    ir_cost_t *costs;
    ARRAY(arena, moves, 2 * n);
    ARRAY(arena, move_of, n);
    ARRAY(arena, costs, n);
    TRY(predict_steps(plan, target, p, costs));
    uint32_t at = 0;
    for (ir_node_t i = 0; i < n; i++) {
        plan_step_kind_t kind = program->steps[i].kind;
        if (kind == PLAN_STEP_NOTHING) continue;
        if (kind == PLAN_STEP_START) {
            const ir_node_info_t *node = ir_node(program->graph, i);
            const bool sends = node->op == IR_OP_SEND_START;
            const bool pair = sends || node->op == IR_OP_RECEIVE_START;
            move_of[i] = at;
            moves[at++] =
                (simulate_move_t){.kind = sends  ? SIMULATE_SEND
                                          : pair ? SIMULATE_RECEIVE
                                                 : SIMULATE_START,
                                  .us = costs[i].us,
                                  .set = ir_mesh_find(&plan->mesh, ir_node_attr(node, "mesh")->s),
                                  .peer = pair ? (uint32_t)ir_attr_int(node, "peer") : 0};
        } else if (kind == PLAN_STEP_WAIT) {
            ir_value_t taken = ir_node(program->graph, i)->inputs[0];
            uint32_t start = move_of[program->graph->values.data[taken].producer];
            moves[at++] = (simulate_move_t){.kind = SIMULATE_WAIT, .start = start};
        } else {
            if (!at || moves[at - 1].kind != SIMULATE_COMPUTE)
                moves[at++] = (simulate_move_t){.kind = SIMULATE_COMPUTE};
            moves[at - 1].us += costs[i].us;
        }
    }
    *out = (simulate_program_t){at, moves};
    return ST_OK;
}

/* The groups along each axis. Where all ranks do the same, one group stands for all of an axis. */
static st_status_t tell_sets(const plan_t *plan, st_arena_t *arena, simulate_set_t *sets) {
    const ir_mesh_t *mesh = &plan->mesh;
    for (uint32_t a = 0; a < mesh->n; a++) {
        uint32_t *group_of = NULL;
        if (plan->n_programs > 1 && mesh->axes[a].size < plan->n_ranks) {
            ARRAY(arena, group_of, plan->n_ranks);
            for (uint32_t r = 0; r < plan->n_ranks; r++) group_of[r] = ir_mesh_peer(mesh, r, a, 0);
        }
        sets[a] = (simulate_set_t){group_of, mesh->axes[a].size, ir_mesh_stride(mesh, a)};
    }
    return ST_OK;
}

st_status_t simulate_plan(const plan_t *plan, const target_t *target, simulation_t **out) {
    st_arena_t arena = {0};
    simulate_set_t sets[IR_MAX_AXES] = {{0}};
    simulate_program_t *programs = st_arena_array(&arena, plan->n_programs, sizeof *programs);
    *out = NULL;
    st_status_t status =
        programs ? ST_OK : st_no_memory(plan->n_programs * sizeof *programs, "a simulation");
    if (status == ST_OK) status = tell_sets(plan, &arena, sets);
    for (uint32_t p = 0; status == ST_OK && p < plan->n_programs; p++)
        status = tell_program(plan, target, p, &arena, &programs[p]);
    if (status == ST_OK) {
        simulate_input_t input = {.n_ranks = plan->n_ranks,
                                  .n_programs = plan->n_programs,
                                  .n_sets = plan->mesh.n,
                                  .programs = programs,
                                  .program_of = plan->program_of,
                                  .sets = sets,
                                  .link_overlap = target->machine.link_overlap};
        status = simulate_moves(&input, out);
    }
    st_arena_clear(&arena);
    return status;
}

st_status_t simulate_events(const simulation_t *simulation, const plan_t *plan, uint32_t rank,
                            const ir_cost_t *costs, size_t *out_n, simulate_event_t **out_events) {
    const plan_program_t *program = &plan->programs[plan->program_of[rank]];
    const ir_graph_t *graph = program->graph;
    const simulate_span_t *next = simulation->transfers[simulation->lane_of[rank]];
    double now = 0;
    *out_n = 0;
    *out_events = st_calloc(graph->nodes.n, sizeof **out_events);
    const simulate_span_t **span_of = st_calloc(graph->nodes.n, sizeof(simulate_span_t *));
    if (!*out_events || !span_of) {
        st_free(*out_events);
        st_free(span_of);
        *out_events = NULL;
        return st_no_memory(graph->nodes.n * sizeof **out_events, "events");
    }
    for (ir_node_t i = 0; i < graph->nodes.n; i++) {
        simulate_event_t *event = &(*out_events)[*out_n];
        plan_step_kind_t kind = program->steps[i].kind;
        if (kind == PLAN_STEP_NOTHING) continue;
        *event = (simulate_event_t){i, SIMULATE_STREAM_COMPUTE, now, now + costs[i].us};
        if (kind == PLAN_STEP_START) {
            span_of[i] = next++;
            *event = (simulate_event_t){i, SIMULATE_STREAM_LINK, span_of[i]->begin_us,
                                        span_of[i]->end_us};
        } else if (kind == PLAN_STEP_WAIT) {
            ir_node_t start = graph->values.data[ir_node(graph, i)->inputs[0]].producer;
            now = fmax(now, span_of[start]->end_us) +
                  costs[start].us * (1 - simulation->link_overlap);
            event->end_us = now;
        } else {
            now = event->end_us;
        }
        *out_n += kind != PLAN_STEP_WAIT || event->end_us > event->begin_us;
    }
    st_free(span_of);
    return ST_OK;
}

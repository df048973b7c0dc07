/* The engine's thread: takes what ranks start, lets the transport move it, sums, and says when it
 * is done. It alone touches buffers of collectives in flight, and after a failure nobody does. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "comm/process/internal.h"
#include "comm/process/wire.h"

/* ---- one message ---- */

static st_status_t take_slot(process_t *process, process_move_t *move) {
    if (process->free_slots.n) {
        move->slot = process->free_slots.data[--process->free_slots.n];
        process->slots.data[move->slot] = move;
        return ST_OK;
    }
    TRY(ST_VEC_RESERVE(&process->free_slots, process->slots.n + 1)); /* for its return */
    move->slot = (uint32_t)process->slots.n;
    if (ST_VEC_PUSH(&process->slots, move) != ST_OK)
        return st_no_memory(sizeof move, "a collective's messages");
    return ST_OK;
}

static void return_slot(process_t *process, const process_move_t *move) {
    process->slots.data[move->slot] = NULL;
    process->free_slots.data[process->free_slots.n++] = move->slot;
}

static st_status_t post_receive(process_move_t *move) {
    const process_op_t *op = move->op;
    process_t *process = op->process;
    TRY(take_slot(process, move));
    move->flying = true;
    TRY(process->transport->ops->receive(process->transport, move->peer, move->slot, move->data,
                                         move->bytes));
    process_note_t note = {.group = op->group,
                           .check = op->check,
                           .bytes = move->bytes,
                           .sequence = op->sequence,
                           .slot = move->slot,
                           .pair = op->pair,
                           .phase = move->phase};
    return process->transport->ops->note(process->transport, move->peer, &note);
}

static st_status_t try_send(process_move_t *move) {
    process_t *process = move->op->process;
    if (!move->ready || !move->granted || move->flying || move->done) return ST_OK;
    TRY(take_slot(process, move));
    move->flying = true;
    return process->transport->ops->send(process->transport, move->peer, move->to, move->slot,
                                         move->data, move->bytes);
}

/* ---- notes ---- */

static st_status_t disagree(const process_op_t *op, const process_move_t *move,
                            const process_note_t *note) {
    int own = op->process->rank;
    if (note->check != op->check)
        return FAIL(ST_RANKS_DISAGREE,
                    "collective %u (%s) of rank %d is not that of rank %d: kind, element type or "
                    "sizes differ",
                    op->ticket, comm_kind_text(op->request.kind), own, move->peer);
    return FAIL(ST_RANKS_DISAGREE,
                "collective %u (%s): rank %d sends %zu bytes to rank %d, which expects %llu",
                op->ticket, comm_kind_text(op->request.kind), own, move->bytes, move->peer,
                (unsigned long long)note->bytes);
}

/* The op's message to the peer that the note is about; NULL if it is about another op. */
static process_move_t *find_move(process_op_t *op, int peer, const process_note_t *note) {
    if (op->group != note->group || op->sequence != note->sequence || op->pair != (note->pair != 0))
        return NULL;
    process_move_t *any = NULL;
    for (uint32_t m = 0; m < op->n_moves; m++) {
        process_move_t *move = &op->moves[m];
        if (!move->send || move->peer != peer) continue;
        if (move->phase == note->phase) return move;
        any = move;
    }
    return any;
}

static st_status_t grant(process_op_t *op, process_move_t *move, const process_note_t *note) {
    if (note->check != op->check || note->phase != move->phase || note->bytes != move->bytes)
        return disagree(op, move, note);
    move->granted = true;
    move->to = note->slot;
    op->seen[move->member] = true;
    return try_send(move);
}

/* The op of a collective that a peer takes part in otherwise than this rank does. */
static st_status_t check_kind(process_op_t *op, int peer, const process_note_t *note) {
    if (op->group != note->group || op->sequence != note->sequence || op->pair || note->pair ||
        op->check == note->check)
        return ST_OK;
    process_move_t move = {.peer = peer};
    return disagree(op, &move, note);
}

static st_status_t on_note(void *context, int peer, const process_note_t *note) {
    process_t *process = context;
    for (size_t i = 0; i < process->running.n; i++) {
        process_op_t *op = process->running.data[i];
        process_move_t *move = find_move(op, peer, note);
        if (move) return grant(op, move, note);
        TRY(check_kind(op, peer, note));
    }
    process_early_t early = {peer, *note};
    if (ST_VEC_PUSH(&process->early, early) != ST_OK)
        return st_no_memory(sizeof early, "the other ranks' notes");
    return ST_OK;
}

/* Notes that came before the op did. */
static st_status_t take_early(process_op_t *op) {
    process_t *process = op->process;
    size_t kept = 0;
    for (size_t i = 0; i < process->early.n; i++) {
        process_early_t early = process->early.data[i];
        process_move_t *move = find_move(op, early.peer, &early.note);
        if (move) {
            TRY(grant(op, move, &early.note));
        } else {
            TRY(check_kind(op, early.peer, &early.note));
            process->early.data[kept++] = early;
        }
    }
    process->early.n = kept;
    return ST_OK;
}

/* ---- an op ---- */

static void finish(process_op_t *op) {
    process_t *process = op->process;
    size_t i = 0;
    while (process->running.data[i] != op) i++;
    process->running.n--;
    memmove(process->running.data + i, process->running.data + i + 1,
            (process->running.n - i) * sizeof *process->running.data);
    moves_release(op);
    pthread_mutex_lock(&process->mutex);
    op->done = true;
    pthread_cond_broadcast(&process->changed);
    pthread_mutex_unlock(&process->mutex);
}

static st_status_t advance(process_op_t *op) {
    if (!op->summed && op->n_to_sum == 0) {
        moves_sum(op);
        for (uint32_t m = 0; m < op->n_moves; m++)
            if (op->moves[m].send) TRY(try_send(&op->moves[m]));
    }
    if (op->n_left == 0) finish(op);
    return ST_OK;
}

static st_status_t on_received(void *context, uint32_t slot) {
    process_t *process = context;
    process_move_t *move = process->slots.data[slot];
    process_op_t *op = move->op;
    return_slot(process, move);
    op->seen[move->member] = true;
    move->flying = false;
    move->done = true;
    moves_unpack(move);
    op->n_left--;
    if (move->phase == 0 && op->n_to_sum) op->n_to_sum--;
    return advance(op);
}

static st_status_t on_sent(void *context, uint32_t slot) {
    process_t *process = context;
    process_move_t *sent = process->slots.data[slot];
    process_op_t *op = sent->op;
    return_slot(process, sent);
    sent->flying = false;
    sent->done = true;
    op->n_left--;
    /* the sum may come where the part lay that is sent now */
    for (uint32_t m = 0; sent->phase == 0 && m < op->n_moves; m++) {
        process_move_t *move = &op->moves[m];
        if (move->send || move->phase == 0 || move->member != sent->member) continue;
        move->ready = true;
        TRY(post_receive(move));
    }
    return advance(op);
}

static void on_lost(void *context, int peer) {
    process_t *process = context;
    if (!process->lost_ms[peer]) process->lost_ms[peer] = wire_now_ms();
}

static st_status_t begin(process_op_t *op) {
    process_t *process = op->process;
    TRY(moves_plan(op));
    if (ST_VEC_PUSH(&process->running, op) != ST_OK) return st_no_memory(sizeof op, "a collective");
    for (uint32_t m = 0; m < op->n_moves; m++)
        if (!op->moves[m].send && op->moves[m].ready) TRY(post_receive(&op->moves[m]));
    TRY(take_early(op));
    return advance(op);
}

/* ---- what goes wrong ---- */

void process_fail(process_t *process, st_status_t status, const char *reason) {
    pthread_mutex_lock(&process->mutex);
    if (process->failed == ST_OK) {
        process->failed = status;
        snprintf(process->reason, sizeof process->reason, "%s", reason);
        process->quiet = !process->has_thread;
        pthread_cond_broadcast(&process->changed);
    }
    pthread_mutex_unlock(&process->mutex);
    process->transport->ops->wake(process->transport);
}

/* Says whom an op waits for that has waited too long. */
static void tell_late(process_op_t *op, int64_t late_ms) {
    process_t *process = op->process;
    char text[PROCESS_REASON_BYTES];
    int about = -1;
    int used =
        snprintf(text, sizeof text, "collective %u (%s): rank %d waited %lld ms for rank",
                 op->ticket, comm_kind_text(op->request.kind), process->rank, (long long)late_ms);
    for (int member = 0; member < op->comm->base.size; member++) {
        bool waits = false;
        for (uint32_t m = 0; m < op->n_moves; m++)
            waits |= op->moves[m].member == member && !op->moves[m].done;
        if (!waits || op->seen[member] || used >= (int)sizeof text - 20) continue;
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %d", about < 0 ? "" : ",",
                         op->comm->ranks[member]);
        if (about < 0) about = op->comm->ranks[member];
    }
    if (about < 0)
        snprintf(text, sizeof text,
                 "collective %u (%s): rank %d waited %lld ms for ranks that began and stopped",
                 op->ticket, comm_kind_text(op->request.kind), process->rank, (long long)late_ms);
    op->told = true;
    control_report(process->control, ST_PEER_LOST, about, text);
}

/* Where a connection closed, the reason comes by the other way within moments; if it does not, it
 * is told here. */
static void tell_lost(process_op_t *op) {
    enum { GRACE_MS = 300 };
    process_t *process = op->process;
    int64_t now = wire_now_ms();
    for (uint32_t m = 0; m < op->n_moves; m++) {
        int peer = op->moves[m].peer;
        if (op->moves[m].done || !process->lost_ms[peer] || now - process->lost_ms[peer] < GRACE_MS)
            continue;
        char text[PROCESS_REASON_BYTES];
        snprintf(text, sizeof text,
                 "collective %u (%s): rank %d's connection to rank %d has closed", op->ticket,
                 comm_kind_text(op->request.kind), process->rank, peer);
        op->told = true;
        control_report(process->control, ST_PEER_LOST, peer, text);
        return;
    }
}

static void look_after(process_t *process) {
    for (size_t i = 0; i < process->running.n; i++) {
        process_op_t *op = process->running.data[i];
        if (op->told) continue;
        pthread_mutex_lock(&process->mutex);
        int64_t late_ms = op->late_ms;
        pthread_mutex_unlock(&process->mutex);
        if (late_ms)
            tell_late(op, late_ms);
        else
            tell_lost(op);
    }
}

/* ---- the thread ---- */

static st_status_t take_started(process_t *process, bool *out_go_on) {
    for (;;) {
        pthread_mutex_lock(&process->mutex);
        process_op_t *op = process->first;
        if (op) process->first = op->next;
        if (op && !process->first) process->last = NULL;
        *out_go_on = !process->stop && process->failed == ST_OK;
        pthread_mutex_unlock(&process->mutex);
        if (!op || !*out_go_on) return ST_OK;
        TRY(begin(op));
    }
}

void *progress_main(void *argument) {
    process_t *process = argument;
    const transport_events_t events = {process, on_note, on_received, on_sent, on_lost};
    for (;;) {
        bool go_on;
        st_status_t status = take_started(process, &go_on);
        if (!go_on) break;
        if (status == ST_OK)
            status = process->transport->ops->progress(process->transport, process->running.n > 0,
                                                       &events);
        if (status != ST_OK) {
            control_report(process->control, status, -1, st_last_error());
            process_fail(process, status, st_last_error());
            break;
        }
        look_after(process);
    }
    pthread_mutex_lock(&process->mutex);
    process->quiet = true;
    pthread_cond_broadcast(&process->changed);
    pthread_mutex_unlock(&process->mutex);
    return NULL;
}

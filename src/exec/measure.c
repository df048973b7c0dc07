/* When each kernel of a step ran (session.h).
 *
 * Where calls return when they are done, the host's clock is read before and after each. Where
 * kernels run apart from the host, that would time launches; there the stream gets a mark before
 * each step and one at the end, and the recorded graph has them too, so that what is measured is
 * the step as it is replayed:
 *
 *   stream   mark 0 | kernel | mark 1 | kernel | mark 2
 *
 * The marks' clock is laid on the host's at the end of the program, which the host waits for. */
#include "base/memory.h"
#include "exec/internal.h"

static bool has_marks(const exec_rank_t *rank) {
    return rank->device->mark != NULL;
}

static st_status_t prepare(exec_rank_t *rank) {
    exec_measure_t *m = st_calloc(1, sizeof *m);
    if (!m) return st_no_memory(sizeof *m, "measuring");
    m->spans = st_calloc(rank->n_steps, sizeof *m->spans);
    m->marks = st_calloc((size_t)rank->n_steps + 1, sizeof *m->marks);
    if (!m->spans || !m->marks) {
        st_free(m->spans);
        st_free(m->marks);
        st_free(m);
        return st_no_memory(rank->n_steps * sizeof *m->spans, "measuring");
    }
    for (uint32_t i = 0; i < rank->n_steps; i++) m->spans[i].node = rank->steps[i].node;
    rank->measure_kept = m;
    return ST_OK;
}

st_status_t exec_measure(exec_session_t *session, bool on) {
    TRY(exec_session_idle(session));
    exec_rank_t *ranks = session->ranks + session->first;
    for (uint32_t i = 0; on && i < session->n_local; i++)
        if (!ranks[i].measure_kept) TRY(prepare(&ranks[i]));
    for (uint32_t i = 0; i < session->n_local; i++) {
        exec_rank_t *rank = &ranks[i];
        rank->measure = on ? rank->measure_kept : NULL;
        if (on) rank->measure->end_us = 0; /* nothing yet */
    }
    return ST_OK;
}

void exec_measure_release(exec_rank_t *rank) {
    exec_measure_t *m = rank->measure_kept;
    if (!m) return;
    if (m->graph) rank->device->graph_destroy(m->graph);
    st_free(m->spans);
    st_free(m->marks);
    st_free(m);
    rank->measure = rank->measure_kept = NULL;
}

st_status_t exec_measure_begin(exec_rank_t *rank) {
    if (has_marks(rank)) TRY(rank->device->mark_reserve(rank->stream, rank->n_steps + 1));
    TRY(rank->device->synchronize(rank->stream));
    rank->measure->replayed = false;
    rank->measure->begin_us = exec_now_us();
    return ST_OK;
}

st_status_t exec_measure_run(exec_rank_t *rank, uint32_t i) {
    exec_span_t *span = &rank->measure->spans[i];
    if (has_marks(rank)) {
        TRY(rank->device->mark(rank->stream, i));
        return exec_run_kind(rank, &rank->steps[i]);
    }
    span->begin_us = exec_now_us();
    TRY(exec_run_kind(rank, &rank->steps[i]));
    TRY(rank->device->synchronize(rank->stream));
    span->end_us = exec_now_us();
    return ST_OK;
}

st_status_t exec_measure_end(exec_rank_t *rank) {
    return has_marks(rank) ? rank->device->mark(rank->stream, rank->n_steps) : ST_OK;
}

st_status_t exec_measure_read(exec_rank_t *rank) {
    exec_measure_t *m = rank->measure;
    TRY(rank->device->synchronize(rank->stream));
    m->end_us = exec_now_us();
    if (!has_marks(rank) || !rank->n_steps) return ST_OK;
    TRY(rank->device->mark_read(rank->stream, rank->n_steps + 1, m->marks));
    double zero = m->end_us - m->marks[rank->n_steps];
    for (uint32_t i = 0; i < rank->n_steps; i++) {
        m->spans[i].begin_us = zero + m->marks[i];
        m->spans[i].end_us = zero + m->marks[i + 1];
    }
    if (m->begin_us > zero) m->begin_us = zero; /* two clocks: they may differ by a little */
    return ST_OK;
}

exec_measured_t exec_last_measured(const exec_session_t *session, uint32_t r) {
    const exec_rank_t *rank = &session->ranks[r];
    const exec_measure_t *m = rank->measure;
    if (!m || m->end_us <= 0 || !rank->n_steps) return (exec_measured_t){0};
    return (exec_measured_t){.n = rank->n_steps,
                             .spans = m->spans,
                             .begin_us = rank->step_begin_us,
                             .program_begin_us = m->begin_us,
                             .program_end_us = m->end_us,
                             .end_us = rank->step_begin_us + rank->step_us,
                             .by_device = has_marks(rank),
                             .replayed = m->replayed};
}

/* What ranks in different processes do together beside their steps: complete outputs and states
 * that each has a part of, and learn how rank 0 fared. That they have one plan is made sure in
 * agree.c.
 *
 * Calls come between steps, so that the communicator `beside` is used by the caller's thread
 * alone. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "exec/internal.h"

enum { FOLLOW_MS = 3600 * 1000 };

/* ---- tensors in parts ---- */

static st_status_t copy_in(void *whole, void *local, size_t offset, size_t bytes) {
    memcpy(local, (char *)whole + offset, bytes);
    return ST_OK;
}
static st_status_t copy_out(void *whole, void *local, size_t offset, size_t bytes) {
    memcpy((char *)whole + offset, local, bytes);
    return ST_OK;
}

/* Bytes that each rank gives: its part, if it is the one that delivers it. False where all ranks
 * have everything. */
static bool size_parts(const exec_session_t *session, const plan_port_t *port, int64_t *sizes,
                       size_t *out_total) {
    bool in_parts = false;
    *out_total = 0;
    for (uint32_t r = 0; r < session->plan->n_ranks; r++) {
        exec_part_t part = exec_part_make(session->plan, port, r, NULL);
        in_parts |= ir_box_bytes(&part.type, &part.box) != ir_type_bytes(&port->type);
        sizes[r] = part.delivers ? (int64_t)ir_box_bytes(&part.type, &part.box) : 0;
        *out_total += (size_t)sizes[r];
    }
    return in_parts;
}

static st_status_t exchange(exec_session_t *session, const plan_port_t *port, const int64_t *sizes,
                            char *in, char *out, void *whole) {
    exec_part_t own = exec_part_make(session->plan, port, session->first, in);
    comm_segment_t cut = {.in = in, .out = out, .outer = 1, .parts = sizes};
    if (own.delivers) TRY(exec_part_each(&own, copy_in, whole));
    TRY(comm_all_gather_start(session->beside, 0, IR_U8, 1, &cut));
    TRY(comm_wait(session->beside, 0));
    for (uint32_t r = 0; r < session->plan->n_ranks; out += sizes[r++]) {
        exec_part_t part = exec_part_make(session->plan, port, r, out);
        if (part.delivers) TRY(exec_part_each(&part, copy_out, whole));
    }
    return ST_OK;
}

st_status_t exec_complete(exec_session_t *session, const plan_port_t *port, void *whole) {
    size_t total, n = session->plan->n_ranks;
    int64_t *sizes = st_calloc(n, sizeof *sizes);
    if (!sizes) return st_no_memory(n * sizeof *sizes, port->name);
    if (!size_parts(session, port, sizes, &total)) {
        st_free(sizes);
        return ST_OK;
    }
    char *in = st_malloc((size_t)sizes[session->first]), *out = st_malloc(total);
    st_status_t status = in && out ? exchange(session, port, sizes, in, out, whole)
                                   : st_no_memory(total, port->name);
    st_free(sizes);
    st_free(in);
    st_free(out);
    return status;
}

st_status_t exec_complete_outputs(exec_session_t *session) {
    const plan_t *plan = session->plan;
    for (uint32_t o = 0; o < plan->n_outputs; o++)
        if (session->fetches[o])
            TRY(exec_complete(session, &plan->outputs[o], session->fetches[o]));
    return ST_OK;
}

/* ---- words between ranks ---- */

uint32_t exec_session_processes(const exec_session_t *session) {
    return session->beside ? (uint32_t)comm_size(session->beside) : 1;
}

st_status_t exec_session_tell(exec_session_t *session, void *data, size_t bytes) {
    const int64_t n = (int64_t)bytes;
    if (!session->beside) return ST_OK;
    TRY(comm_broadcast_start(session->beside, 0, IR_U8, 0, 1, &data, &n));
    return comm_wait_for(session->beside, 0, FOLLOW_MS);
}

st_status_t exec_session_gather(exec_session_t *session, const void *own, size_t bytes, void *all) {
    const size_t n = exec_session_processes(session);
    if (!session->beside) {
        memcpy(all, own, bytes);
        return ST_OK;
    }
    int64_t *parts = st_calloc(n, sizeof *parts);
    if (!parts) return st_no_memory(n * sizeof *parts, "an agreement");
    for (size_t r = 0; r < n; r++) parts[r] = (int64_t)bytes;
    comm_segment_t cut = {.in = own, .out = all, .outer = 1, .parts = parts};
    st_status_t status = comm_all_gather_start(session->beside, 0, IR_U8, 1, &cut);
    if (status == ST_OK) status = comm_wait_for(session->beside, 0, FOLLOW_MS);
    st_free(parts);
    return status;
}

void exec_session_mark(const exec_session_t *session, const char *what) {
    if (session->beside) comm_mark(session->beside, session->generation, what);
}

st_status_t exec_session_place(const exec_session_t *session, const char *what,
                               st_status_t status) {
    return session->beside && status == ST_PEER_LOST
               ? st_error_context(status, "rank %u: step %llu: %s", session->first,
                                  (unsigned long long)session->generation, what)
               : status;
}

typedef struct word {
    int32_t status;
    char message[EXEC_MESSAGE_BYTES];
} word_t;

static word_t say(st_status_t own) {
    word_t word = {.status = (int32_t)own};
    if (own != ST_OK) snprintf(word.message, sizeof word.message, "%s", st_last_error());
    return word;
}

st_status_t exec_session_agree(exec_session_t *session, st_status_t own) {
    if (!session->beside) return own;
    const uint32_t n = exec_session_processes(session);
    const int32_t mine = (int32_t)own;
    word_t word = say(own);
    int32_t *all = st_calloc(n, sizeof *all);
    if (!all) return st_no_memory(n * sizeof *all, "an agreement");
    st_status_t status = exec_session_gather(session, &mine, sizeof mine, all);
    uint32_t first = 0;
    while (status == ST_OK && first < n && all[first] == ST_OK) first++;
    st_free(all);
    if (status != ST_OK || first == n) return status;
    const int64_t bytes = sizeof word;
    void *data = &word;
    TRY(comm_broadcast_start(session->beside, 0, IR_U8, (int)first, 1, &data, &bytes));
    TRY(comm_wait_for(session->beside, 0, FOLLOW_MS));
    word.message[sizeof word.message - 1] = '\0';
    st_status_t adopted = st_error_adopt((st_status_t)word.status, word.message);
    return first == session->first ? adopted : st_error_context(adopted, "rank %u", first);
}

uint32_t exec_session_first(const exec_session_t *session) {
    return session->first;
}

/* Agreement on facts: all ranks' hashes are compared, and only where they differ the texts. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "comm/comm.h"

typedef struct summary {
    uint64_t hash;
    int64_t bytes;
} summary_t;

static st_status_t gather_summaries(comm_t *comm, const summary_t *own, summary_t *all) {
    int size = comm_size(comm);
    int64_t *parts = st_malloc((size_t)size * sizeof *parts);
    if (!parts) return st_no_memory((size_t)size * sizeof *parts, "an agreement");
    for (int r = 0; r < size; r++) parts[r] = sizeof *own;
    comm_segment_t cut = {.in = own, .out = all, .outer = 1, .parts = parts};
    st_status_t status = comm_all_gather_start(comm, 0, IR_U8, 1, &cut);
    if (status == ST_OK) status = comm_wait(comm, 0);
    st_free(parts);
    return status;
}

/* name NUL value NUL … of all facts. */
static char *write_facts(size_t n, const comm_fact_t *facts, size_t *out_bytes) {
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(facts[i].name) + strlen(facts[i].value) + 2;
    char *text = st_malloc(bytes), *to = text;
    for (size_t i = 0; text && i < n; i++) {
        to = stpcpy(to, facts[i].name) + 1;
        to = stpcpy(to, facts[i].value) + 1;
    }
    *out_bytes = bytes;
    return text;
}

/* The first fact that differs; either may be over before the other. */
static st_status_t compare(const char *a, const char *a_end, const char *b, const char *b_end,
                           int rank) {
    while (a < a_end && b < b_end) {
        const char *a_value = a + strlen(a) + 1, *b_value = b + strlen(b) + 1;
        if (strcmp(a, b) != 0)
            return FAIL(ST_RANKS_DISAGREE, "rank 0 has '%s' where rank %d has '%s'", a, rank, b);
        if (strcmp(a_value, b_value) != 0)
            return FAIL(ST_RANKS_DISAGREE, "ranks 0 and %d disagree on %s: '%s' and '%s'", rank, a,
                        a_value, b_value);
        a = a_value + strlen(a_value) + 1;
        b = b_value + strlen(b_value) + 1;
    }
    if (a < a_end) return FAIL(ST_RANKS_DISAGREE, "rank 0 has '%s', rank %d has not", a, rank);
    if (b < b_end) return FAIL(ST_RANKS_DISAGREE, "rank %d has '%s', rank 0 has not", rank, b);
    return ST_OK;
}

static st_status_t find_difference(comm_t *comm, const char *text, const summary_t *all) {
    int size = comm_size(comm);
    size_t total = 0;
    for (int r = 0; r < size; r++) total += (size_t)all[r].bytes;
    int64_t *parts = st_malloc((size_t)size * sizeof *parts);
    char *texts = st_malloc(total + 1);
    st_status_t status = parts && texts ? ST_OK : st_no_memory(total, "an agreement");
    if (status == ST_OK) {
        for (int r = 0; r < size; r++) parts[r] = all[r].bytes;
        comm_segment_t cut = {.in = text, .out = texts, .outer = 1, .parts = parts};
        status = comm_all_gather_start(comm, 0, IR_U8, 1, &cut);
        if (status == ST_OK) status = comm_wait(comm, 0);
    }
    const char *at = texts;
    for (int r = 0; status == ST_OK && r < size; at += parts[r++])
        status = compare(texts, texts + parts[0], at, at + parts[r], r);
    st_free(parts);
    st_free(texts);
    return status;
}

st_status_t comm_agree(comm_t *comm, size_t n, const comm_fact_t *facts) {
    int size = comm_size(comm);
    size_t bytes = 0;
    char *text = write_facts(n, facts, &bytes);
    summary_t *all = st_calloc((size_t)size, sizeof *all);
    st_status_t status = text && all ? ST_OK : st_no_memory(bytes, "an agreement");
    if (status == ST_OK) {
        summary_t own = {st_hash64(text, bytes, 0), (int64_t)bytes};
        status = gather_summaries(comm, &own, all);
    }
    bool differ = false;
    for (int r = 1; status == ST_OK && r < size; r++)
        differ |= all[r].hash != all[0].hash || all[r].bytes != all[0].bytes;
    if (status == ST_OK && differ) status = find_difference(comm, text, all);
    st_free(text);
    st_free(all);
    return status;
}

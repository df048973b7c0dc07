/* The tuning record: which of the ways that a library offers for a problem was the fastest on a
 * device. Free of CUDA: the module measures (kernels/cuda/tune.h), here is what it keeps.
 *
 * A record holds for one identity, a text that names the device; libraries and problems are in the
 * keys. On disk it is a text of one line an entry, only ever appended to, each line with a checksum
 * that the identity is part of: torn, foreign and unreadable lines count as absent, and of two
 * lines of one key the first holds, so that processes that write at the same time end with the same
 * record. */
#ifndef STATOR_KERNELS_RECORD_H
#define STATOR_KERNELS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { RECORD_CHOICE_BYTES = 64 };
/* What makes the library do it that way again: its own algorithm, or a place in its list. */
typedef struct record_choice {
    uint8_t bytes[RECORD_CHOICE_BYTES];
} record_choice_t;

typedef struct record_entry {
    uint64_t key;
    record_choice_t choice;
    uint32_t n_ways;     /* measured; 0: time was up, and the library's own first choice was kept */
    double us, first_us; /* of the choice, and of the library's first */
} record_entry_t;

typedef struct record record_t;

/* Reads the file at `path`, where there is one. Not for use by several threads at once. */
st_status_t record_open(const char *path, const char *identity, record_t **out) ST_WARN_UNUSED;
void record_close(record_t *record); /* NULL is fine */
/* NULL: there is none of the key. Until the next record_add. */
const record_entry_t *record_find(const record_t *record, uint64_t key);
/* Adds to the record and its file; an entry of the key that is there already stays and holds. */
st_status_t record_add(record_t *record, const record_entry_t *entry) ST_WARN_UNUSED;
size_t record_count(const record_t *record);
/* All entries, a line each as the file has them (st_free). */
st_status_t record_text(const record_t *record, char **out_text) ST_WARN_UNUSED;
/* Entries of another's text hold from now on, in place of what is here; the file stays as it is.
 * RANKS_DISAGREE: a line is of another identity. */
st_status_t record_take(record_t *record, const char *text) ST_WARN_UNUSED;

/* Seconds that may be spent on measuring, from option tune: "on" a default, "off" -1. */
st_status_t record_budget(const char *text, double *out_seconds) ST_WARN_UNUSED;
/* Hash of a set of choices: that of one more. The order in which they come does not matter. */
uint64_t record_hash_add(uint64_t hash, uint64_t key, const record_choice_t *choice);

#endif

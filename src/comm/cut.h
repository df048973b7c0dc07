/* Tensors cut along one axis: a rank's part as evenly spaced pieces. */
#ifndef STATOR_COMM_CUT_H
#define STATOR_COMM_CUT_H

#include <stddef.h>
#include <stdint.h>

/* `outer` pieces of `bytes` each; the first begins at `offset`, each next one `pitch` later. */
typedef struct comm_cut {
    size_t outer, bytes, offset, pitch;
} comm_cut_t;

/* Rank r's part of a tensor cut as `numbers` says: outer, parts[size]. */
comm_cut_t comm_cut_part(const int64_t *numbers, int size, int r, size_t element_bytes);
/* The same part by itself, dense. */
comm_cut_t comm_cut_dense(const int64_t *numbers, int r, size_t element_bytes);
static inline size_t comm_cut_total(const comm_cut_t *cut) {
    return cut->outer * cut->bytes;
}
/* Copies `from`'s pieces in order to `to`'s; both have the same total. */
void comm_cut_copy(const void *in, const comm_cut_t *from, void *out, const comm_cut_t *to);

#endif

#include "comm/cut.h"

#include <string.h>

comm_cut_t comm_cut_part(const int64_t *numbers, int size, int r, size_t element_bytes) {
    comm_cut_t cut = {.outer = (size_t)numbers[0], .bytes = (size_t)numbers[1 + r] * element_bytes};
    for (int q = 0; q < size; q++) {
        cut.pitch += (size_t)numbers[1 + q] * element_bytes;
        if (q < r) cut.offset += (size_t)numbers[1 + q] * element_bytes;
    }
    return cut;
}

comm_cut_t comm_cut_dense(const int64_t *numbers, int r, size_t element_bytes) {
    return (comm_cut_t){1, (size_t)(numbers[0] * numbers[1 + r]) * element_bytes, 0, 0};
}

void comm_cut_copy(const void *in, const comm_cut_t *from, void *out, const comm_cut_t *to) {
    const char *read = (const char *)in + from->offset;
    char *write = (char *)out + to->offset;
    size_t left = comm_cut_total(from), in_piece = 0, out_piece = 0;
    while (left) {
        size_t n = from->bytes - in_piece;
        if (to->bytes - out_piece < n) n = to->bytes - out_piece;
        memcpy(write + out_piece, read + in_piece, n);
        left -= n;
        in_piece += n;
        out_piece += n;
        if (in_piece == from->bytes) read += from->pitch, in_piece = 0;
        if (out_piece == to->bytes) write += to->pitch, out_piece = 0;
    }
}

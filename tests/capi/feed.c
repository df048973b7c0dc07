#include "feed.h"

/* Fixed pseudo-random sequence: splitmix64. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void feed_fill(const stator_tensor_t *port, void *data, int64_t n_labels, uint64_t *state) {
    size_t n = port->bytes / stator_dtype_bytes(port->dtype);
    for (size_t i = 0; i < n; i++) {
        uint64_t word = next_random(state);
        if (port->dtype == STATOR_DTYPE_F64)
            ((double *)data)[i] = (double)(word >> 11) * 0x1p-52 - 1;
        else
            ((int64_t *)data)[i] = (int64_t)(word % (uint64_t)n_labels);
    }
}

/* Checksums, hashes and the counter-based random generator. */
#ifndef STATOR_BASE_HASH_H
#define STATOR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* 64-bit hash of `bytes` bytes (XXH64's algorithm): file checksums, graph and plan keys. */
uint64_t st_hash64(const void *data, size_t bytes, uint64_t seed);
/* The same of bytes that come piece by piece. */
typedef struct st_hasher {
    uint64_t seed, lanes[4], bytes;
    unsigned char rest[32]; /* bytes % 32 of them wait */
} st_hasher_t;
void st_hasher_begin(st_hasher_t *hasher, uint64_t seed);
void st_hasher_add(st_hasher_t *hasher, const void *data, size_t bytes);
uint64_t st_hasher_end(const st_hasher_t *hasher);
/* Hash of a NUL-terminated string, seed 0. */
uint64_t st_hash_string(const char *text);

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four
 * 32-bit words that are a pure function of (key, counter). Everything random in Stator is one of
 * these with key = seed and counter = (stream, step, element / 4). */
void st_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]);
/* Uniform in [0, 1) with 24 bits from a random word. */
static inline float st_uniform24(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

#endif

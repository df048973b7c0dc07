#include "base/hash.h"

#include <string.h>

#include "base/draw_math.h"

#define P1 0x9E3779B185EBCA87ULL
#define P2 0xC2B2AE3D27D4EB4FULL
#define P3 0x165667B19E3779F9ULL
#define P4 0x85EBCA77C2B2AE63ULL
#define P5 0x27D4EB2F165667C5ULL

static uint64_t rotate(uint64_t x, int by) {
    return (x << by) | (x >> (64 - by));
}
static uint64_t read64(const unsigned char *p) {
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}
static uint64_t lane_round(uint64_t acc, uint64_t input) {
    return rotate(acc + input * P2, 31) * P1;
}
static uint64_t lane_merge(uint64_t acc, uint64_t lane) {
    return (acc ^ lane_round(0, lane)) * P1 + P4;
}

static void start_lanes(uint64_t lanes[4], uint64_t seed) {
    lanes[0] = seed + P1 + P2, lanes[1] = seed + P2, lanes[2] = seed, lanes[3] = seed - P1;
}

/* Whole blocks of 32 bytes; returns what follows them. */
static const unsigned char *add_blocks(uint64_t lanes[4], const unsigned char *p,
                                       const unsigned char *end) {
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
    for (; end - p >= 32; p += 32) {
        a = lane_round(a, read64(p));
        b = lane_round(b, read64(p + 8));
        c = lane_round(c, read64(p + 16));
        d = lane_round(d, read64(p + 24));
    }
    lanes[0] = a, lanes[1] = b, lanes[2] = c, lanes[3] = d;
    return p;
}

/* `p` … `end` are the last bytes % 32 of `bytes`. */
static uint64_t finish(const uint64_t lanes[4], uint64_t seed, uint64_t bytes,
                       const unsigned char *p, const unsigned char *end) {
    uint64_t h = seed + P5;
    if (bytes >= 32) {
        h = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
        for (int i = 0; i < 4; i++) h = lane_merge(h, lanes[i]);
    }
    h += bytes;
    for (; end - p >= 8; p += 8) h = rotate(h ^ lane_round(0, read64(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        h = rotate(h ^ (word * P1), 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++) h = rotate(h ^ (*p * P5), 11) * P1;
    h = (h ^ (h >> 33)) * P2;
    h = (h ^ (h >> 29)) * P3;
    return h ^ (h >> 32);
}

uint64_t st_hash64(const void *data, size_t bytes, uint64_t seed) {
    const unsigned char *p = data, *end = p ? p + bytes : p;
    uint64_t lanes[4];
    start_lanes(lanes, seed);
    p = add_blocks(lanes, p, end);
    return finish(lanes, seed, bytes, p, end);
}

void st_hasher_begin(st_hasher_t *hasher, uint64_t seed) {
    *hasher = (st_hasher_t){.seed = seed};
    start_lanes(hasher->lanes, seed);
}

void st_hasher_add(st_hasher_t *hasher, const void *data, size_t bytes) {
    const size_t held = hasher->bytes % 32;
    const unsigned char *p = data;
    if (bytes == 0) return;
    hasher->bytes += bytes;
    if (held + bytes < 32) {
        memcpy(hasher->rest + held, p, bytes);
        return;
    }
    const unsigned char *end = p + bytes;
    if (held) {
        memcpy(hasher->rest + held, p, 32 - held);
        add_blocks(hasher->lanes, hasher->rest, hasher->rest + 32);
        p += 32 - held;
    }
    p = add_blocks(hasher->lanes, p, end);
    memcpy(hasher->rest, p, (size_t)(end - p));
}

uint64_t st_hasher_end(const st_hasher_t *hasher) {
    return finish(hasher->lanes, hasher->seed, hasher->bytes, hasher->rest,
                  hasher->rest + hasher->bytes % 32);
}

uint64_t st_hash_string(const char *text) {
    return st_hash64(text, strlen(text), 0);
}

void st_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]) {
    draw_words(key, counter_low, counter_high, out);
}

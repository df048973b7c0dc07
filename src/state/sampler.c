/* Order of samples. The permutation is a Feistel network with Philox as its round function on the
 * smallest power of two ≥ n, walked until it falls below n: every step of the walk is a bijection,
 * so the result is one, and since the power of two is below 2n, two steps are enough on average.
 * Rejected: Fisher–Yates, whose table grows with the data. Source: Black and Rogaway, "Ciphers with
 * arbitrary finite domains", 2002. */
#include "state/sampler.h"

#include "base/hash.h"

enum { ROUNDS = 8 };

/* Separates these random words from those of dropout and initialization under the same seed. */
static const uint64_t stream = 0x73616d706c657273u;

static uint64_t round_word(const sampler_t *sampler, int64_t epoch, int round, uint64_t half) {
    uint32_t words[4];
    st_philox(sampler->seed, half << 3 | (uint64_t)round, stream ^ (uint64_t)epoch, words);
    return (uint64_t)words[0] << 32 | words[1];
}

/* A bijection on 0 … 2^bits-1. The halves may differ by a bit: each round changes one half by a
 * function of the other, whatever their widths. */
static uint64_t permute(const sampler_t *sampler, int64_t epoch, int bits, uint64_t value) {
    int low_bits = bits / 2;
    uint64_t low_mask = ((uint64_t)1 << low_bits) - 1;
    uint64_t high_mask = ((uint64_t)1 << (bits - low_bits)) - 1;
    uint64_t low = value & low_mask, high = value >> low_bits;
    for (int round = 0; round < ROUNDS; round += 2) {
        high ^= round_word(sampler, epoch, round, low) & high_mask;
        low ^= round_word(sampler, epoch, round + 1, high) & low_mask;
    }
    return high << low_bits | low;
}

st_status_t sampler_init(sampler_t *sampler, int64_t n_samples, int64_t batch, uint64_t seed,
                         bool shuffle) {
    *sampler = (sampler_t){0};
    if (batch < 1) return FAIL(ST_INVALID, "a batch of %lld samples", (long long)batch);
    if (n_samples < batch) {
        return FAIL(ST_INVALID,
                    "the data has %lld samples, a batch needs %lld: use a smaller batch",
                    (long long)n_samples, (long long)batch);
    }
    *sampler =
        (sampler_t){.n_samples = n_samples, .batch = batch, .seed = seed, .shuffle = shuffle};
    return ST_OK;
}

st_status_t sampler_seek(sampler_t *sampler, int64_t epoch, int64_t index) {
    if (epoch < 0 || index < 0 || index > sampler->n_samples) {
        return FAIL(ST_INVALID, "position epoch %lld, sample %lld is outside data of %lld samples",
                    (long long)epoch, (long long)index, (long long)sampler->n_samples);
    }
    sampler->epoch = epoch;
    sampler->index = index;
    return ST_OK;
}

int64_t sampler_at(const sampler_t *sampler, int64_t epoch, int64_t index) {
    ASSERT(index >= 0 && index < sampler->n_samples);
    if (!sampler->shuffle || sampler->n_samples < 2) return index;
    int bits = 64 - __builtin_clzll((unsigned long long)(sampler->n_samples - 1));
    uint64_t value = (uint64_t)index;
    do {
        value = permute(sampler, epoch, bits, value);
    } while (value >= (uint64_t)sampler->n_samples);
    return (int64_t)value;
}

void sampler_next(sampler_t *sampler, int64_t *out_samples) {
    if (sampler->n_samples - sampler->index < sampler->batch) {
        sampler->epoch++;
        sampler->index = 0;
    }
    for (int64_t i = 0; i < sampler->batch; i++) {
        out_samples[i] = sampler_at(sampler, sampler->epoch, sampler->index++);
    }
}

int64_t sampler_batches(const sampler_t *sampler) {
    return sampler->n_samples / sampler->batch;
}

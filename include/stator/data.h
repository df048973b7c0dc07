/* Stator: data – batches for a training step, and tokenizers.
 *
 * A source yields the feeds of one step, each sample exactly once an epoch. Shuffled (training): in
 * an order that depends on seed and epoch only, not on ranks; the last partial batch of an epoch is
 * dropped. In order (evaluation): the last batch is filled up with samples whose label is −100,
 * which losses ignore. Feeds live until the next call on the same source. One thread at a time per
 * source.
 *
 * Opening a source reads and checks its files: NOT_FOUND for a missing one, PARSE for a damaged one
 * (the message says where), INVALID where it does not fit the plan's inputs (the message shows both
 * shapes), NO_MEMORY, IO. (Nearest: torch.utils.data.DataLoader with a seeded sampler and
 * drop_last.) Opening and stator_data_next may wait for the disk, the other functions do not block;
 * several sources are independent of each other, also of one plan. */
#ifndef STATOR_DATA_H
#define STATOR_DATA_H

#include "stator/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stator_data stator_data_t;

/* Tensors of a set: `map` "x=x.0,y=y.0" gives one batch; "x=x.*,y=y.*" takes them in numeric order,
 * pairwise (all with the same numbers), in a cycle, never shuffled; with accumulation a step takes
 * as many of them as it has micro-batches. NULL or "": equal names. Types must be the plan's. */
STATOR_API stator_status_t stator_data_tensors(const stator_plan_t *plan,
                                               const stator_tensors_t *tensors, const char *map,
                                               stator_data_t **out_data) STATOR_WARN_UNUSED;
/* Token shards (comma separated paths): x and y are windows of the plan's sequence length, y
 * shifted by one. `shuffle` 0: in order. INVALID where the shards' vocabulary is larger than the
 * table that the model looks x up in. */
STATOR_API stator_status_t stator_data_tokens(const stator_plan_t *plan, const char *paths,
                                              uint64_t seed, int shuffle,
                                              stator_data_t **out_data) STATOR_WARN_UNUSED;
/* IDX images and labels: x f32[batch, 1, h, w] = (pixel/255 - mean)/std, y i64[batch]. INVALID: a
 * label that the model's loss has no class for. */
STATOR_API stator_status_t stator_data_images(const stator_plan_t *plan, const char *images,
                                              const char *labels, double mean, double std,
                                              uint64_t seed, int shuffle,
                                              stator_data_t **out_data) STATOR_WARN_UNUSED;
/* One tensor an input of the plan, under its name, that a step accepts: floats in [-1, 1), indices
 * within the table they look up and labels within the classes of the loss. The same for the same
 * seed. For measuring. */
STATOR_API stator_status_t stator_tensors_random(const stator_plan_t *plan, uint64_t seed,
                                                 stator_tensors_t **out_tensors) STATOR_WARN_UNUSED;
STATOR_API void stator_data_destroy(stator_data_t *data); /* NULL is fine */
/* Feeds of the next step: *out_n tensors, as stator_session_step takes them. Copies samples, does
 * not touch the disk beyond mapped pages. IO: a token shard changed since it was opened. */
STATOR_API stator_status_t stator_data_next(stator_data_t *data, size_t *out_n,
                                            const stator_tensor_t **out_feeds) STATOR_WARN_UNUSED;
/* Samples of the whole source; of a set of tensors: how many batches until it begins again. */
STATOR_API int64_t stator_data_samples(const stator_data_t *data);
/* Real samples in the batch that the last stator_data_next gave. */
STATOR_API int64_t stator_data_valid(const stator_data_t *data);
/* Steps in an epoch; of a set of tensors: how many steps until it begins again. */
STATOR_API int64_t stator_data_steps(const stator_data_t *data);
/* Position: (epoch, sample) of the next sample, both from 0; INVALID for a negative one. Seeking
 * makes a resumed run go on where it stopped. */
STATOR_API void stator_data_position(const stator_data_t *data, int64_t *out_epoch,
                                     int64_t *out_sample);
STATOR_API stator_status_t stator_data_seek(stator_data_t *data, int64_t epoch,
                                            int64_t sample) STATOR_WARN_UNUSED;
struct stator_progress; /* stator/session.h */
/* Seeks to the position of `progress`. INVALID if it counts in data of another number of
 * samples: there the position would mean others. */
STATOR_API stator_status_t
stator_data_resume(stator_data_t *data, const struct stator_progress *progress) STATOR_WARN_UNUSED;

/* ---- tokenizers ---- */

typedef struct stator_tokenizer stator_tokenizer_t;
/* Tokenizers can be used by several threads at once. Loading gives NOT_FOUND, PARSE, UNSUPPORTED (a
 * model kind that is not known) or NO_MEMORY. */
/* A sentencepiece model (unigram or BPE), or a vocabulary of characters written by
 * stator_tokenizer_chars. */
STATOR_API stator_status_t stator_tokenizer_load(const char *path,
                                                 stator_tokenizer_t **out) STATOR_WARN_UNUSED;
/* Vocabulary of the distinct bytes of a text, in ascending order. */
STATOR_API stator_status_t stator_tokenizer_chars(const char *text, size_t bytes,
                                                  stator_tokenizer_t **out) STATOR_WARN_UNUSED;
STATOR_API stator_status_t stator_tokenizer_save(const stator_tokenizer_t *tokenizer,
                                                 const char *path) STATOR_WARN_UNUSED;
STATOR_API void stator_tokenizer_destroy(stator_tokenizer_t *tokenizer); /* NULL is fine */
STATOR_API int64_t stator_tokenizer_vocabulary(const stator_tokenizer_t *tokenizer);
/* Token that begins a sequence; −1 if the vocabulary has none. */
STATOR_API int64_t stator_tokenizer_begin(const stator_tokenizer_t *tokenizer);
/* Ids of `bytes` bytes of UTF-8 text, without a token that begins the sequence. INVALID: a byte
 * that a vocabulary of characters lacks (the message names byte and offset). *out_tokens is freed
 * with stator_free. */
STATOR_API stator_status_t stator_tokenizer_encode(const stator_tokenizer_t *tokenizer,
                                                   const char *text, size_t bytes,
                                                   int64_t **out_tokens,
                                                   size_t *out_n) STATOR_WARN_UNUSED;
/* Text of ids, freed with stator_free, with a NUL after its *out_bytes bytes. INVALID: an id
 * outside the vocabulary. */
STATOR_API stator_status_t stator_tokenizer_decode(const stator_tokenizer_t *tokenizer,
                                                   const int64_t *tokens, size_t n, char **out_text,
                                                   size_t *out_bytes) STATOR_WARN_UNUSED;
/* Writes a token shard atomically. INVALID: an id that is not below `vocabulary`; IO. */
STATOR_API stator_status_t stator_tokens_save(const char *path, const int64_t *tokens, size_t n,
                                              int64_t vocabulary) STATOR_WARN_UNUSED;

#ifdef __cplusplus
}
#endif
#endif

/* Training alike under every form and mesh: shared by the short and the full form of the test. */
#ifndef STATOR_TESTS_CAPI_SHARD_H
#define STATOR_TESTS_CAPI_SHARD_H

#include "stator/stator.h"

typedef struct shard_model {
    const char *name;
    const char *config;      /* Llama: the text of config.json; NULL: a ResNet */
    const char *options[24]; /* key, value, …, NULL: model and training */
    int labels;              /* labels and tokens are below it */
    int ignored;             /* of each row of labels, so many at its beginning are -100; of
                              * micro-batches one in so many by lot, with those behind it */
} shard_model_t;

extern const shard_model_t shard_llama, shard_llama_uneven, shard_resnet, shard_experts,
    shard_experts_uneven;
/* For pipelines: several micro-batches, of which some have more labels that count than others. The
 * tied one's embedding is its head. */
extern const shard_model_t shard_llama_micro, shard_llama_tied, shard_resnet_micro;

/* `model` with one more option. */
shard_model_t shard_with(const shard_model_t *model, const char *key, const char *value);

/* A file with the processor's own description, but with such links, and launches that cost nothing.
 * Two files at a time: "free.target" and another. */
const char *shard_machine(const char *name, const char *us, const char *gbps);

/* Trains ten steps in float64 on one rank and on the mesh; fails unless every output of every step
 * (loss, gradient norm), and at the end every parameter, buffer and moment, is within 1e-9 of the
 * one rank's, relative to the tensor's largest element. The one rank's run is kept between calls
 * for one model. */
/* Returns the state bytes of a rank, the most of all ranks. A form may be followed by pins: "dp
 * *=whole(data)". */
unsigned long long shard_check(const shard_model_t *model, const char *mesh, const char *form);

/* What is planned for the mesh; no step runs. */
stator_plan_info_t shard_planned(const shard_model_t *model, const char *mesh, const char *form);

/* The same with options of the plan besides: key, value, …, NULL. */
unsigned long long shard_check_with(const shard_model_t *model, const char *mesh, const char *form,
                                    const char *const *options);

/* Trains some steps on one mesh, saves, goes on; and goes on after loading on another mesh: the
 * states then agree as above. */
void shard_check_resumed(const shard_model_t *model, const char *mesh, const char *form,
                         const char *other_mesh, const char *other_form);
/* An evaluation plan that shares the state of a training plan gives the loss that the one of one
 * rank gives, before and after some steps. */
void shard_check_evaluation(const shard_model_t *model, const char *mesh, const char *form);
/* Compiling with the pins fails with a message that contains `says`. */
void shard_check_unplanned(const shard_model_t *model, const char *mesh, const char *pins,
                           const char *says);
/* A step whose every integer input is `token` fails with a message that contains `says`. */
void shard_check_refused(const shard_model_t *model, const char *mesh, long long token,
                         const char *says);

#endif

/* The uniform plans: well-known ways to spread a training step over one axis, each one rule for
 * all.
 *
 *   form       inputs        weights   moments   products
 *   dp         split, batch  whole     whole     in parts of the batch
 *   zero1      split, batch  whole     split     in parts of the batch
 *   zero3      split, batch  split     split     in parts of the batch
 *   tp         whole         free      free      in parts of anything but the batch
 *   context    split, other  whole     split     in parts of that dim
 *   none       whole         whole     whole     whole
 *
 * (zero2 is zero1 here: gradients are summed where they are needed, and not kept whole, in both.) A
 * form is a restriction of the labels that a model's energy has (model.h); what it leaves open is
 * solved for, so each form is as good as it can be by that energy. A node that has no way of the
 * form keeps all of its ways. */
#ifndef STATOR_SHARD_UNIFORM_H
#define STATOR_SHARD_UNIFORM_H

#include "shard/model.h"

/* "dp", …; NULL after the last. */
const char *shard_uniform_name(uint32_t form);
/* An energy of the model's (shard_model_energy, shard_model_weigh) with the form's labels alone.
 * Closed by the caller, after a failure too. */
st_status_t shard_uniform_energy(const shard_model_t *model, const shard_energy_t *energy,
                                 uint32_t form, shard_energy_t *out_energy) ST_WARN_UNUSED;

#endif

/* Weights in the type that the step computes in, kept from step to step. */
#ifndef STATOR_AUTODIFF_SHADOW_H
#define STATOR_AUTODIFF_SHADOW_H

#include "ir/graph.h"

/* In: the global program after the precision pass, with its optimizer. Out: each float32 parameter
 * that is updated and cast to bf16 or f16 has a buffer of that type, named IR_SHADOW_PREFIX and the
 * parameter's name, which stands for the cast and takes that of the new value. A shadow is the cast
 * of its parameter whenever a step begins: sessions see to it (exec/shadow.c) where a parameter is
 * written from outside. */
st_status_t ad_shadow(const ir_graph_t *graph, ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif

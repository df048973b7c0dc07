/* Stator: a compiler and runtime for training steps. This header includes the whole public API.
 *
 *   graph    stator_graph_import, stator_graph_llama, the builder …    what is computed
 *   training stator_graph_make_training                               gradient and optimizer
 *   plan     stator_plan_compile                                      kernels, order, memory, ranks
 *   session  stator_session_create, _initialize, _load, _step, _save  running
 *   comm     stator_comm_join                                         ranks as processes
 *   data     stator_data_tokens, stator_data_images, tokenizers
 *
 * C11 and C++; no type of another library appears. */
#ifndef STATOR_STATOR_H
#define STATOR_STATOR_H

#include "stator/comm.h"
#include "stator/data.h"
#include "stator/graph.h"
#include "stator/log.h"
#include "stator/options.h"
#include "stator/plan.h"
#include "stator/report.h"
#include "stator/session.h"
#include "stator/status.h"
#include "stator/target.h"
#include "stator/tensor.h"
#include "stator/trace.h"

#endif

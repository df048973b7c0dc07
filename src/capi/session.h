/* A session's state by the nodes of its program: between session.c and checkpoint.c. */
#ifndef STATOR_CAPI_SESSION_H
#define STATOR_CAPI_SESSION_H

#include "capi/capi.h"

const ir_graph_t *capi_session_graph(const stator_session_t *session);
/* Global type of a state of the program. */
const ir_type_t *capi_state_type(const stator_session_t *session, const ir_node_info_t *node);
/* A state that is no copy of another. */
bool capi_is_saved(const ir_node_info_t *node);
/* Neither optimizer, averages nor random numbers: what a checkpoint keeps apart from those. */
bool capi_is_model_state(const ir_node_info_t *node);

#endif

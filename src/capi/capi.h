/* The public objects over the internal ones: shared by the files of src/capi/. */
#ifndef STATOR_CAPI_CAPI_H
#define STATOR_CAPI_CAPI_H

#include "base/options.h"
#include "comm/comm.h"
#include "compile/compile.h"
#include "exec/session.h"
#include "ir/symbols.h"
#include "state/safetensors.h"
#include "state/weights.h"
#include "stator/stator.h"

struct stator_options {
    st_options_t *table;
};

struct stator_graph {
    ir_graph_t *ir;
    char *notes; /* what an importer had to say, one note a line; "" if nothing */
};

struct stator_plan {
    plan_t *plan;
    double compile_us;
    size_t n_timings; /* of the passes; none of a loaded plan */
    compile_timing_t *timings;
};

struct stator_comm {
    comm_t *world;
};

struct stator_session {
    const stator_plan_t *plan;
    exec_session_t *exec;
    exec_feed_t *feeds;    /* [inputs of the plan + 1]: a step allocates nothing */
    exec_fetch_t *fetches; /* [outputs of the plan + 1] */
};

static inline stator_status_t capi_status(st_status_t status) {
    return (stator_status_t)status;
}

/* What public functions begin with: out-pointers are there and hold NULL, then the other pointers
 * are there; an array only needs to be where it has elements. */
#define CAPI_REQUIRE(pointer)                                    \
    do {                                                         \
        if (!(pointer)) return capi_missing(__func__, #pointer); \
    } while (0)
#define CAPI_REQUIRE_N(pointer, n)                                          \
    do {                                                                    \
        if (!(pointer) && (n) > 0) return capi_missing(__func__, #pointer); \
    } while (0)
#define CAPI_OUT(out)      \
    do {                   \
        CAPI_REQUIRE(out); \
        *(out) = NULL;     \
    } while (0)
/* INVALID "<function>: <argument> is NULL". */
stator_status_t capi_missing(const char *function, const char *argument) ST_WARN_UNUSED;

/* Takes the graph over, also on failure. */
st_status_t capi_graph_wrap(ir_graph_t *ir, stator_graph_t **out_graph) ST_WARN_UNUSED;
/* Sizes for the symbols of the option "bind"; at most IR_MAX_SYMBOLS. */
st_status_t capi_bindings(const stator_options_t *options, st_arena_t *arena, ir_binding_t *out,
                          size_t *out_n) ST_WARN_UNUSED;
/* With option "fetch" *out_copy is the graph with the outputs that it asks for, else NULL. Of names
 * that no value has: an error if `all` have to be there, else they are passed over. */
st_status_t capi_with_fetches(const ir_graph_t *graph, const st_options_t *table, bool all,
                              ir_graph_t **out_copy) ST_WARN_UNUSED;
/* Adds one line to the notes. */
st_status_t capi_graph_note(stator_graph_t *graph, const char *note) ST_WARN_UNUSED;
/* Checks dtype, rank and dims. Errors name the tensor. */
st_status_t capi_type_of(const stator_tensor_t *tensor, ir_type_t *out_type) ST_WARN_UNUSED;
stator_tensor_t capi_tensor(const char *name, const ir_type_t *type, const void *data);
/* Number and position of the graph's ports of one kind. */
size_t capi_port_count(const ir_graph_t *graph, stator_port_kind_t kind);
/* A plan's parameter or buffer, of its global type. */
stator_tensor_t capi_state_at(const plan_t *plan, stator_port_kind_t kind, size_t index);
stator_tensor_t capi_port_at(const ir_graph_t *graph, stator_port_kind_t kind, size_t index);
/* Adds a copy under the name, and an alias. */
st_status_t capi_tensors_put(stator_tensors_t *tensors, const char *name, const ir_type_t *type,
                             const void *data) ST_WARN_UNUSED;
st_status_t capi_tensors_alias(stator_tensors_t *tensors, const char *other,
                               const char *stored) ST_WARN_UNUSED;
/* Gives the tensor another name; nothing happens if there is none of the old one. */
st_status_t capi_tensors_rename(stator_tensors_t *tensors, const char *old_name,
                                const char *new_name) ST_WARN_UNUSED;

/* A set as a safetensors file object: its own, or an encoding in memory that release frees. */
typedef struct capi_file {
    const safetensors_t *file;
    safetensors_t *owned;
    void *data;
} capi_file_t;
st_status_t capi_tensors_file(const stator_tensors_t *tensors,
                              capi_file_t *out_file) ST_WARN_UNUSED;
void capi_file_release(capi_file_t *file);

/* What weights have to hold for this graph: parameters required, buffers and assumed parameters
 * optional. */
st_status_t capi_wanted(const ir_graph_t *graph, st_arena_t *arena, size_t *out_n,
                        weights_wanted_t **out_wanted) ST_WARN_UNUSED;

/* Rows of the smallest table that is looked up by the input; INT64_MAX if none is. */
int64_t capi_vocabulary(const ir_graph_t *graph, const char *input);
/* Labels that the loss takes from the input: below `n` (INT64_MAX if no loss takes it), and
 * `ignored`. */
typedef struct capi_classes {
    int64_t n, ignored;
} capi_classes_t;
capi_classes_t capi_classes(const ir_graph_t *graph, const char *input);

#endif

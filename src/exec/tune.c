/* Kernels that choose among a library's ways by measuring (kern_impl_t.tune), before the first
 * step.
 *
 * They run on the places that the plan gave them. State and constants are read only: a kernel that
 * writes there is left as it was bound. All other memory of the work region holds nothing before a
 * step, as inputs come with each; it is given noise first, for products of zeros take less time. */
#include <string.h>

#include "base/hash.h"
#include "exec/internal.h"
#include "ir/convert.h"

enum { NOISE_BYTES = 1 << 16 };

/* In the state of the rank whose program this is, or whose program's body. */
static bool is_state(const exec_rank_t *rank, const plan_place_t *place) {
    const exec_session_t *session = rank->session;
    const exec_rank_t *whole = &session->ranks[rank->index];
    const char *state = whole->regions[PLAN_STATE], *at = exec_address(rank, place);
    return at && at >= state && at < state + whole->region_bytes[PLAN_STATE];
}

/* [storages]: true where a step begins with what is there. */
static st_status_t find_kept(exec_rank_t *rank, bool **out_kept) {
    const plan_program_t *program = rank->program;
    const ir_graph_t *graph = program->graph;
    uint32_t n = 0;
    for (ir_value_t v = 0; v < graph->values.n; v++)
        if (program->places[v].storage >= n) n = program->places[v].storage + 1;
    *out_kept = st_arena_array(&rank->arena, n, sizeof **out_kept);
    if (!*out_kept) return st_no_memory(n, "a session");
    memset(*out_kept, 0, n);
    for (ir_value_t v = 0; v < graph->values.n; v++) {
        ir_op_t op = ir_value_producer(graph, v)->op;
        if (is_state(rank, &program->places[v]) || ir_op_is_lasting(op))
            (*out_kept)[program->places[v].storage] = true;
    }
    return ST_OK;
}

/* Elements in (-1, 1), again and again. */
static st_status_t put_noise(exec_rank_t *rank, const plan_place_t *place, ir_dtype_t dtype) {
    uint64_t block[NOISE_BYTES / sizeof(uint64_t)];
    size_t width = ir_dtype_bytes(dtype), done = sizeof block;
    char *to = exec_address(rank, place);
    uint32_t words[4];
    if (!ir_dtype_is_float(dtype) || !place->bytes) return ST_OK;
    for (size_t i = 0; i < sizeof block / width; i++) {
        if (i % 4 == 0) st_philox(1, i / 4, 0, words);
        ir_element_store(dtype, block, i, 2 * (double)st_uniform24(words[i % 4]) - 1);
    }
    if (done > place->bytes) done = place->bytes;
    TRY(rank->device->copy_in(rank->stream, to, block, done));
    TRY(rank->device->synchronize(rank->stream)); /* the block is on this thread's stack */
    while (done < place->bytes) {
        size_t more = place->bytes - done < done ? place->bytes - done : done;
        TRY(rank->device->copy(rank->stream, to + done, to, more));
        done += more;
    }
    return ST_OK;
}

typedef struct noise {
    exec_rank_t *rank;
    const exec_step_t *step;
    const bool *kept;
} noise_t;

static st_status_t fill(void *context) {
    const noise_t *noise = context;
    const plan_program_t *program = noise->rank->program;
    const ir_node_info_t *node = ir_node(program->graph, noise->step->node);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const plan_place_t *place = &program->places[node->inputs[j]];
        if (!noise->kept[place->storage])
            TRY(put_noise(noise->rank, place,
                          ir_value_type(program->graph, node->inputs[j])->dtype));
    }
    return ST_OK;
}

static st_status_t tune_step(exec_rank_t *rank, exec_step_t *step, const bool *kept) {
    const ir_node_info_t *node = ir_node(rank->program->graph, step->node);
    noise_t noise = {rank, step, kept};
    for (uint32_t k = 0; k < node->n_outputs; k++)
        if (kept[rank->program->places[node->first_output + k].storage]) return ST_OK;
    return step->impl->tune(&step->call, &(kern_noise_t){fill, &noise});
}

st_status_t exec_tune(exec_rank_t *rank) {
    bool *kept = NULL;
    for (uint32_t i = 0; i < rank->n_steps; i++) {
        exec_step_t *step = &rank->steps[i];
        if (step->kind == PLAN_STEP_REGION) TRY(exec_region_tune(step));
        if (step->kind != PLAN_STEP_KERNEL || !step->impl->tune) continue;
        if (!kept) TRY(find_kept(rank, &kept));
        st_status_t status = tune_step(rank, step, kept);
        if (status != ST_OK)
            return st_error_context(status, "%s", ir_node_label(rank->program->graph, step->node));
    }
    return kept ? rank->device->synchronize(rank->stream) : ST_OK;
}

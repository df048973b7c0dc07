/* Checkpoints of a session: each process writes what it has and reads what it needs. */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "capi/capi.h"
#include "capi/session.h"
#include "state/checkpoint.h"

/* What this process has of the state, split into model and optimizer. */
typedef struct share {
    st_arena_t arena;
    checkpoint_tensor_t *model, *optimizer;
    size_t n_model, n_optimizer;
    state_alias_t *aliases;
    size_t n_aliases;
} share_t;

static st_status_t add_state(const stator_session_t *session, const ir_node_info_t *node,
                             bool delivered_alone, share_t *share) {
    checkpoint_tensor_t tensor = {.name = node->name, .type = *capi_state_type(session, node)};
    bool delivers;
    TRY(exec_state_piece(session->exec, node->name, &tensor.box, &delivers));
    const bool is_empty =
        ir_type_bytes(&tensor.type) > 0 && ir_box_bytes(&tensor.type, &tensor.box) == 0;
    if (delivered_alone && (!delivers || is_empty)) return ST_OK;
    if (capi_is_model_state(node))
        share->model[share->n_model++] = tensor;
    else
        share->optimizer[share->n_optimizer++] = tensor;
    return ST_OK;
}

/* `delivered_alone`: without what another process writes. */
static st_status_t open_share(const stator_session_t *session, bool delivered_alone, share_t *out) {
    const ir_graph_t *graph = capi_session_graph(session);
    *out = (share_t){0};
    out->model = st_arena_array(&out->arena, graph->nodes.n, sizeof *out->model);
    out->optimizer = st_arena_array(&out->arena, graph->nodes.n, sizeof *out->optimizer);
    out->aliases = st_arena_array(&out->arena, graph->aliases.n, sizeof *out->aliases);
    if (!out->model || !out->optimizer || !out->aliases)
        return st_no_memory(graph->nodes.n * sizeof *out->model, "a checkpoint's tensors");
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const ir_node_info_t *node = &graph->nodes.data[i];
        if (capi_is_saved(node)) TRY(add_state(session, node, delivered_alone, out));
    }
    for (size_t i = 0; i < graph->aliases.n; i++)
        out->aliases[out->n_aliases++] =
            (state_alias_t){graph->aliases.data[i].name, graph->aliases.data[i].stored};
    return ST_OK;
}

static st_status_t agree(void *context, st_status_t own) {
    return exec_session_agree(context, own);
}
static st_status_t tell(void *context, void *data, size_t bytes) {
    return exec_session_tell(context, data, bytes);
}
static st_status_t gather(void *context, const void *own, size_t bytes, void *all) {
    return exec_session_gather(context, own, bytes, all);
}

static checkpoint_group_t group_of(stator_session_t *session) {
    return (checkpoint_group_t){.rank = exec_session_first(session->exec),
                                .size = exec_session_processes(session->exec),
                                .context = session->exec,
                                .agree = agree,
                                .tell = tell,
                                .gather = gather};
}

static st_status_t read_state(void *context, const char *name, size_t offset, size_t bytes,
                              void *out) {
    return exec_state_read_range(context, name, offset, bytes, out);
}

static st_status_t write_state(void *context, const checkpoint_tensor_t *tensor,
                               const ir_box_t *box, const void *data) {
    return exec_state_write_box(context, tensor->name, &tensor->type, box, data);
}

static checkpoint_progress_t progress_in(const stator_progress_t *p) {
    return (checkpoint_progress_t){p->step,          p->epoch, p->sample,   p->seed,
                                   p->has_best != 0, p->best,  p->n_samples};
}

static stator_progress_t progress_of(const checkpoint_t *checkpoint) {
    const checkpoint_progress_t *p = checkpoint_progress(checkpoint);
    return (stator_progress_t){p->step,     p->epoch, p->sample,   p->seed,
                               p->has_best, p->best,  p->n_samples};
}

stator_status_t stator_session_save(stator_session_t *session, const char *dir,
                                    const stator_progress_t *progress, int32_t keep, int is_best) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(dir);
    CAPI_REQUIRE(progress);
    const checkpoint_group_t group = group_of(session);
    const checkpoint_policy_t policy = {keep, is_best != 0};
    static const char what[] = "saving a checkpoint";
    share_t own = {0};
    st_status_t status = exec_session_idle(session->exec);
    exec_session_mark(session->exec, what);
    if (status == ST_OK) status = open_share(session, true, &own);
    status = exec_session_agree(session->exec, status);
    if (status == ST_OK) {
        const checkpoint_contents_t contents = {.model = own.model,
                                                .n_model = own.n_model,
                                                .aliases = own.aliases,
                                                .n_aliases = own.n_aliases,
                                                .optimizer = own.optimizer,
                                                .n_optimizer = own.n_optimizer,
                                                .source = {read_state, session->exec},
                                                .progress = progress_in(progress)};
        status = checkpoint_save(dir, &contents, &policy, &group);
    }
    st_arena_clear(&own.arena);
    return capi_status(exec_session_place(session->exec, what, status));
}

stator_status_t stator_session_resume(stator_session_t *session, const char *dir,
                                      stator_progress_t *out_progress) {
    CAPI_REQUIRE(session);
    CAPI_REQUIRE(dir);
    CAPI_REQUIRE(out_progress);
    const checkpoint_group_t group = group_of(session);
    const checkpoint_sink_t sink = {write_state, session->exec};
    static const char what[] = "reading a checkpoint";
    checkpoint_t *checkpoint = NULL;
    share_t own = {0};
    st_status_t status = exec_session_idle(session->exec);
    exec_session_mark(session->exec, what);
    if (status == ST_OK) status = open_share(session, false, &own);
    status = exec_session_agree(session->exec, status);
    if (status == ST_OK) status = checkpoint_open(dir, &group, &checkpoint);
    if (status == ST_OK) {
        if (checkpoint_skipped(checkpoint)[0])
            st_log(ST_LOG_WARNING, "%s", checkpoint_skipped(checkpoint));
        status = checkpoint_load_model(checkpoint, own.model, own.n_model, &sink);
        if (status == ST_OK)
            status = checkpoint_load_optimizer(checkpoint, own.optimizer, own.n_optimizer, &sink);
        status = exec_session_agree(session->exec, status);
    }
    if (status == ST_OK) *out_progress = progress_of(checkpoint);
    st_arena_clear(&own.arena);
    checkpoint_close(checkpoint);
    return capi_status(exec_session_place(session->exec, what, status));
}

/* ---- without a session ---- */

static st_status_t note_of(const checkpoint_t *checkpoint, char **out_note) {
    *out_note = st_strdup(checkpoint_skipped(checkpoint));
    return *out_note ? ST_OK : st_no_memory(strlen(checkpoint_skipped(checkpoint)), "a note");
}

stator_status_t stator_checkpoint_read(const char *dir, stator_progress_t *out_progress,
                                       char **out_note) {
    CAPI_OUT(out_note);
    CAPI_REQUIRE(out_progress);
    CAPI_REQUIRE(dir);
    checkpoint_t *checkpoint = NULL;
    st_status_t status = checkpoint_open(dir, NULL, &checkpoint);
    if (status == ST_OK) {
        *out_progress = progress_of(checkpoint);
        status = note_of(checkpoint, out_note);
    }
    checkpoint_close(checkpoint);
    return capi_status(status);
}

stator_status_t stator_checkpoint_gather(const char *dir, const char *path,
                                         stator_progress_t *out_progress, char **out_note) {
    CAPI_OUT(out_note);
    CAPI_REQUIRE(dir);
    CAPI_REQUIRE(path);
    CAPI_REQUIRE(out_progress);
    checkpoint_t *checkpoint = NULL;
    st_status_t status = checkpoint_open(dir, NULL, &checkpoint);
    if (status == ST_OK) status = checkpoint_gather_model(checkpoint, path);
    if (status == ST_OK) status = note_of(checkpoint, out_note);
    if (status == ST_OK) *out_progress = progress_of(checkpoint);
    checkpoint_close(checkpoint);
    return capi_status(status);
}

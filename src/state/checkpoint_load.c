/* Loading from a checkpoint's parts: every stored tensor is a set of boxes, one a file at most,
 * that tile it. What is wanted is compared with all of them first; then each box that shares
 * something with what is wanted is handed over, as it is mapped. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "state/checkpoint_internal.h"
#include "state/report.h"

typedef struct piece {
    const safetensors_tensor_t *stored;
    ir_type_t type; /* of the whole */
    ir_box_t box;
    uint32_t part;
} piece_t;

typedef struct loading {
    const checkpoint_t *checkpoint;
    safetensors_t *const *files; /* [n_parts] of the kind */
    piece_t *pieces;             /* [n_parts]: of the tensor at hand */
    bool **used;                 /* [n_parts][tensors of the file] */
} loading_t;

/* ---- the boxes of one tensor ---- */

/* Boxes of the tensor of this name or alias; 0 if no file has any. */
static st_status_t find_pieces(const loading_t *l, const char *name, uint32_t *out_n) {
    *out_n = 0;
    for (uint32_t p = 0; p < l->checkpoint->n_parts; p++) {
        piece_t *piece = &l->pieces[*out_n];
        piece->stored = safetensors_find(l->files[p], name);
        piece->part = p;
        if (piece->stored == NULL) continue;
        st_status_t status =
            checkpoint_read_box(l->files[p], piece->stored, &piece->type, &piece->box);
        if (status != ST_OK) return st_error_context(status, "'%s'", safetensors_path(l->files[p]));
        ++*out_n;
    }
    return ST_OK;
}

/* The boxes are of one tensor, apart from each other, and as large as it together. O(n²). */
static st_status_t check_tiling(const loading_t *l, const char *name, uint32_t n) {
    const piece_t *pieces = l->pieces;
    const ir_type_t *type = &pieces[0].type;
    const ir_box_t whole = ir_box_whole(type);
    ir_box_t common;
    int64_t covered = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!ir_type_equal(type, &pieces[i].type))
            return FAIL(ST_PARSE, "tensor '%s': '%s' and '%s' have parts of different tensors",
                        name, safetensors_path(l->files[pieces[0].part]),
                        safetensors_path(l->files[pieces[i].part]));
        for (uint32_t j = 0; j < i; j++)
            if (ir_box_common(type, &pieces[i].box, &pieces[j].box, &common))
                return FAIL(ST_PARSE, "tensor '%s': its parts in '%s' and '%s' overlap", name,
                            safetensors_path(l->files[pieces[j].part]),
                            safetensors_path(l->files[pieces[i].part]));
        covered += ir_box_elements(type, &pieces[i].box);
    }
    if (covered == ir_box_elements(type, &whole)) return ST_OK;
    return FAIL(ST_PARSE, "'%s': tensor '%s': its parts have %lld of %lld elements",
                l->checkpoint->folder, name, (long long)covered,
                (long long)ir_box_elements(type, &whole));
}

/* ---- comparing ---- */

typedef struct comparison {
    state_report_t missing, different, left;
} comparison_t;

static st_status_t compare_one(const loading_t *l, const checkpoint_tensor_t *tensor,
                               comparison_t *c) {
    uint32_t n;
    TRY(find_pieces(l, tensor->name, &n));
    if (n == 0) {
        state_report_add(&c->missing, "%s", tensor->name);
        return ST_OK;
    }
    TRY(check_tiling(l, tensor->name, n));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t p = l->pieces[i].part;
        l->used[p][l->pieces[i].stored - safetensors_at(l->files[p], 0)] = true;
    }
    char wanted[IR_TYPE_TEXT_BYTES], found[IR_TYPE_TEXT_BYTES];
    if (!ir_type_equal(&l->pieces[0].type, &tensor->type))
        state_report_add(&c->different, "%s (%s here, %s stored)", tensor->name,
                         ir_type_text(&tensor->type, wanted, sizeof wanted),
                         ir_type_text(&l->pieces[0].type, found, sizeof found));
    return ST_OK;
}

/* Stored tensors that nobody wants, each once. */
static void find_left(const loading_t *l, comparison_t *c) {
    for (uint32_t p = 0; p < l->checkpoint->n_parts; p++) {
        for (size_t i = 0; i < safetensors_count(l->files[p]); i++) {
            const char *name = safetensors_at(l->files[p], i)->name;
            bool is_known = l->used[p][i];
            for (uint32_t q = 0; q < p && !is_known; q++)
                is_known = safetensors_find(l->files[q], name) != NULL;
            if (!is_known) state_report_add(&c->left, "%s", name);
        }
    }
}

/* Every difference at once, so that the user sees the whole picture. */
static st_status_t compare(const loading_t *l, const checkpoint_tensor_t *tensors, size_t n) {
    comparison_t c = {0};
    for (size_t i = 0; i < n; i++) TRY(compare_one(l, &tensors[i], &c));
    find_left(l, &c);
    if (c.missing.n + c.different.n + c.left.n == 0) return ST_OK;
    char texts[3][600];
    state_report_text(&c.missing, "missing from the file", texts[0], sizeof texts[0]);
    state_report_text(&c.different, "of another type", texts[1], sizeof texts[1]);
    state_report_text(&c.left, "left over in the file", texts[2], sizeof texts[2]);
    return FAIL(ST_INVALID, "'%s' does not fit this model: %s%s%s%s%s",
                l->checkpoint->n_parts == 1 ? safetensors_path(l->files[0]) : l->checkpoint->folder,
                texts[0], c.missing.n > 0 && c.different.n + c.left.n > 0 ? "; " : "", texts[1],
                c.different.n > 0 && c.left.n > 0 ? "; " : "", texts[2]);
}

/* ---- loading ---- */

static void close_loading(loading_t *l) {
    for (uint32_t p = 0; l->used && p < l->checkpoint->n_parts; p++) st_free(l->used[p]);
    st_free(l->used);
    st_free(l->pieces);
}

static st_status_t open_loading(const checkpoint_t *checkpoint, checkpoint_kind_t kind,
                                loading_t *l) {
    const uint32_t n = checkpoint->n_parts;
    *l = (loading_t){.checkpoint = checkpoint, .files = checkpoint->files[kind]};
    l->pieces = st_calloc(n, sizeof *l->pieces);
    l->used = st_calloc(n, sizeof *l->used);
    if (l->pieces == NULL || l->used == NULL)
        return st_no_memory(n * sizeof *l->pieces, "the parts of a tensor");
    for (uint32_t p = 0; p < n; p++) {
        const size_t count = safetensors_count(l->files[p]);
        l->used[p] = st_calloc(count, sizeof *l->used[p]);
        if (l->used[p] == NULL) return st_no_memory(count, "the tensors' marks");
    }
    return ST_OK;
}

static st_status_t hand_over(const loading_t *l, const checkpoint_tensor_t *tensor,
                             const checkpoint_sink_t *sink) {
    uint32_t n;
    ir_box_t common;
    TRY(find_pieces(l, tensor->name, &n));
    for (uint32_t i = 0; i < n; i++) {
        const piece_t *piece = &l->pieces[i];
        if (ir_box_common(&tensor->type, &tensor->box, &piece->box, &common))
            TRY(sink->write(sink->context, tensor, &piece->box, piece->stored->data));
    }
    return ST_OK;
}

static st_status_t load(const checkpoint_t *checkpoint, checkpoint_kind_t kind,
                        const checkpoint_tensor_t *tensors, size_t n,
                        const checkpoint_sink_t *sink) {
    loading_t l;
    st_status_t status = open_loading(checkpoint, kind, &l);
    if (status == ST_OK) status = compare(&l, tensors, n);
    for (size_t i = 0; status == ST_OK && i < n; i++) status = hand_over(&l, &tensors[i], sink);
    close_loading(&l);
    return status;
}

st_status_t checkpoint_load_model(const checkpoint_t *checkpoint,
                                  const checkpoint_tensor_t *tensors, size_t n_tensors,
                                  const checkpoint_sink_t *sink) {
    return load(checkpoint, CHECKPOINT_MODEL, tensors, n_tensors, sink);
}

st_status_t checkpoint_load_optimizer(const checkpoint_t *checkpoint,
                                      const checkpoint_tensor_t *tensors, size_t n_tensors,
                                      const checkpoint_sink_t *sink) {
    return load(checkpoint, CHECKPOINT_OPTIMIZER, tensors, n_tensors, sink);
}

/* ---- one file of whole tensors ---- */

typedef struct copy {
    char *to;
    const char *from;
} copy_t;

static st_status_t copy_run(void *context, size_t to, size_t from, size_t bytes) {
    const copy_t *copy = context;
    memcpy(copy->to + to, copy->from + from, bytes);
    return ST_OK;
}

/* Bytes of a whole tensor, from all of its boxes. */
static st_status_t read_whole(void *context, const char *name, size_t offset, size_t bytes,
                              void *out) {
    const loading_t *l = context;
    uint32_t n;
    TRY(find_pieces(l, name, &n));
    for (uint32_t i = 0; i < n; i++) {
        const piece_t *piece = &l->pieces[i];
        const ir_box_t whole = ir_box_whole(&piece->type);
        copy_t copy = {out, piece->stored->data};
        TRY(ir_box_runs_within(&piece->type, &whole, offset, bytes, &piece->box, copy_run, &copy));
    }
    return ST_OK;
}

/* Each tensor by the first file that has a box of it. */
static st_status_t add_tensors(const loading_t *l, uint32_t part, safetensors_writer_t *writer) {
    const safetensors_source_t source = {read_whole, (void *)(uintptr_t)l};
    const safetensors_t *file = l->files[part];
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        uint32_t n;
        TRY(find_pieces(l, name, &n));
        if (l->pieces[0].part != part) continue;
        TRY(check_tiling(l, name, n));
        const ir_type_t type = l->pieces[0].type;
        TRY(safetensors_writer_add_source(writer, name, safetensors_from_ir(type.dtype), type.rank,
                                          type.dims, &source));
        for (size_t a = 0; a < safetensors_alias_count(file); a++)
            if (safetensors_alias_tensor(file, a) == safetensors_at(file, i))
                TRY(safetensors_writer_alias(writer, safetensors_alias_name(file, a), name));
    }
    return ST_OK;
}

st_status_t checkpoint_gather_model(const checkpoint_t *checkpoint, const char *path) {
    safetensors_writer_t *writer = NULL;
    loading_t l;
    st_status_t status;
    TRY_GOTO(open_loading(checkpoint, CHECKPOINT_MODEL, &l), fail);
    TRY_GOTO(safetensors_writer_create(&writer), fail);
    TRY_GOTO(safetensors_writer_add_metadata(writer, "format", "pt"), fail);
    for (uint32_t p = 0; p < checkpoint->n_parts; p++) TRY_GOTO(add_tensors(&l, p, writer), fail);
    status = safetensors_writer_commit(writer, path);
fail:
    safetensors_writer_destroy(writer);
    close_loading(&l);
    return status;
}

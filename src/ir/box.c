/* Boxes (box.h). */
#include "ir/box.h"

#include <string.h>

ir_box_t ir_box_whole(const ir_type_t *type) {
    ir_box_t box = {0};
    for (int32_t d = 0; d < type->rank; d++) box.extent[d] = type->dims[d];
    return box;
}

bool ir_box_is_whole(const ir_type_t *type, const ir_box_t *box) {
    const ir_box_t whole = ir_box_whole(type);
    return !box->none && memcmp(whole.begin, box->begin, sizeof whole.begin) == 0 &&
           memcmp(whole.extent, box->extent, sizeof whole.extent) == 0;
}

int64_t ir_box_elements(const ir_type_t *type, const ir_box_t *box) {
    int64_t n = box->none ? 0 : 1;
    for (int32_t d = 0; d < type->rank; d++) n *= box->extent[d];
    return n;
}

size_t ir_box_bytes(const ir_type_t *type, const ir_box_t *box) {
    return (size_t)ir_box_elements(type, box) * ir_dtype_bytes(type->dtype);
}

bool ir_box_common(const ir_type_t *type, const ir_box_t *a, const ir_box_t *b, ir_box_t *out_box) {
    ir_box_t box = {0};
    *out_box = box;
    if (a->none || b->none) return false;
    for (int32_t d = 0; d < type->rank; d++) {
        const int64_t a_end = a->begin[d] + a->extent[d], b_end = b->begin[d] + b->extent[d];
        box.begin[d] = a->begin[d] > b->begin[d] ? a->begin[d] : b->begin[d];
        box.extent[d] = (a_end < b_end ? a_end : b_end) - box.begin[d];
        if (box.extent[d] <= 0) return false;
    }
    *out_box = box;
    return true;
}

/* Bytes of one step along each dim of the box's dense tensor. */
static void pitches(const ir_type_t *type, const ir_box_t *box, size_t *out) {
    size_t pitch = ir_dtype_bytes(type->dtype);
    for (int32_t d = type->rank; d-- > 0; pitch *= (size_t)box->extent[d]) out[d] = pitch;
}

/* Everything behind the last dim that either box cuts lies together. */
st_status_t ir_box_runs(const ir_type_t *type, const ir_box_t *a, const ir_box_t *b,
                        ir_box_move_t move, void *context) {
    ir_box_t box;
    size_t in_a[IR_MAX_RANK] = {0}, in_b[IR_MAX_RANK] = {0}, run = ir_dtype_bytes(type->dtype);
    int64_t at[IR_MAX_RANK] = {0};
    int32_t cut = type->rank - 1; /* runs go along it */
    if (!ir_box_common(type, a, b, &box)) return ST_OK;
    pitches(type, a, in_a);
    pitches(type, b, in_b);
    for (; cut > 0 && box.extent[cut] == a->extent[cut] && box.extent[cut] == b->extent[cut]; cut--)
        run *= (size_t)box.extent[cut];
    if (cut >= 0) run *= (size_t)box.extent[cut];
    for (;;) {
        size_t a_at = 0, b_at = 0;
        for (int32_t d = 0; d <= cut; d++) {
            a_at += in_a[d] * (size_t)(box.begin[d] - a->begin[d] + at[d]);
            b_at += in_b[d] * (size_t)(box.begin[d] - b->begin[d] + at[d]);
        }
        TRY(move(context, a_at, b_at, run));
        int32_t d = cut - 1;
        while (d >= 0 && ++at[d] == box.extent[d]) at[d--] = 0;
        if (d < 0) return ST_OK;
    }
}

typedef struct within {
    size_t first, begin, end; /* where the rows, and what is asked for, lie */
    ir_box_move_t move;
    void *context;
} within_t;

static st_status_t clip(void *context, size_t in_a, size_t in_b, size_t bytes) {
    const within_t *w = context;
    size_t begin = w->first + in_a, end = begin + bytes;
    const size_t skipped = begin < w->begin ? w->begin - begin : 0;
    if (end > w->end) end = w->end;
    begin += skipped;
    return begin < end ? w->move(w->context, begin - w->begin, in_b + skipped, end - begin) : ST_OK;
}

/* Rows along dim 0 that the bytes lie in, and of them what they cut off. */
st_status_t ir_box_runs_within(const ir_type_t *type, const ir_box_t *a, size_t offset,
                               size_t bytes, const ir_box_t *b, ir_box_move_t move, void *context) {
    within_t w = {.begin = offset, .end = offset + bytes, .move = move, .context = context};
    ir_box_t rows = *a;
    if (bytes == 0 || ir_box_bytes(type, a) == 0) return ST_OK;
    if (type->rank > 0) {
        const size_t row = ir_box_bytes(type, a) / (size_t)a->extent[0];
        const size_t first = offset / row, past = (w.end + row - 1) / row;
        const size_t n = (size_t)a->extent[0];
        rows.begin[0] += (int64_t)first;
        rows.extent[0] = (int64_t)((past < n ? past : n) - first);
        w.first = first * row;
    }
    return ir_box_runs(type, &rows, b, clip, &w);
}

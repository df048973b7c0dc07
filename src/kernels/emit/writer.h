/* What the files that write CUDA C share: the text, and how a statement is written. */
#ifndef STATOR_KERNELS_EMIT_WRITER_H
#define STATOR_KERNELS_EMIT_WRITER_H

#include "base/vec.h"
#include "kernels/emit/schedule.h"

typedef struct text {
    char *data;
    size_t n, capacity;
    bool failed;
} text_t;

typedef struct writer {
    const emit_schedule_t *s;
    const nest_t *nest;
    const emit_kernel_t *k;
    text_t *out;
    bool *needed;             /* [stmts] of the kernel */
    bool *written;            /* [stmts] in scope at row level or above */
    uint8_t *stage;           /* [stmts] ROWS: row reductions before it */
    const char *index;        /* C type of positions */
    bool persistent;          /* ROWS: loads along a row are kept */
    struct emit_names *names; /* NULL: statements and tensors have their own numbers */
    uint64_t constant_bytes;  /* of tables in constant memory so far */
} writer_t;

/* Numbers by first use, so that kernels which differ in tensors and sizes alone have the same
 * text. */
typedef struct emit_names {
    uint32_t *stmt; /* [stmts] + 1; 0: none yet */
    uint32_t *slot; /* [tensors], in `own`; 0: none yet */
    uint32_t n_stmts;
    ST_VEC(int64_t) own; /* what the text reads of its kernel: vectors, tensors, sizes, places */
} emit_names_t;

void emit_put(writer_t *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline const nest_stmt_t *emit_stmt(const writer_t *w, nest_value_t v) {
    return &w->nest->stmts[v];
}
/* Name of a type in the source; NULL if it has none. */
const char *emit_tensor_type(ir_dtype_t dtype);
const char *emit_value_type(const writer_t *w, nest_value_t v);
/* Accumulator of a reduction, in registers and in the workspace. */
const char *emit_sum_type(const writer_t *w, nest_value_t v);
/* Does the value depend on the axis along which the kernel takes vectors? */
bool emit_along_vector(const writer_t *w, nest_value_t v);
/* A load along a row that stays in registers? */
bool emit_is_kept(const writer_t *w, nest_value_t v);
/* A uniform value that a kernel before this one made? */
bool emit_is_stored_uniform(const writer_t *w, nest_value_t v);
/* Number of a statement's variable. */
uint32_t emit_number(writer_t *w, nest_value_t v);
/* A number that differs between kernels of the same text, in the type of positions. */
void emit_own(writer_t *w, int64_t number);
/* Place in the workspace, of `type`. */
void emit_work(writer_t *w, const char *type, uint64_t offset);
/* Pointer to operand or result `tensor`, void. */
void emit_pointer(writer_t *w, uint32_t tensor);
/* Variable of a value at the element at hand. */
void emit_name(writer_t *w, nest_value_t v);
/* Element that an access reaches at the axes of `mask`. */
void emit_position(writer_t *w, const nest_access_t *a, uint32_t mask);
/* Axes of `mask` from the linear position `from`; the vector axis, if among them, in steps of
 * `vector`. */
void emit_axes(writer_t *w, uint32_t mask, const char *from);
/* Declares and computes a statement's variable. */
st_status_t emit_statement(writer_t *w, nest_value_t v) ST_WARN_UNUSED;
/* Statements of the slice whose axes are all in `mask` and which are not there yet, up to
 * `stage`. */
st_status_t emit_within(writer_t *w, uint32_t mask, uint8_t stage) ST_WARN_UNUSED;
void emit_store(writer_t *w, uint32_t store);

/* What the kernel at hand computes: marks the slice. */
void emit_find_slice(writer_t *w);
/* The points of a FLAT kernel from `n` on, of `limit` vectors. */
st_status_t emit_flat(writer_t *w, const char *limit) ST_WARN_UNUSED;

/* Kernels `first` and those joined to it, as one (together.c). */
st_status_t emit_together(writer_t *w, uint32_t first, uint32_t n) ST_WARN_UNUSED;

/* ---- reductions (reductions.c) ---- */

static inline int64_t emit_points(const writer_t *w, uint32_t mask) {
    return nest_points(&w->nest->domains[w->k->domain], mask);
}
/* What a reduction's kernel runs over. */
static inline nest_value_t emit_reduced(const writer_t *w, nest_value_t reduce) {
    return w->s->of[reduce];
}
/* Name of what joins two results. */
const char *emit_combiner(const writer_t *w, nest_value_t v);
/* a<v><element> = that joined with the argument, which may be constant along the vector. */
void emit_accumulate(writer_t *w, nest_value_t v, const char *element);
/* Pointer to a reduction's partial results. */
void emit_partial(writer_t *w, nest_value_t v);
/* The kernels of these shapes. */
st_status_t emit_columns(writer_t *w) ST_WARN_UNUSED;
st_status_t emit_lines(writer_t *w) ST_WARN_UNUSED;
st_status_t emit_finish(writer_t *w) ST_WARN_UNUSED;

#endif

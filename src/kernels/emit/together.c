/* FLAT kernels of a level as one, LINES kernels, and FINISH kernels: a block finds its tensors by
 * its number.
 *
 *   begin  [kernel]  first block of each        blocks 0 … 1 | 2 … 2049 | 2050 … 2561 | …
 *   own    [kernel]  tensors and sizes of the kernel's text, of FLAT ones the vectors first
 *
 * Kernels whose text differs in tensors and sizes alone, the updates of most parameters, share one.
 * Both tables are in constant memory, which all threads of a warp read at once, or in global memory
 * where that is used up.
 * Quadratic in kernels of different text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/emit/writer.h"

typedef struct member {
    const emit_kernel_t *k;
    uint32_t form;  /* number of its text */
    uint32_t n_own; /* numbers of the text, in its order */
    int64_t *own;   /* [n_own] */
} member_t;

typedef struct together {
    writer_t *w;
    st_arena_t arena;
    uint32_t n, n_forms, n_tensors;
    member_t *members;
    text_t *forms; /* [n_forms] */
} together_t;

static st_status_t write_text(writer_t *w) {
    if (w->k->shape == EMIT_LINES) return emit_lines(w);
    if (w->k->shape == EMIT_FINISH) return emit_finish(w);
    if (ST_VEC_PUSH(&w->names->own, emit_points(w, w->k->mask) / w->k->vector) != ST_OK)
        return st_no_memory(sizeof *w->names->own.data, "the source of a nest");
    return emit_flat(w, "own[0]");
}

/* The text of a member, written apart, and the numbers that it has of its own. */
static st_status_t write_member(together_t *t, member_t *m, text_t *out) {
    writer_t w = *t->w;
    const uint32_t n_stmts = w.nest->n_stmts + 1;
    emit_names_t names = {.stmt = st_arena_array(&t->arena, n_stmts, sizeof *names.stmt),
                          .slot = st_arena_array(&t->arena, t->n_tensors, sizeof *names.slot)};
    if (!names.stmt || !names.slot)
        return st_no_memory(n_stmts * sizeof *names.stmt, "the source of a nest");
    memset(names.stmt, 0, n_stmts * sizeof *names.stmt);
    memset(names.slot, 0, t->n_tensors * sizeof *names.slot);
    w.k = m->k;
    w.out = out;
    w.names = &names;
    emit_put(&w, "enum { V = %u };\n", m->k->vector);
    emit_find_slice(&w);
    st_status_t status = write_text(&w);
    m->own = st_arena_array(&t->arena, names.own.n + 1, sizeof *m->own);
    if (status == ST_OK && (out->failed || !m->own))
        status = st_no_memory(out->capacity, "the source of a nest");
    if (status == ST_OK) {
        m->n_own = (uint32_t)names.own.n;
        memcpy(m->own, names.own.data, m->n_own * sizeof *m->own);
    }
    ST_VEC_FREE(&names.own);
    return status;
}

static st_status_t find_forms(together_t *t) {
    for (uint32_t i = 0; i < t->n; i++) {
        text_t text = {0};
        st_status_t status = write_member(t, &t->members[i], &text);
        uint32_t f = 0;
        while (status == ST_OK && f < t->n_forms && strcmp(t->forms[f].data, text.data) != 0) f++;
        t->members[i].form = f;
        if (status == ST_OK && f == t->n_forms)
            t->forms[t->n_forms++] = text;
        else
            st_free(text.data);
        TRY(status);
    }
    return ST_OK;
}

/* The members form by form, in which order they have their blocks. */
static void sort(together_t *t) {
    for (uint32_t i = 1; i < t->n; i++) {
        const member_t m = t->members[i];
        uint32_t at = i;
        for (; at > 0 && t->members[at - 1].form > m.form; at--)
            t->members[at] = t->members[at - 1];
        t->members[at] = m;
    }
}

/* Where `begin` and `owns` are: constant memory, as long as a module's 64 KiB last. */
static const char *space_of(writer_t *w, uint32_t n, uint32_t width) {
    enum { CONSTANT_BYTES = 64 << 10 };
    const uint64_t bytes = (uint64_t)n * (sizeof(int32_t) + width * sizeof(int64_t));
    if (w->constant_bytes + bytes > CONSTANT_BYTES) return "__device__";
    w->constant_bytes += bytes;
    return "__constant__";
}

/* Places in the workspace may be beyond what positions are. */
static const char *own_type(const together_t *t) {
    return t->members[0].k->shape == EMIT_FLAT ? t->w->index : "long long";
}

static void put_tables(together_t *t) {
    writer_t *w = t->w;
    uint32_t width = 1;
    int64_t begin = 0;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->members[i].n_own > width) width = t->members[i].n_own;
    const char *space = space_of(w, t->n, width);
    emit_put(w, "static %s const int begin[] = {", space);
    for (uint32_t i = 0; i < t->n; i++) {
        emit_put(w, "%" PRId64 ",", begin);
        begin += t->members[i].k->blocks;
    }
    emit_put(w, "};\nstatic %s const %s owns[][%u] = {", space, own_type(t), width);
    for (uint32_t i = 0; i < t->n; i++) {
        emit_put(w, "{");
        for (uint32_t j = 0; j < t->members[i].n_own; j++)
            emit_put(w, "%" PRId64 ",", t->members[i].own[j]);
        emit_put(w, "},");
    }
    emit_put(w, "};\n");
}

static void put_body(together_t *t) {
    writer_t *w = t->w;
    uint32_t step = 1;
    while (2 * step < t->n) step *= 2;
    put_tables(t);
    emit_put(w, "int m = 0;\n");
    for (; step; step /= 2)
        emit_put(w, "if (m + %u < %u && (int)blockIdx.x >= begin[m + %u]) m += %u;\n", step, t->n,
                 step, step);
    emit_put(w, "const %s *own = owns[m];\n", own_type(t));
    if (t->members[0].k->shape == EMIT_FLAT)
        emit_put(w, "const %s n = (%s)((int)blockIdx.x - begin[m]) * %d + threadIdx.x;\n", w->index,
                 w->index, EMIT_BLOCK);
    else
        emit_put(w, "const unsigned block = blockIdx.x - (unsigned)begin[m];\n");
    for (uint32_t f = 0, end = 0; f < t->n_forms; f++) {
        while (end < t->n && t->members[end].form == f) end++;
        if (f + 1 < t->n_forms) emit_put(w, "if (m < %u) ", end);
        emit_put(w, "{\n%s%s}\n%s", t->forms[f].data, f + 1 < t->n_forms ? "return;\n" : "", "");
    }
}

st_status_t emit_together(writer_t *w, uint32_t first, uint32_t n) {
    together_t t = {.w = w, .n = n, .n_tensors = w->nest->n_operands + w->nest->n_results};
    st_status_t status = ST_OK;
    t.members = st_arena_array(&t.arena, n, sizeof *t.members);
    t.forms = st_arena_array(&t.arena, n, sizeof *t.forms);
    if (!t.members || !t.forms)
        TRY_GOTO(st_no_memory(n * sizeof *t.members, "the source of a nest"), done);
    for (uint32_t i = 0; i < n; i++) t.members[i] = (member_t){.k = &w->s->kernels[first + i]};
    TRY_GOTO(find_forms(&t), done);
    sort(&t);
    put_body(&t);
done:
    for (uint32_t f = 0; f < t.n_forms; f++) st_free(t.forms[f].data);
    st_arena_clear(&t.arena);
    return status;
}

/* The text form of nests (nest_text.h). */
#include "nest_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/op.h"

typedef struct out {
    char *buffer;
    size_t capacity, used;
} out_t;

static void ST_PRINTF(2, 3) put(out_t *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    size_t room = out->used < out->capacity ? out->capacity - out->used : 0;
    int n = vsnprintf(room ? out->buffer + out->used : NULL, room, format, args);
    va_end(args);
    if (n > 0) out->used += (size_t)n;
}

static void put_access(out_t *out, const nest_access_t *access) {
    const char *plus = "";
    put(out, "[");
    for (uint32_t i = 0; i < NEST_MAX_AXES; i++) {
        if (!access->stride[i]) continue;
        if (access->stride[i] == 1)
            put(out, "%si%u", plus, i);
        else
            put(out, "%s%lld i%u", plus, (long long)access->stride[i], i);
        plus = " + ";
    }
    if (access->index != NEST_NONE) {
        put(out, "%s%lld v%u", plus, (long long)access->index_stride, access->index);
        plus = " + ";
    }
    if (access->offset || !*plus) put(out, "%s%lld", plus, (long long)access->offset);
    put(out, "]");
}

static void put_mask(out_t *out, uint32_t mask) {
    put(out, "{");
    for (uint32_t i = 0, n = 0; i < NEST_MAX_AXES; i++)
        if (mask >> i & 1) put(out, "%si%u", n++ ? " " : "", i);
    put(out, "}");
}

static void put_stmt(out_t *out, const nest_stmt_t *s) {
    switch (s->kind) {
        case NEST_LOAD:
            if (s->access.tensor == NEST_NONE)
                put(out, "data");
            else
                put(out, "load %u", s->access.tensor);
            put_access(out, &s->access);
            break;
        case NEST_CONSTANT:
            put(out, "%.9g", s->real);
            break;
        case NEST_IOTA:
            put(out, "iota");
            put_access(out, &s->access);
            break;
        case NEST_RANDOM:
            put(out, "random %lld", (long long)s->integer);
            put_access(out, &s->access);
            break;
        default:
            put(out, "%s%s", ir_op_def(s->op)->name, s->flag ? ".tanh" : "");
    }
    for (uint32_t i = 0; i < s->n_args; i++) put(out, " v%u", s->args[i]);
    if (s->over) {
        put(out, " over ");
        put_mask(out, s->over);
    }
}

size_t nest_text(const nest_t *nest, char *buffer, size_t capacity) {
    out_t out = {buffer, capacity, 0};
    for (uint32_t d = 0; d < nest->n_domains; d++) {
        if (!nest->domains[d].n_axes) continue;
        put(&out, "domain %u:", d);
        for (uint32_t i = 0; i < nest->domains[d].n_axes; i++)
            put(&out, " i%u=%lld", i, (long long)nest->domains[d].axes[i].extent);
        put(&out, "\n");
    }
    for (uint32_t i = 0; i < nest->n_stmts; i++) {
        const nest_stmt_t *s = &nest->stmts[i];
        put(&out, "v%u = ", i);
        put_stmt(&out, s);
        put(&out, " : %s", ir_dtype_text(s->dtype));
        if (s->mask) {
            put(&out, " ");
            if (nest->n_domains > 1) put(&out, "%u", s->domain);
            put_mask(&out, s->mask);
        }
        put(&out, "\n");
    }
    for (uint32_t i = 0; i < nest->n_stores; i++) {
        put(&out, "store %u", nest->stores[i].access.tensor);
        put_access(&out, &nest->stores[i].access);
        put(&out, " = v%u\n", nest->stores[i].value);
    }
    return out.used;
}

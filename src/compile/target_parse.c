/* Reading target descriptions (target.h): one table of statements, each a function of its words.
 * Linear. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/vec.h"
#include "base/words.h"
#include "compile/target.h"
#include "kernels/table.h"

enum { MOST_WORDS = 160, LONGEST_LINE = 4096 };

typedef struct reader {
    const char *path;
    target_t *target;
    uint32_t line;
    char text[LONGEST_LINE]; /* the line, cut into words */
    uint32_t n_words;
    char *words[MOST_WORDS];
    target_kernel_t *kernel; /* the newest */
    ST_VEC(target_bandwidth_t) bandwidths;
    ST_VEC(target_threads_t) threads;
    ST_VEC(target_rate_t) rates;
    ST_VEC(target_kernel_t) kernels;
} reader_t;

#define BAD(r, ...) complain((r), FAIL(ST_PARSE, __VA_ARGS__))

static st_status_t complain(const reader_t *r, st_status_t status) {
    return st_error_context(status, "%s:%u", r->path, r->line);
}

/* ---- words ---- */

static st_status_t number(const reader_t *r, const char *what, const char *text, double *out) {
    if (st_double_parse(text, strlen(text), out) && isfinite(*out) && *out >= 0) return ST_OK;
    return BAD(r, "%s is '%s': a number ≥ 0 is needed", what, text);
}
static st_status_t positive(const reader_t *r, const char *what, const char *text, double *out) {
    if (st_double_parse(text, strlen(text), out) && isfinite(*out) && *out > 0) return ST_OK;
    return BAD(r, "%s is '%s': a number above 0 is needed", what, text);
}
static st_status_t size(const reader_t *r, const char *what, const char *text, uint64_t *out) {
    if (st_size_parse(text, out)) return ST_OK;
    return BAD(r, "%s is '%s': a size such as 40GiB is needed", what, text);
}
static st_status_t dtype(const reader_t *r, const char *text, ir_dtype_t *out) {
    *out = ir_dtype_parse(text);
    return *out == IR_DTYPE_NONE ? BAD(r, "'%s' is no element type", text) : ST_OK;
}
static st_status_t op_named(const reader_t *r, const char *text, const ir_op_def_t **out) {
    *out = ir_op_def_by_name(text);
    return *out ? ST_OK : BAD(r, "there is no op '%s'", text);
}
static st_status_t keep(const reader_t *r, const char *text, const char **out) {
    *out = st_arena_strdup(&r->target->arena, text);
    return *out ? ST_OK : st_no_memory(strlen(text), "a target description");
}
/* "key=value": the value, or NULL if the word has another key. */
static const char *value_of(const char *word, const char *key) {
    size_t n = strlen(key);
    return strncmp(word, key, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

/* ---- statements ---- */

static st_status_t read_name(reader_t *r) {
    return keep(r, r->words[1], &r->target->machine.name);
}
/* What plans can be made for: those that have kernels. */
static st_status_t read_device(reader_t *r) {
    const char *name = r->words[1];
    if (strcmp(name, "cpu") != 0 && strcmp(name, "cuda") != 0)
        return BAD(r, "device is '%s': cpu or cuda is needed", name);
    return keep(r, r->words[1], &r->target->machine.device);
}
static st_status_t read_cores(reader_t *r) {
    int64_t n;
    if (!st_int_parse(r->words[1], strlen(r->words[1]), &n) || n < 1 || n > 1 << 20)
        return BAD(r, "cores is '%s': a whole number above 0 is needed", r->words[1]);
    r->target->machine.n_cores = (uint32_t)n;
    return ST_OK;
}
static st_status_t read_clock(reader_t *r) {
    return positive(r, "clock_ghz", r->words[1], &r->target->machine.clock_ghz);
}
static st_status_t read_memory(reader_t *r) {
    return size(r, "memory", r->words[1], &r->target->machine.memory_bytes);
}
static st_status_t read_caches(reader_t *r) {
    for (uint32_t i = 0; i < IR_CACHES; i++)
        TRY(size(r, "a cache", r->words[1 + i], &r->target->machine.cache_bytes[i]));
    return ST_OK;
}
static st_status_t read_memory_gbps(reader_t *r) {
    return positive(r, "memory_gbps", r->words[1], &r->target->machine.memory_gbps);
}
static st_status_t read_launch(reader_t *r) {
    return number(r, "launch_us", r->words[1], &r->target->machine.launch_us);
}
static st_status_t read_link_us(reader_t *r) {
    return number(r, "link_us", r->words[1], &r->target->machine.link_us);
}
static st_status_t read_link_gbps(reader_t *r) {
    return positive(r, "link_gbps", r->words[1], &r->target->machine.link_gbps);
}
static st_status_t read_host_ranks(reader_t *r) {
    double n;
    TRY(positive(r, "host_ranks", r->words[1], &n));
    if (n != (uint32_t)n)
        return BAD(r, "host_ranks is '%s': a whole number is needed", r->words[1]);
    r->target->machine.host_ranks = (uint32_t)n;
    return ST_OK;
}
static st_status_t read_host_link_us(reader_t *r) {
    return number(r, "host_link_us", r->words[1], &r->target->machine.host_link_us);
}
static st_status_t read_host_link_gbps(reader_t *r) {
    return positive(r, "host_link_gbps", r->words[1], &r->target->machine.host_link_gbps);
}
static st_status_t read_link_overlap(reader_t *r) {
    TRY(number(r, "link_overlap", r->words[1], &r->target->machine.link_overlap));
    if (r->target->machine.link_overlap > 1)
        return BAD(r, "link_overlap is '%s': a share from 0 to 1 is needed", r->words[1]);
    return ST_OK;
}

static st_status_t read_bandwidth(reader_t *r) {
    uint64_t bytes;
    target_bandwidth_t row;
    TRY(size(r, "bandwidth's size", r->words[1], &bytes));
    TRY(positive(r, "bandwidth", r->words[2], &row.gbps));
    row.bytes = (double)bytes;
    if (!bytes || (r->bandwidths.n && r->bandwidths.data[r->bandwidths.n - 1].bytes >= row.bytes))
        return BAD(r, "bandwidth's size %s is not above the one before", r->words[1]);
    return ST_VEC_PUSH(&r->bandwidths, row);
}

static st_status_t read_gflops(reader_t *r, const char *what, double *by_dtype) {
    ir_dtype_t type;
    TRY(dtype(r, r->words[1], &type));
    if (by_dtype[type] > 0) return BAD(r, "%s %s is given twice", what, r->words[1]);
    return positive(r, what, r->words[2], &by_dtype[type]);
}
static st_status_t read_passes(reader_t *r) {
    return read_gflops(r, "passes", r->target->pass_gflops);
}
static st_status_t read_products(reader_t *r) {
    return read_gflops(r, "products", r->target->product_gflops);
}

static st_status_t read_threads(reader_t *r) {
    target_threads_t row = {0};
    TRY(positive(r, "threads", r->words[1], &row.n));
    for (uint32_t i = 2; i < r->n_words; i++) {
        const char *passes = value_of(r->words[i], "passes");
        const char *products = value_of(r->words[i], "products");
        if (passes)
            TRY(positive(r, "passes", passes, &row.passes));
        else if (products)
            TRY(positive(r, "products", products, &row.products));
        else
            return BAD(r, "'%s' is neither passes= nor products=", r->words[i]);
    }
    if (row.n <= 1 || row.n != floor(row.n) || !(row.passes > 0) || !(row.products > 0))
        return BAD(r, "threads needs a whole number above 1, passes= and products=");
    if (r->threads.n && r->threads.data[r->threads.n - 1].n >= row.n)
        return BAD(r, "threads %s is not above the one before", r->words[1]);
    return ST_VEC_PUSH(&r->threads, row);
}

/* rate OP[.VARIANT] DTYPE size=… gflops=… | ns=… */
static st_status_t read_rate(reader_t *r) {
    target_rate_t row = {.variant = ""};
    const ir_op_def_t *def;
    double gflops;
    char *dot = strchr(r->words[1], '.');
    if (dot) {
        *dot = '\0';
        TRY(keep(r, dot + 1, &row.variant));
    }
    TRY(op_named(r, r->words[1], &def));
    TRY(dtype(r, r->words[2], &row.dtype));
    row.op = def->op;
    for (uint32_t i = 3; i < r->n_words; i++) {
        const char *equals = strchr(r->words[i], '=');
        size_t key = equals ? (size_t)(equals - r->words[i]) : 0;
        int64_t *dim = equals ? work_dim_of(&row.dims, r->words[i], key) : NULL;
        const char *value = equals ? equals + 1 : "";
        uint64_t bytes = 0;
        if (value_of(r->words[i], "gflops")) {
            TRY(positive(r, "gflops", value, &gflops));
            row.ns = 2 / gflops; /* a unit is a multiply-add */
        } else if (value_of(r->words[i], "ns")) {
            TRY(positive(r, "ns", value, &row.ns));
        } else if (value_of(r->words[i], "bytes")) {
            TRY(size(r, "bytes", value, &bytes));
            row.bytes = (double)bytes;
        } else if (!dim) {
            return BAD(r, "'%s': gflops=, ns=, bytes= or one of the op's sizes is needed",
                       r->words[i]);
        } else if (!st_int_parse(value, strlen(value), dim) || *dim < 1) {
            return BAD(r, "'%s': a whole number above 0 is needed", r->words[i]);
        }
    }
    if (!(row.ns > 0)) return BAD(r, "a rate needs gflops= or ns=");
    row.log_ns = log(row.ns);
    target_place(work_kind_of(row.op), &row.dims, row.place);
    return ST_VEC_PUSH(&r->rates, row);
}

static st_status_t read_tile(reader_t *r) {
    const ir_op_def_t *def;
    ir_dtype_t type;
    TRY(op_named(r, r->words[1], &def));
    TRY(dtype(r, r->words[2], &type));
    return positive(r, "tile", r->words[3], &r->target->tile_ns[def->op][type]);
}

static st_status_t read_edge(reader_t *r) {
    ir_dtype_t type;
    TRY(dtype(r, r->words[1], &type));
    return positive(r, "edge", r->words[2], &r->target->edge_ns[type]);
}
static st_status_t read_nest_us(reader_t *r) {
    return number(r, "nest_us", r->words[1], &r->target->nest_us);
}
/* nest SHAPE us=… gbps=… */
static st_status_t read_nest(reader_t *r) {
    int shape = 0;
    while (shape < KERN_SHAPES && strcmp(kern_shape_name((kern_shape_t)shape), r->words[1]) != 0)
        shape++;
    if (shape == KERN_SHAPES)
        return BAD(r,
                   "'%s' is no shape of a nest's kernels: uniform, flat, rows, rows.sums, columns, "
                   "columns.sums, lines or finish is needed",
                   r->words[1]);
    target_nest_t *row = &r->target->nests[shape];
    if (row->gbps > 0) return BAD(r, "nest %s is given twice", r->words[1]);
    for (uint32_t i = 2; i < r->n_words; i++) {
        const char *us = value_of(r->words[i], "us"), *gbps = value_of(r->words[i], "gbps");
        if (us)
            TRY(number(r, "us", us, &row->us));
        else if (gbps)
            TRY(positive(r, "gbps", gbps, &row->gbps));
        else
            return BAD(r, "'%s' is neither us= nor gbps=", r->words[i]);
    }
    return row->gbps > 0 ? ST_OK : BAD(r, "nest %s needs us= and gbps=", r->words[1]);
}

/* ---- kernels ---- */

static st_status_t read_kernel(reader_t *r) {
    target_kernel_t row = {.launches = 1};
    TRY(keep(r, r->words[1], &row.name));
    TRY(ST_VEC_PUSH(&r->kernels, row));
    r->kernel = &r->kernels.data[r->kernels.n - 1];
    return ST_OK;
}
static st_status_t read_op_list(reader_t *r, bool *ops) {
    for (uint32_t i = 1; i < r->n_words; i++) {
        const ir_op_def_t *def;
        if (strcmp(r->words[i], "elementwise") == 0) {
            for (int op = 1; op < IR_OP_END; op++)
                ops[op] |= ir_op_def((ir_op_t)op) && ir_op_def((ir_op_t)op)->flags & IR_ELEMENTWISE;
            continue;
        }
        TRY(op_named(r, r->words[i], &def));
        ops[def->op] = true;
    }
    return ST_OK;
}
static st_status_t read_ops(reader_t *r) {
    return read_op_list(r, r->kernel->ops);
}
static st_status_t read_epilogues(reader_t *r) {
    return read_op_list(r, r->kernel->epilogues);
}
static st_status_t read_dtypes(reader_t *r) {
    for (uint32_t i = 1; i < r->n_words; i++) {
        ir_dtype_t type;
        TRY(dtype(r, r->words[i], &type));
        r->kernel->dtypes |= 1u << type;
    }
    return ST_OK;
}
static st_status_t read_launches(reader_t *r) {
    int64_t n;
    if (!st_int_parse(r->words[1], strlen(r->words[1]), &n) || n < 1 || n > 1000)
        return BAD(r, "launches is '%s': a whole number from 1 to 1000 is needed", r->words[1]);
    r->kernel->launches = (uint32_t)n;
    return ST_OK;
}

static st_status_t read_kernel_gflops(reader_t *r) {
    return positive(r, "gflops", r->words[1], &r->kernel->gflops);
}

/* ---- the table ---- */

enum { ONCE = 1, REQUIRED = 2, OF_KERNEL = 4 };

typedef struct statement {
    const char *key;
    uint32_t min_words, max_words; /* behind the key */
    int flags;
    st_status_t (*read)(reader_t *r);
} statement_t;

/* clang-format off */
static const statement_t statements[] = {
    {"target", 1, 1, ONCE | REQUIRED, read_name},
    {"device", 1, 1, ONCE | REQUIRED, read_device},
    {"cores", 1, 1, ONCE | REQUIRED, read_cores},
    {"clock_ghz", 1, 1, ONCE | REQUIRED, read_clock},
    {"memory", 1, 1, ONCE | REQUIRED, read_memory},
    {"caches", IR_CACHES, IR_CACHES, ONCE | REQUIRED, read_caches},
    {"memory_gbps", 1, 1, ONCE | REQUIRED, read_memory_gbps},
    {"launch_us", 1, 1, ONCE | REQUIRED, read_launch},
    {"link_us", 1, 1, ONCE | REQUIRED, read_link_us},
    {"link_gbps", 1, 1, ONCE | REQUIRED, read_link_gbps},
    {"link_overlap", 1, 1, ONCE, read_link_overlap},
    {"host_ranks", 1, 1, ONCE, read_host_ranks},
    {"host_link_us", 1, 1, ONCE, read_host_link_us},
    {"host_link_gbps", 1, 1, ONCE, read_host_link_gbps},
    {"bandwidth", 2, 2, REQUIRED, read_bandwidth},
    {"passes", 2, 2, REQUIRED, read_passes},
    {"products", 2, 2, REQUIRED, read_products},
    {"threads", 3, 3, 0, read_threads},
    {"rate", 3, MOST_WORDS, 0, read_rate},
    {"tile", 3, 3, 0, read_tile},
    {"edge", 2, 2, 0, read_edge},
    {"nest_us", 1, 1, ONCE, read_nest_us},
    {"nest", 3, 3, 0, read_nest},
    {"kernel", 1, 1, 0, read_kernel},
    {"ops", 1, MOST_WORDS, OF_KERNEL, read_ops},
    {"dtypes", 1, MOST_WORDS, OF_KERNEL, read_dtypes},
    {"launches", 1, 1, OF_KERNEL, read_launches},
    {"gflops", 1, 1, OF_KERNEL, read_kernel_gflops},
    {"epilogues", 1, MOST_WORDS, OF_KERNEL, read_epilogues},
};
/* clang-format on */
enum { N_STATEMENTS = sizeof statements / sizeof statements[0] };

static st_status_t unknown(const reader_t *r) {
    const char *words[N_STATEMENTS];
    for (size_t i = 0; i < N_STATEMENTS; i++) words[i] = statements[i].key;
    const char *nearest = st_nearest(r->words[0], N_STATEMENTS, words);
    return BAD(r, "'%s' is not known%s%s%s", r->words[0], nearest ? ": did you mean '" : "",
               nearest ? nearest : "", nearest ? "'?" : "");
}

static st_status_t cut_line(reader_t *r, const char *line, size_t bytes) {
    const char *comment = memchr(line, '#', bytes);
    if (comment) bytes = (size_t)(comment - line);
    while (bytes && strchr(" \t\r", line[bytes - 1])) bytes--;
    if (bytes >= sizeof r->text || memchr(line, '\0', bytes))
        return BAD(r, "a line of more than %d bytes, or with a NUL byte", LONGEST_LINE - 1);
    memcpy(r->text, line, bytes);
    r->text[bytes] = '\0';
    r->n_words = 0;
    char *state = NULL;
    for (char *w = strtok_r(r->text, " \t", &state); w; w = strtok_r(NULL, " \t", &state)) {
        if (r->n_words == MOST_WORDS) return BAD(r, "more than %d words", MOST_WORDS);
        r->words[r->n_words++] = w;
    }
    return ST_OK;
}

static st_status_t read_line(reader_t *r, uint32_t *seen) {
    size_t s = 0;
    while (s < N_STATEMENTS && strcmp(statements[s].key, r->words[0]) != 0) s++;
    if (s == N_STATEMENTS) return unknown(r);
    const statement_t *row = &statements[s];
    uint32_t n = r->n_words - 1;
    if (row->flags & ONCE && seen[s])
        return BAD(r, "'%s' is given twice, first in line %u", row->key, seen[s]);
    if (n < row->min_words || n > row->max_words)
        return BAD(r, "'%s' takes %u%s value%s, %u given", row->key, row->min_words,
                   row->max_words > row->min_words ? " or more" : "",
                   row->max_words == 1 ? "" : "s", n);
    if (row->flags & OF_KERNEL && !r->kernel)
        return BAD(r, "'%s' says something of a kernel, and none stands before it", row->key);
    seen[s] = r->line;
    return row->read(r);
}

static st_status_t read_lines(reader_t *r, const char *text, size_t bytes) {
    uint32_t seen[N_STATEMENTS] = {0};
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        r->line++;
        TRY(cut_line(r, at, (size_t)(stop - at)));
        if (r->n_words) TRY(read_line(r, seen));
        at = stop + (stop < end);
    }
    for (size_t s = 0; s < N_STATEMENTS; s++)
        if (statements[s].flags & REQUIRED && !seen[s])
            return BAD(r, "'%s' is missing", statements[s].key);
    return ST_OK;
}

/* ---- the whole ---- */

static int by_op(const void *a, const void *b) {
    const target_rate_t *x = a, *y = b;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    int variant = strcmp(x->variant, y->variant);
    if (variant) return variant;
    if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static st_status_t take(const reader_t *r, const void *data, size_t n, size_t each, void *out,
                        uint32_t *out_n) {
    void *copy = st_arena_alloc(&r->target->arena, n * each);
    if (!copy) return st_no_memory(n * each, "a target description");
    if (n) memcpy(copy, data, n * each);
    memcpy(out, &copy, sizeof copy);
    *out_n = (uint32_t)n;
    return ST_OK;
}

/* On "cpu" the kernels are those of the build; on "cuda" those of the module, each for its ops. */
static st_status_t check_kernels(const reader_t *r) {
    const char *device = r->target->machine.device;
    for (size_t i = 0; i < r->kernels.n; i++) {
        const target_kernel_t *k = &r->kernels.data[i];
        if (strcmp(device, "cpu") == 0)
            return BAD(r, "kernel '%s': device cpu has the kernels of the build, none are listed",
                       k->name);
        for (int op = 1; op < IR_OP_END && strcmp(device, "cuda") == 0; op++)
            if (k->ops[op] && !kern_known_on_gpu(k->name, (ir_op_t)op))
                return BAD(r, "kernel '%s': device cuda has none of this name for op %s", k->name,
                           ir_op_def((ir_op_t)op)->name);
    }
    return ST_OK;
}

static st_status_t finish(reader_t *r) {
    target_t *t = r->target;
    if (!(t->pass_gflops[IR_F32] > 0) || !(t->product_gflops[IR_F32] > 0))
        return BAD(r, "'passes f32' and 'products f32' are needed: other types stand back to them");
    TRY(check_kernels(r));
    if (r->rates.n) qsort(r->rates.data, r->rates.n, sizeof *r->rates.data, by_op);
    TRY(take(r, r->bandwidths.data, r->bandwidths.n, sizeof *t->bandwidths, &t->bandwidths,
             &t->n_bandwidths));
    TRY(take(r, r->threads.data, r->threads.n, sizeof *t->threads, &t->threads, &t->n_threads));
    TRY(take(r, r->rates.data, r->rates.n, sizeof *t->rates, &t->rates, &t->n_rates));
    TRY(take(r, r->kernels.data, r->kernels.n, sizeof *t->kernels, &t->kernels, &t->n_kernels));
    uint32_t at = 0;
    for (int op = 0; op <= IR_OP_END; op++) {
        while (at < t->n_rates && (int)t->rates[at].op < op) at++;
        t->first_rate[op] = at;
    }
    for (int shape = 0; shape < KERN_SHAPES; shape++)
        if (!(t->nests[shape].gbps > 0))
            t->nests[shape] =
                (target_nest_t){t->machine.launch_us, t->bandwidths[t->n_bandwidths - 1].gbps};
    t->machine.n_threads = t->machine.n_ranks = 1;
    if (t->machine.host_ranks && !(t->machine.host_link_gbps > 0))
        return BAD(r, "'host_ranks' needs 'host_link_us' and 'host_link_gbps'");
    if (t->machine.link_overlap < 0) /* threads of a processor have no engine beside them */
        t->machine.link_overlap = strcmp(t->machine.device, "cpu") == 0 ? 0 : 1;
    t->machine.mesh = ir_mesh_of_ranks(1);
    return ST_OK;
}

st_status_t target_parse(const char *path, const char *text, size_t bytes, target_t **out_target) {
    *out_target = NULL;
    reader_t *r = st_calloc(1, sizeof *r);
    target_t *target = st_calloc(1, sizeof *target);
    st_status_t status = r && target ? ST_OK : st_no_memory(sizeof *target, "a target");
    if (status == ST_OK) {
        r->path = path;
        r->target = target;
        target->machine.link_overlap = -1;
        status = read_lines(r, text, bytes);
        if (status == ST_OK) status = finish(r);
        if (status == ST_OK) {
            target->text = st_arena_copy(&target->arena, text, bytes);
            target->text_bytes = bytes;
            if (!target->text) status = st_no_memory(bytes, "a target description");
        }
        ST_VEC_FREE(&r->bandwidths);
        ST_VEC_FREE(&r->threads);
        ST_VEC_FREE(&r->rates);
        ST_VEC_FREE(&r->kernels);
    }
    st_free(r);
    if (status == ST_OK)
        *out_target = target;
    else
        target_destroy(target);
    return status;
}

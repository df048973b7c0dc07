#include "comm/collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/sum.h"
#include "ir/convert.h"

enum { MAX_RANKS = 16, MAX_BUFFERS = 64 };

typedef struct run {
    comm_t *comm;
    int rank, size;
    unsigned seed;
    ir_dtype_t dtype;
    size_t bytes;                       /* of an element */
    const collectives_memory_t *memory; /* NULL: the host's */
    int n_buffers;
    void *buffers[MAX_BUFFERS];
} run_t;

static void nap(run_t *run) {
    if (rand_r(&run->seed) % 3 == 0) usleep((unsigned)rand_r(&run->seed) % 300);
}

/* Fractions, so that the order of addition shows in the bits; small whole numbers for integers. */
static double element(int rank, int key, int64_t i) {
    return 1.0 / (double)(1 + ((i * 7 + rank * 13 + key * 3) % 1009)) - 0.01 * rank + key;
}

static void *room(run_t *run, int64_t elements) {
    const size_t bytes = ((size_t)elements + 1) * run->bytes;
    void *made = run->memory ? run->memory->alloc(run->memory->context, bytes) : calloc(1, bytes);
    if (!made || run->n_buffers == MAX_BUFFERS) abort();
    run->buffers[run->n_buffers++] = made;
    return made;
}

/* Elements 0 … of rank's buffer of this key. */
static void *filled(run_t *run, int rank, int key, int64_t elements) {
    void *made = room(run, elements);
    for (int64_t i = 0; i < elements; i++)
        ir_element_store(run->dtype, made, (size_t)i, element(rank, key, i));
    return made;
}

static void drop(run_t *run, int n) {
    for (; n; n--) {
        void *buffer = run->buffers[--run->n_buffers];
        if (run->memory)
            (run->memory->free)(run->memory->context, buffer);
        else
            free(buffer);
    }
}

static void release(run_t *run) {
    drop(run, run->n_buffers);
}

static st_status_t done(const run_t *run, comm_t *comm, uint32_t ticket) {
    TRY(comm_wait(comm, ticket));
    return run->memory ? run->memory->settle(run->memory->context) : ST_OK;
}

/* What the sum over ranks of filled() has to be, bit for bit: one after the other, in the type's
 * own arithmetic, small floats in float. */
static void *summed(run_t *run, int key, int64_t elements) {
    char *sum = room(run, elements);
    for (int64_t i = 0; i < elements; i++) {
        float f32 = 0;
        double f64 = 0;
        int64_t whole = 0;
        for (int r = 0; r < run->size; r++) {
            uint64_t stored;
            ir_element_store(run->dtype, &stored, 0, element(r, key, i));
            double x = ir_element_load(run->dtype, &stored, 0);
            f32 = r ? f32 + (float)x : (float)x;
            f64 = r ? f64 + x : x;
            whole += (int64_t)x;
        }
        double value = run->dtype == IR_F64            ? f64
                       : ir_dtype_is_float(run->dtype) ? (double)f32
                                                       : (double)whole;
        ir_element_store(run->dtype, sum, (size_t)i, value);
    }
    return sum;
}

static st_status_t check(const run_t *run, const char *what, const void *got, const void *want,
                         int64_t elements) {
    for (int64_t i = 0; i < elements; i++)
        if (memcmp((const char *)got + (size_t)i * run->bytes,
                   (const char *)want + (size_t)i * run->bytes, run->bytes) != 0)
            return FAIL(ST_INTERNAL, "%s of %s, rank %d of %d: element %lld is %g, not %g", what,
                        ir_dtype_text(run->dtype), run->rank, run->size, (long long)i,
                        ir_element_load(run->dtype, got, (size_t)i),
                        ir_element_load(run->dtype, want, (size_t)i));
    return ST_OK;
}

/* The part of `whole`, cut as the segment says, that rank r has. */
static void *part_of(run_t *run, const comm_segment_t *cut, int r, const void *whole) {
    char *part = room(run, cut->outer * cut->parts[r]), *to = part;
    const char *from = whole;
    for (int64_t o = 0; o < cut->outer; o++)
        for (int q = 0; q < run->size; q++) {
            size_t bytes = (size_t)cut->parts[q] * run->bytes;
            if (q == r) memcpy(to, from, bytes), to += bytes;
            from += bytes;
        }
    return part;
}

static int64_t block_of(const run_t *run, const int64_t *parts) {
    int64_t block = 0;
    for (int r = 0; r < run->size; r++) block += parts[r];
    return block;
}

/* What a device's communicator lays parts out in. */
static void *stage(run_t *run, int64_t outer, int64_t block) {
    return comm_on_device(run->comm) && outer != 1 ? room(run, outer * block) : NULL;
}

/* ---- kinds ---- */

static st_status_t sums(run_t *run) {
    if (!comm_sum_supported(run->dtype)) return ST_OK;
    int64_t lengths[3] = {40001, 0, 129};
    void *data[3];
    for (int s = 0; s < 3; s++) data[s] = filled(run, run->rank, s, lengths[s]);
    TRY(comm_all_reduce_start(run->comm, 3, run->dtype, 3, data, lengths));
    nap(run);
    int64_t uneven[MAX_RANKS], even[MAX_RANKS];
    for (int r = 0; r < run->size; r++) {
        uneven[r] = r % 3 * 5; /* rank 0 has nothing */
        even[r] = 4001;
    }
    comm_segment_t cuts[3] = {
        {.outer = 7, .parts = uneven}, {.outer = 1, .parts = even}, {.outer = 0, .parts = even}};
    for (int s = 0; s < 3; s++) {
        cuts[s].in = filled(run, run->rank, 5 + s, cuts[s].outer * block_of(run, cuts[s].parts));
        cuts[s].out = room(run, cuts[s].outer * cuts[s].parts[run->rank]);
        cuts[s].stage = stage(run, cuts[s].outer, block_of(run, cuts[s].parts));
    }
    /* the second in place */
    cuts[1].out = (char *)(uintptr_t)cuts[1].in + (size_t)run->rank * 4001 * run->bytes;
    TRY(comm_reduce_scatter_start(run->comm, 1, run->dtype, 3, cuts));
    nap(run);
    TRY(done(run, run->comm, 3));
    TRY(done(run, run->comm, 1));
    for (int s = 0; s < 3; s++)
        TRY(check(run, "all-reduce", data[s], summed(run, s, lengths[s]), lengths[s]));
    for (int s = 0; s < 3; s++) {
        void *whole = summed(run, 5 + s, cuts[s].outer * block_of(run, cuts[s].parts));
        TRY(check(run, "reduce-scatter", cuts[s].out, part_of(run, &cuts[s], run->rank, whole),
                  cuts[s].outer * cuts[s].parts[run->rank]));
    }
    return ST_OK;
}

static st_status_t gathers(run_t *run) {
    int64_t uneven[MAX_RANKS], last[MAX_RANKS] = {0};
    for (int r = 0; r < run->size; r++) uneven[r] = r % 3 * 5;
    last[run->size - 1] = 1013;
    comm_segment_t cuts[2] = {{.outer = 3, .parts = uneven}, {.outer = 1, .parts = last}};
    void *whole[2];
    for (int s = 0; s < 2; s++) {
        int64_t n = cuts[s].outer * block_of(run, cuts[s].parts);
        whole[s] = filled(run, 0, s, n);
        cuts[s].in = part_of(run, &cuts[s], run->rank, whole[s]);
        cuts[s].out = room(run, n);
        cuts[s].stage = stage(run, cuts[s].outer, block_of(run, cuts[s].parts));
    }
    TRY(comm_all_gather_start(run->comm, 0, run->dtype, 2, cuts));
    nap(run);
    TRY(done(run, run->comm, 0));
    for (int s = 0; s < 2; s++)
        TRY(check(run, "all-gather", cuts[s].out, whole[s],
                  cuts[s].outer * block_of(run, cuts[s].parts)));
    return ST_OK;
}

/* A tensor [2, m, n, 3] cut along m becomes cut along n, and back. */
static st_status_t transposes(run_t *run) {
    int64_t rows[MAX_RANKS], columns[MAX_RANKS], m = 0, n = 0;
    for (int r = 0; r < run->size; r++) {
        m += rows[r] = (r + 1) % 3 * 2;
        n += columns[r] = r % 4;
    }
    int64_t row_cut[MAX_RANKS], column_cut[MAX_RANKS], from[MAX_RANKS], to[MAX_RANKS];
    for (int r = 0; r < run->size; r++) {
        row_cut[r] = rows[r] * n * 3;
        column_cut[r] = columns[r] * 3;
        from[r] = column_cut[r];                  /* of each of 2 × own rows */
        to[r] = rows[r] * columns[run->rank] * 3; /* of each of 2 */
    }
    void *whole = filled(run, 0, 0, 2 * m * n * 3);
    comm_segment_t by_row = {.outer = 2, .parts = row_cut};
    comm_segment_t by_column = {.outer = 2 * m, .parts = column_cut};
    void *mine = part_of(run, &by_row, run->rank, whole);
    void *want = part_of(run, &by_column, run->rank, whole);
    int64_t n_mine = 2 * row_cut[run->rank], n_want = 2 * m * column_cut[run->rank];
    void *got = room(run, n_want), *back = room(run, n_mine);
    comm_side_t rows_side = {.outer = 2 * rows[run->rank], .parts = from};
    comm_side_t columns_side = {.outer = 2, .parts = to};
    rows_side.stage = stage(run, rows_side.outer, block_of(run, from));
    columns_side.stage = stage(run, columns_side.outer, block_of(run, to));
    TRY(comm_all_to_all_start(run->comm, 2, run->dtype, mine, rows_side, got, columns_side));
    nap(run);
    TRY(done(run, run->comm, 2));
    TRY(check(run, "all-to-all", got, want, n_want));
    TRY(comm_all_to_all_start(run->comm, 2, run->dtype, got, columns_side, back, rows_side));
    TRY(done(run, run->comm, 2));
    return check(run, "all-to-all back", back, mine, n_mine);
}

static st_status_t broadcasts(run_t *run) {
    int64_t lengths[3] = {1, 0, 3001};
    for (int root = 0; root < run->size; root++) {
        void *data[3], *want[3];
        for (int s = 0; s < 3; s++) {
            data[s] = filled(run, run->rank, s, lengths[s]);
            want[s] = filled(run, root, s, lengths[s]);
        }
        TRY(comm_broadcast_start(run->comm, 4, run->dtype, root, 3, data, lengths));
        nap(run);
        TRY(done(run, run->comm, 4));
        for (int s = 0; s < 3; s++) TRY(check(run, "broadcast", data[s], want[s], lengths[s]));
        drop(run, 6);
    }
    return ST_OK;
}

/* The pairs of a ring, in an order that is the same at both ends. */
static st_status_t open_ring(run_t *run) {
    for (int peer = 0; peer < run->size; peer++)
        for (int up = 1; up >= 0; up--) {
            bool sends = (run->rank < peer) == (up == 1);
            const int ahead = (peer - run->rank + run->size) % run->size;
            if (ahead != (sends ? 1 : run->size - 1)) continue;
            TRY(comm_pair_open(run->comm, peer, sends));
        }
    return ST_OK;
}

/* Around the ring, two in flight a neighbour, waited for in the other order; tickets differ at the
 * two ends. */
static st_status_t rings(run_t *run) {
    if (run->size == 1) return ST_OK;
    TRY(open_ring(run));
    int next = (run->rank + 1) % run->size, before = (run->rank + run->size - 1) % run->size;
    int64_t lengths[3] = {700, 0, 20011};
    void *out[3], *in[3];
    for (int k = 0; k < 3; k++) {
        out[k] = filled(run, run->rank, k, lengths[k]);
        in[k] = room(run, lengths[k]);
        uint32_t ticket = (uint32_t)(10 + k);
        TRY(comm_send_start(run->comm, ticket, next, run->dtype, out[k], lengths[k]));
        nap(run);
        TRY(comm_receive_start(run->comm, 10 + ticket, before, run->dtype, in[k], lengths[k]));
    }
    for (int k = 2; k >= 0; k--) {
        TRY(done(run, run->comm, (uint32_t)(20 + k)));
        TRY(done(run, run->comm, (uint32_t)(10 + k)));
        TRY(check(run, "receive", in[k], filled(run, before, k, lengths[k]), lengths[k]));
    }
    return ST_OK;
}

static st_status_t every_kind(run_t *run) {
    st_status_t (*const kinds[])(run_t *) = {sums, gathers, transposes, broadcasts, rings};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        st_status_t status = kinds[k](run);
        release(run);
        TRY(status);
    }
    return ST_OK;
}

/* ---- groups ---- */

/* One sum in flight in each communicator under one ticket, waited for in the order made. */
static st_status_t overlapping(run_t *run, comm_t *const *comms, const int (*members)[MAX_RANKS],
                               int n) {
    double want[8] = {0}, *x;
    int64_t one = 1;
    run->bytes = sizeof *x;
    x = room(run, 8);
    for (int g = 0; g < n; g++) {
        int size = comm_size(comms[g]);
        for (int r = 0; r < size; r++) want[g] += 1.0 / (3 + g + members[g][r]);
        x[g] = 1.0 / (3 + g + members[g][comm_rank(comms[g])]);
        void *data = &x[g];
        TRY(comm_all_reduce_start(comms[g], 7, IR_F64, 1, &data, &one));
    }
    for (int g = 0; g < n; g++) {
        TRY(done(run, comms[g], 7));
        if (memcmp(&x[g], &want[g], sizeof x[g]) != 0)
            return FAIL(ST_INTERNAL, "group %d: the sum is %.17g, not %.17g", g, x[g], want[g]);
    }
    return ST_OK;
}

/* The whole, the whole backwards twice, ranks of one parity, and neighbours two by two. */
static st_status_t groups(run_t *run) {
    enum { N = 5 };
    comm_t *comms[N] = {run->comm};
    int members[N][MAX_RANKS], n = 1;
    st_status_t status = ST_OK;
    for (int r = 0; r < run->size; r++) members[0][r] = r;
    for (int g = 1; g < N && status == ST_OK; g++) {
        int size = 0;
        for (int r = 0; r < run->size; r++) {
            if (g < 3) members[g][size++] = run->size - 1 - r;
            if (g == 3 && r % 2 == run->rank % 2) members[g][size++] = r;
            if (g == 4 && r / 2 == run->rank / 2) members[g][size++] = r;
        }
        status = comm_group_create(run->comm, size, members[g], &comms[g]);
        if (status == ST_OK) n++;
    }
    for (int step = 0; step < 4 && status == ST_OK; step++)
        status = overlapping(run, comms, (const int(*)[MAX_RANKS])members, n);
    release(run);
    if (status == ST_OK) { /* a group of a group; its parent goes first */
        int first[2] = {1, 0}, alone[1] = {0};
        int size = comm_size(comms[4]);
        comm_t *inner = NULL;
        status = comm_group_create(comms[4], size, size == 2 ? first : alone, &inner);
        comm_destroy(comms[4]);
        n = 4;
        run_t all = *run;
        if (status == ST_OK) {
            all.comm = inner;
            all.rank = comm_rank(inner);
            all.size = size;
            all.dtype = IR_F32;
            all.bytes = 4;
            status = every_kind(&all);
        }
        comm_destroy(inner);
    }
    while (n > 1) comm_destroy(comms[--n]);
    return status;
}

/* Every rank agrees, then the last one does not, then it has more to say. */
static st_status_t agreements(const run_t *run) {
    char want[200];
    comm_fact_t facts[] = {{"colour", "red"}, {"size", "3"}, {"more", "yes"}};
    bool last = run->rank == run->size - 1;
    TRY(comm_agree(run->comm, 2, facts));
    if (run->size == 1) return ST_OK;
    if (last) facts[1].value = "4";
    snprintf(want, sizeof want, "ranks 0 and %d disagree on size: '3' and '4'", run->size - 1);
    if (comm_agree(run->comm, 3, facts) != ST_RANKS_DISAGREE || !strstr(st_last_error(), want))
        return FAIL(ST_INTERNAL, "'%s' instead of '%s'", st_last_error(), want);
    facts[1].value = "3";
    snprintf(want, sizeof want, "rank %d has 'more', rank 0 has not", run->size - 1);
    if (comm_agree(run->comm, last ? 3 : 2, facts) != ST_RANKS_DISAGREE ||
        !strstr(st_last_error(), want))
        return FAIL(ST_INTERNAL, "'%s' instead of '%s'", st_last_error(), want);
    return ST_OK;
}

st_status_t collectives_run_in(comm_t *comm, unsigned seed, const collectives_memory_t *memory) {
    run_t run = {.comm = comm,
                 .rank = comm_rank(comm),
                 .size = comm_size(comm),
                 .seed = seed,
                 .memory = memory};
    for (int d = 1; d < IR_DTYPE_END; d++) {
        if (!ir_dtype_valid(d)) continue;
        run.dtype = (ir_dtype_t)d;
        run.bytes = ir_dtype_bytes(run.dtype);
        TRY(every_kind(&run));
    }
    if (!comm_on_device(comm)) TRY(agreements(&run)); /* of texts on the host */
    return groups(&run);
}

st_status_t collectives_run(comm_t *comm, unsigned seed) {
    return collectives_run_in(comm, seed, NULL);
}

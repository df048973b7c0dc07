/* Traces, read back by another JSON reader: slices of a thread nest and follow each other,
 * collectives open and close, and the times sum up to the step. */
#include <json.h>
#include <math.h>

#include "base/file.h"
#include "compile/predict.h"
#include "compile/simulate.h"
#include "exec/models.h"
#include "exec/trace.h"
#include "support/scratch.h"

enum { MOST_THREADS = 256, PLANNED = 1, LINK, MEASURED };

/* ---- the format, told without the writer ---- */

typedef struct thread {
    int64_t process, thread;
    int64_t begin_ns[8], end_ns[8]; /* open slices, outermost first */
    int depth;
    int64_t leaves_ns, slices_ns; /* sums: of slices with node, of the outermost ones */
    size_t n_slices, n_leaves;
} thread_t;

typedef struct checked {
    thread_t threads[MOST_THREADS];
    size_t n_threads, n_events, n_open, n_flights, n_processes;
    struct json_object *open; /* flights: id → begin */
} checked_t;

static struct json_object *need(struct json_object *object, const char *key, enum json_type type) {
    struct json_object *value;
    if (!json_object_object_get_ex(object, key, &value))
        fail_msg("no '%s' in %s", key, json_object_to_json_string(object));
    if (json_object_get_type(value) != type)
        fail_msg("'%s' has another type: %s", key, json_object_to_json_string(object));
    return value;
}
/* Written with three digits behind the point: nanoseconds. */
static int64_t ns_of(struct json_object *event, const char *key) {
    return llround(json_object_get_double(need(event, key, json_type_double)) * 1e3);
}
static const char *text_of(struct json_object *event, const char *key) {
    return json_object_get_string(need(event, key, json_type_string));
}

static thread_t *thread_of(checked_t *c, struct json_object *event) {
    int64_t process = json_object_get_int64(need(event, "pid", json_type_int));
    int64_t thread = json_object_get_int64(need(event, "tid", json_type_int));
    for (size_t i = 0; i < c->n_threads; i++)
        if (c->threads[i].process == process && c->threads[i].thread == thread)
            return &c->threads[i];
    assert_true(c->n_threads < MOST_THREADS);
    c->threads[c->n_threads] = (thread_t){.process = process, .thread = thread};
    return &c->threads[c->n_threads++];
}

/* Slices come outer before inner and in order of their begin; none reaches over the one it lies
 * in. */
static void check_slice(thread_t *t, struct json_object *event) {
    int64_t begin = ns_of(event, "ts"), duration = ns_of(event, "dur");
    struct json_object *args = need(event, "args", json_type_object);
    assert_true(duration >= 0);
    while (t->depth && t->end_ns[t->depth - 1] <= begin) t->depth--;
    if (t->depth && begin + duration > t->end_ns[t->depth - 1])
        fail_msg("%s reaches over the slice it begins in", json_object_to_json_string(event));
    if (t->depth && begin < t->begin_ns[t->depth - 1])
        fail_msg("%s begins before the one written before it", json_object_to_json_string(event));
    t->n_slices++;
    if (!t->depth) t->slices_ns += duration;
    bool leaf = json_object_object_get_ex(args, "node", NULL);
    if (leaf) {
        t->leaves_ns += duration;
        t->n_leaves++;
    }
    assert_true(t->depth < 8);
    t->begin_ns[t->depth] = begin;
    t->end_ns[t->depth++] = begin + duration;
}

static void check_flight(checked_t *c, struct json_object *event, bool begins) {
    char key[32];
    struct json_object *found;
    snprintf(key, sizeof key, "%lld",
             (long long)json_object_get_int64(need(event, "id", json_type_int)));
    bool known = json_object_object_get_ex(c->open, key, &found);
    if (known == begins) fail_msg("flight %s opens twice, or closes unopened", key);
    c->n_flights += begins;
    if (begins) {
        json_object_object_add(c->open, key, json_object_get(event));
        return;
    }
    assert_true(ns_of(event, "ts") >= ns_of(found, "ts"));
    assert_string_equal(text_of(event, "name"), text_of(found, "name"));
    json_object_object_del(c->open, key);
}

static void check_event(checked_t *c, struct json_object *event) {
    const char *phase = text_of(event, "ph"), *name = text_of(event, "name");
    thread_t *thread = thread_of(c, event);
    c->n_events++;
    assert_true(name[0] != '\0');
    if (strcmp(phase, "X") == 0)
        check_slice(thread, event);
    else if (strcmp(phase, "b") == 0 || strcmp(phase, "e") == 0)
        check_flight(c, event, phase[0] == 'b');
    else if (strcmp(phase, "M") == 0)
        c->n_processes += strcmp(name, "process_name") == 0;
    else
        fail_msg("phase '%s'", phase);
}

static struct json_object *check_file(const char *path, checked_t *c) {
    struct json_object *root = json_object_from_file(path);
    if (!root) fail_msg("%s: %s", path, json_util_get_last_err());
    struct json_object *events = need(root, "traceEvents", json_type_array);
    *c = (checked_t){.open = json_object_new_object()};
    for (size_t i = 0; i < json_object_array_length(events); i++)
        check_event(c, json_object_array_get_idx(events, i));
    if (json_object_object_length(c->open))
        fail_msg("still open: %s", json_object_to_json_string(c->open));
    json_object_put(c->open);
    return root;
}

static const thread_t *find_thread(const checked_t *c, int64_t process, int64_t thread) {
    for (size_t i = 0; i < c->n_threads; i++)
        if (c->threads[i].process == process && c->threads[i].thread == thread)
            return &c->threads[i];
    fail_msg("no thread %lld of process %lld", (long long)thread, (long long)process);
    return NULL;
}

/* ---- plans and steps ---- */

typedef struct fixture {
    plan_t *plan;
    exec_session_t *session;
    exec_feed_t feeds[2];
    float x[8 * 64];
    int64_t y[8];
} fixture_t;

static void begin(fixture_t *f, const compile_options_t *options) {
    ir_graph_t *forward = model_mlp(8), *step = model_train(forward, "adamw", 1.0);
    f->plan = compile_ok(step, options);
    f->session = NULL;
    ir_graph_destroy(step);
    ir_graph_destroy(forward);
    if (options->device || options->target) return;
    assert_ok(exec_session_create(f->plan, NULL, &f->session));
    fill_states(f->session, f->plan);
    for (uint32_t i = 0; i < f->plan->n_inputs; i++) {
        const plan_port_t *port = &f->plan->inputs[i];
        void *data = port->type.dtype == IR_F32 ? (void *)f->x : (void *)f->y;
        fill_random(&port->type, data, 3 + i, 4);
        f->feeds[i] = (exec_feed_t){port->name, port->type, data};
    }
}
static void end(fixture_t *f) {
    exec_session_destroy(f->session);
    plan_destroy(f->plan);
}
static void step(fixture_t *f) {
    assert_ok(exec_session_step(f->session, f->plan->n_inputs, f->feeds, 0, NULL));
}

static size_t count_steps(const fixture_t *f, uint32_t rank) {
    const plan_program_t *program = &f->plan->programs[f->plan->program_of[rank]];
    size_t n = 0;
    for (ir_node_t i = 0; i < program->graph->nodes.n; i++)
        n += program->steps[i].kind != PLAN_STEP_NOTHING;
    return n;
}

static void a_measured_trace_is_whole(void **state) {
    (void)state;
    static checked_t c;
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks++) { /* 8 rows on 3 ranks: two programs */
        enum { STEPS = 3 };
        fixture_t f;
        exec_trace_t *trace;
        const char *path = scratch("trace.json");
        assert_ok(st_remove_file(path));
        begin(&f, &(compile_options_t){.n_ranks = n_ranks});
        step(&f);
        assert_ok(exec_trace_create(f.plan, f.session, path, EXEC_TRACE_ALL, &trace));
        for (int i = 0; i < STEPS; i++) {
            step(&f);
            assert_ok(exec_trace_add(trace));
        }
        assert_false(exists(path)); /* only when it is whole */
        assert_ok(exec_trace_finish(trace));
        struct json_object *root = check_file(path, &c);
        exec_trace_totals_t totals = exec_trace_totals(trace);
        assert_true(totals.n_measured == STEPS && totals.n_ranks == n_ranks && !totals.n_left_out);
        assert_string_equal(totals.clock, "host");
        assert_int_equal(c.n_processes, n_ranks);
        for (uint32_t r = 0; r < n_ranks; r++) {
            const thread_t *planned = find_thread(&c, r, PLANNED);
            const thread_t *measured = find_thread(&c, r, MEASURED);
            assert_int_equal(measured->n_leaves, STEPS * count_steps(&f, r));
            assert_int_equal(measured->n_slices, measured->n_leaves + 3 * STEPS);
            assert_true(measured->leaves_ns > 0 && measured->leaves_ns <= measured->slices_ns);
            /* what is planned fills its step, but for rounding and, at its end, transfers without
             * kernels */
            assert_true(llabs(planned->leaves_ns - planned->slices_ns) <= (long)planned->n_leaves);
        }
        const thread_t *first = find_thread(&c, 0, MEASURED);
        double tolerance = 1e-3 * (double)first->n_leaves;
        assert_true(fabs((double)first->leaves_ns * 1e-3 / STEPS - totals.kernels_us) < tolerance);
        assert_true(fabs((double)first->slices_ns * 1e-3 / STEPS - totals.measured_us) < tolerance);
        /* each start is waited for, on every rank in every step */
        size_t starts = 0;
        const plan_program_t *program = &f.plan->programs[f.plan->program_of[0]];
        for (ir_node_t i = 0; i < program->graph->nodes.n; i++)
            starts += program->steps[i].kind == PLAN_STEP_START;
        assert_int_equal(c.n_flights, starts * n_ranks * STEPS);
        assert_true((starts > 0) == (n_ranks > 1));
        json_object_put(root);
        exec_trace_destroy(trace);
        end(&f);
    }
}

/* Rows of kernels and of nodes tell the same sums, the predicted ones that of the simulated
 * step. */
static void figures_sum_up(void **state) {
    (void)state;
    fixture_t f;
    exec_trace_t *trace;
    begin(&f, &(compile_options_t){.n_ranks = 2});
    assert_ok(exec_trace_create(f.plan, f.session, NULL, 1, &trace));
    const exec_trace_row_t *rows;
    assert_int_equal(exec_trace_kernels(trace, &rows), 0); /* not finished */
    for (int i = 0; i < 4; i++) {
        step(&f);
        assert_ok(exec_trace_add(trace));
    }
    assert_ok(exec_trace_finish(trace));
    exec_trace_totals_t totals = exec_trace_totals(trace);
    assert_true(totals.rank == 1 && totals.n_ranks == 1);
    for (int nodes = 0; nodes < 2; nodes++) {
        size_t n = nodes ? exec_trace_nodes(trace, &rows) : exec_trace_kernels(trace, &rows);
        double measured = 0, predicted = 0, last = INFINITY;
        uint64_t calls = 0;
        for (size_t i = 0; i < n; i++) {
            double key =
                nodes ? fabs(rows[i].measured_us - rows[i].predicted_us) : rows[i].measured_us;
            assert_true(key <= last);
            last = key;
            measured += rows[i].measured_us;
            predicted += rows[i].predicted_us;
            calls += rows[i].n_calls;
        }
        assert_int_equal(calls, count_steps(&f, 1));
        assert_true(fabs(measured - totals.kernels_us) < 1e-6 * measured);
        assert_true(fabs(predicted - totals.predicted_us) < 1e-6 * predicted);
        assert_true(totals.measured_us >= totals.kernels_us);
    }
    exec_trace_destroy(trace);
    end(&f);
}

/* Without a device, a thousand ranks: one process a program, the planned step of each, a small
 * file. */
static void many_ranks_are_planned(void **state) {
    (void)state;
    static checked_t c;
    fixture_t f;
    exec_trace_t *trace;
    const char *path = scratch("many.json");
    size_t bytes, programs = 0;
    begin(&f, &(compile_options_t){.n_ranks = 1000, .target = "h200", .device = "null"});
    assert_ok(exec_trace_create(f.plan, NULL, path, EXEC_TRACE_ALL, &trace));
    assert_int_equal(exec_trace_add(trace), ST_INVALID);
    assert_ok(exec_trace_finish(trace));
    struct json_object *root = check_file(path, &c);
    struct json_object *about = need(root, "otherData", json_type_object);
    assert_int_equal(c.n_processes, f.plan->n_programs);
    assert_int_equal(json_object_array_length(need(about, "programs", json_type_array)),
                     f.plan->n_programs);
    assert_string_equal(text_of(about, "measured_by"), "none");
    for (uint32_t r = 0; r < 1000; r++) {
        bool first = true;
        for (uint32_t q = 0; q < r; q++) first &= f.plan->program_of[q] != f.plan->program_of[r];
        if (!first) continue;
        const thread_t *planned = find_thread(&c, r, PLANNED);
        assert_int_equal(planned->n_slices, planned->n_leaves + 1);
        programs++;
    }
    assert_int_equal(programs, f.plan->n_programs);
    free(slurp(path, &bytes));
    assert_true(bytes < 1024 * c.n_events);
    exec_trace_totals_t totals = exec_trace_totals(trace);
    assert_true(totals.n_measured == 0 && totals.measured_us == 0 && totals.exposed_us > 0);
    json_object_put(root);
    exec_trace_destroy(trace);
    /* one rank of them */
    assert_ok(exec_trace_create(f.plan, NULL, path, 999, &trace));
    assert_ok(exec_trace_finish(trace));
    root = check_file(path, &c);
    assert_true(c.n_processes == 1 && find_thread(&c, 999, PLANNED)->n_leaves > 0);
    json_object_put(root);
    exec_trace_destroy(trace);
    assert_int_equal(exec_trace_create(f.plan, NULL, path, 1000, &trace), ST_INVALID);
    assert_non_null(strstr(st_last_error(), "there is no rank 1000: the plan has 1000"));
    assert_null(trace);
    end(&f);
}

/* However little fits on the disk: an error that names the file, which is what it was, and no half
 * one. */
static void a_full_disk_leaves_no_half_file(void **state) {
    (void)state;
    fixture_t f;
    const char *path = scratch("full.json");
    char command[512];
    begin(&f, &(compile_options_t){.n_ranks = 2});
    spill(path, "before", 6);
    snprintf(command, sizeof command, "ls '%s' | wc -l", scratch(""));
    char *files = capture(command);
    int failures = 0;
    for (int64_t budget = 0; budget < 200000; budget = budget * 2 + 1) {
        exec_trace_t *trace;
        size_t bytes;
        st_file_fail_after(budget);
        st_status_t status = exec_trace_create(f.plan, f.session, path, EXEC_TRACE_ALL, &trace);
        for (int i = 0; i < 20 && status == ST_OK; i++) {
            step(&f);
            status = exec_trace_add(trace);
        }
        if (status == ST_OK) status = exec_trace_finish(trace);
        if (status != ST_OK) {
            failures++;
            assert_int_equal(status, ST_IO);
            assert_non_null(strstr(st_last_error(), "full.json"));
        }
        st_file_fail_after(-1);
        exec_trace_destroy(trace);
        uint8_t *data = slurp(path, &bytes);
        char *now = capture(command);
        if (status != ST_OK) assert_true(bytes == 6 && memcmp(data, "before", 6) == 0);
        assert_string_equal(now, files);
        free(now);
        free(data);
        step(&f); /* unmeasured again, and unharmed */
        assert_int_equal(exec_last_measured(f.session, 0).n, 0);
        if (status == ST_OK) break;
    }
    assert_true(failures > 5);
    free(files);
    end(&f);
}

static void calls_out_of_turn_are_errors(void **state) {
    (void)state;
    fixture_t f;
    exec_trace_t *trace;
    begin(&f, &(compile_options_t){.n_ranks = 1});
    assert_int_equal(exec_trace_create(f.plan, f.session, "/nowhere/t.json", 0, &trace),
                     ST_NOT_FOUND);
    assert_null(trace);
    assert_ok(exec_trace_create(f.plan, f.session, NULL, 0, &trace));
    assert_ok(exec_trace_add(trace)); /* no step yet: nothing to add */
    assert_int_equal(exec_trace_totals(trace).n_measured, 0);
    assert_ok(exec_session_step_start(f.session, f.plan->n_inputs, f.feeds, 0, NULL));
    assert_int_equal(exec_trace_add(trace), ST_INVALID);
    assert_int_equal(exec_trace_finish(trace), ST_INVALID);
    assert_ok(exec_session_step_wait(f.session));
    assert_ok(exec_trace_add(trace));
    assert_ok(exec_trace_finish(trace));
    assert_int_equal(exec_trace_add(trace), ST_INVALID);
    assert_int_equal(exec_trace_finish(trace), ST_INVALID);
    exec_trace_destroy(trace);
    exec_trace_destroy(NULL);
    end(&f);
}

static void without_memory_nothing_is_left(void **state) {
    (void)state;
    fixture_t f;
    begin(&f, &(compile_options_t){.n_ranks = 2, .no_fusion = true});
    uint64_t before = st_memory_allocations();
    exec_trace_t *trace;
    assert_ok(exec_trace_create(f.plan, f.session, NULL, EXEC_TRACE_ALL, &trace));
    assert_ok(exec_trace_finish(trace));
    exec_trace_destroy(trace);
    int64_t n = (int64_t)(st_memory_allocations() - before), failed = 0;
    for (int64_t at = 0; at < n; at++) {
        st_memory_fail_after(at, false);
        st_status_t status = exec_trace_create(f.plan, f.session, NULL, EXEC_TRACE_ALL, &trace);
        if (status == ST_OK) status = exec_trace_finish(trace);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        failed += status != ST_OK;
        exec_trace_destroy(trace);
    }
    assert_true(failed > 5);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_measured_trace_is_whole),
        cmocka_unit_test(figures_sum_up),
        cmocka_unit_test(many_ranks_are_planned),
        cmocka_unit_test(a_full_disk_leaves_no_half_file),
        cmocka_unit_test(calls_out_of_turn_are_errors),
        cmocka_unit_test(without_memory_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

/* Measured steps: every kernel has its span, spans lie in order inside the step, and nothing else
 * changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "exec/models.h"

typedef struct fixture {
    plan_t *plan;
    exec_session_t *session;
    exec_feed_t feeds[2];
    float x[8 * 64];
    int64_t y[8];
    float loss;
} fixture_t;

static void begin(fixture_t *f, uint32_t n_ranks, const char *device) {
    ir_graph_t *forward = model_mlp(8), *step = model_train(forward, "adamw", 1.0);
    compile_options_t options = {.n_ranks = n_ranks, .device = device};
    f->plan = compile_ok(step, &options);
    assert_int_equal(exec_session_create(f->plan, NULL, &f->session), ST_OK);
    if (!device) fill_states(f->session, f->plan);
    assert_true(f->plan->n_inputs <= 2);
    for (uint32_t i = 0; i < f->plan->n_inputs; i++) {
        const plan_port_t *port = &f->plan->inputs[i];
        void *data = port->type.dtype == IR_F32 ? (void *)f->x : (void *)f->y;
        assert_true(ir_type_bytes(&port->type) <= (data == f->x ? sizeof f->x : sizeof f->y));
        fill_random(&port->type, data, 3 + i, 4);
        f->feeds[i] = (exec_feed_t){port->name, port->type, data};
    }
    ir_graph_destroy(step);
    ir_graph_destroy(forward);
}

static void end(fixture_t *f) {
    exec_session_destroy(f->session);
    plan_destroy(f->plan);
}

static float step(fixture_t *f) {
    exec_fetch_t fetch = {"loss", &f->loss, sizeof f->loss};
    st_status_t status = exec_session_step(f->session, f->plan->n_inputs, f->feeds, 1, &fetch);
    if (status != ST_OK) fail_msg("%s", st_last_error());
    return f->loss;
}

static void every_kernel_has_its_span(void **state) {
    (void)state;
    for (uint32_t n_ranks = 1; n_ranks <= 3; n_ranks += 2) {
        fixture_t f;
        double last_end = 0;
        begin(&f, n_ranks, NULL);
        step(&f);
        assert_int_equal(exec_last_measured(f.session, 0).n, 0);
        assert_int_equal(exec_measure(f.session, true), ST_OK);
        assert_int_equal(exec_last_measured(f.session, 0).n, 0); /* not yet */
        for (int s = 0; s < 3; s++) {
            step(&f);
            double first_begin = 1e300, last = 0;
            for (uint32_t r = 0; r < n_ranks; r++) {
                const plan_program_t *program = &f.plan->programs[f.plan->program_of[r]];
                exec_measured_t m = exec_last_measured(f.session, r);
                size_t n = 0;
                double at = m.program_begin_us, sum = 0;
                for (ir_node_t i = 0; i < program->graph->nodes.n; i++) {
                    if (program->steps[i].kind == PLAN_STEP_NOTHING) continue;
                    assert_true(n < m.n);
                    assert_int_equal(m.spans[n].node, i);
                    assert_true(m.spans[n].begin_us >= at);
                    assert_true(m.spans[n].end_us >= m.spans[n].begin_us);
                    sum += m.spans[n].end_us - m.spans[n].begin_us;
                    at = m.spans[n++].end_us;
                }
                assert_int_equal(n, m.n);
                assert_true(at <= m.program_end_us && m.program_end_us <= m.end_us);
                assert_true(m.begin_us <= m.program_begin_us);
                assert_true(sum > 0 && sum <= m.program_end_us - m.program_begin_us);
                assert_true(!m.by_device && !m.replayed);
                if (m.begin_us < first_begin) first_begin = m.begin_us;
                if (m.end_us > last) last = m.end_us;
            }
            assert_true(first_begin >= last_end); /* one clock, one step after the other */
            last_end = last;
        }
        assert_int_equal(exec_measure(f.session, false), ST_OK);
        step(&f);
        assert_int_equal(exec_last_measured(f.session, 0).n, 0);
        end(&f);
    }
}

static void measured_steps_have_the_same_bits_and_allocate_nothing(void **state) {
    (void)state;
    fixture_t plain, measured;
    begin(&plain, 2, NULL);
    begin(&measured, 2, NULL);
    step(&plain);
    step(&measured);
    assert_int_equal(exec_measure(measured.session, true), ST_OK);
    uint64_t before = st_memory_allocations();
    for (int s = 0; s < 5; s++) {
        float a = step(&plain), b = step(&measured);
        assert_memory_equal(&a, &b, sizeof a);
    }
    assert_int_equal(st_memory_allocations(), before);
    end(&plain);
    end(&measured);
}

static void a_device_that_computes_nothing_has_no_spans(void **state) {
    (void)state;
    fixture_t f;
    begin(&f, 2, "null");
    assert_int_equal(exec_measure(f.session, true), ST_OK);
    step(&f);
    assert_int_equal(exec_last_measured(f.session, 1).n, 0);
    end(&f);
}

static void measuring_without_memory_is_an_error(void **state) {
    (void)state;
    fixture_t f;
    begin(&f, 2, NULL);
    for (int at = 0; at < 6; at++) {
        st_memory_fail_after(at, false);
        st_status_t status = exec_measure(f.session, true);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) break;
        assert_int_equal(status, ST_NO_MEMORY);
        step(&f);
        assert_int_equal(exec_last_measured(f.session, 0).n, 0);
    }
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_has_its_span),
        cmocka_unit_test(measured_steps_have_the_same_bits_and_allocate_nothing),
        cmocka_unit_test(a_device_that_computes_nothing_has_no_spans),
        cmocka_unit_test(measuring_without_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

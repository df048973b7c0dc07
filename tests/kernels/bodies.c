#include "bodies.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compile/plan_reuse.h"
#include "ir/body.h"
#include "ir/convert.h"
#include "ir/nest.h"
#include "ir/text.h"
#include "kernels/emit/schedule.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

uint64_t body_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void set_problem(body_t *body) {
    body->attr = (ir_attr_t){.kind = IR_ATTR_GRAPH, .graph = body->graph};
    body->problem =
        (kern_problem_t){IR_OP_FUSED, body->n_in, body->n_out, body->in, body->out, NULL, "body"};
}

static void set_types(body_t *body) {
    ir_value_t inputs[BODY_MAX];
    body->n_in = ir_body_n_inputs(body->graph);
    body->n_out = (uint32_t)body->graph->outputs.n;
    assert_true(body->n_in <= BODY_MAX && body->n_out <= BODY_MAX);
    ir_body_inputs(body->graph, inputs);
    for (uint32_t j = 0; j < body->n_in; j++) body->in[j] = *ir_value_type(body->graph, inputs[j]);
    for (uint32_t k = 0; k < body->n_out; k++) body->out[k] = *ir_body_output_type(body->graph, k);
    set_problem(body);
}

body_t body_make(ir_graph_t *graph, int64_t limit, uint64_t seed) {
    body_t body = {.graph = graph};
    set_types(&body);
    for (uint32_t j = 0; j < body.n_in; j++) {
        int64_t n = ir_type_elements(&body.in[j]);
        body.data[j] = malloc(ir_type_bytes(&body.in[j]) + 1);
        for (int64_t i = 0; i < n; i++) {
            uint64_t r = body_random(&seed);
            double unit = (double)(r >> 11) * 0x1p-53;
            if (ir_dtype_is_float(body.in[j].dtype))
                ir_element_store(body.in[j].dtype, body.data[j], (size_t)i, unit * 4 - 2);
            else if (body.in[j].dtype == IR_BOOL)
                ir_element_store(IR_BOOL, body.data[j], (size_t)i, (double)(r & 1));
            else
                ir_element_store_i64(body.in[j].dtype, body.data[j], (size_t)i,
                                     (int64_t)(r >> 1) % limit);
        }
    }
    return body;
}

body_t body_parse(const char *text, int64_t limit, uint64_t seed) {
    ir_graph_t *graph = NULL;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return body_make(graph, limit, seed);
}

void body_free(body_t *body) {
    for (uint32_t j = 0; j < body->n_in; j++) free(body->data[j]);
    ir_graph_destroy(body->graph);
}

/* A node with its float dtypes made f64. */
static st_status_t widen_node(void *context, ir_graph_t *to, const ir_graph_t *from, ir_node_t node,
                              ir_value_t *map) {
    const ir_node_info_t *info = ir_node(from, node);
    const ir_op_def_t *def = ir_op_def(info->op);
    ir_attr_t attrs[32];
    static unsigned char data[1 << 16];
    size_t used = 0;
    (void)context;
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++) {
        attrs[i] = info->attrs[i];
        if (attrs[i].kind == IR_ATTR_DTYPE && ir_dtype_is_float((ir_dtype_t)attrs[i].i))
            attrs[i].i = IR_F64;
        if (attrs[i].kind != IR_ATTR_DATA) continue;
        ir_dtype_t dtype = ir_value_type(from, info->first_output)->dtype;
        if (!ir_dtype_is_float(dtype)) continue;
        size_t n = attrs[i].data.bytes / ir_dtype_bytes(dtype);
        assert_true(used + n * 8 <= sizeof data);
        for (size_t e = 0; e < n; e++)
            ((double *)(void *)(data + used))[e] = ir_element_load(dtype, attrs[i].data.p, e);
        attrs[i].data.p = data + used;
        attrs[i].data.bytes = n * 8;
        used += n * 8;
    }
    return ir_graph_clone_node(to, from, node, attrs, map);
}

body_t body_widen(const body_t *body) {
    body_t wide = {0};
    if (ir_graph_rewrite(body->graph, NULL, widen_node, NULL, &wide.graph) != ST_OK)
        fail_msg("%s", st_last_error());
    set_types(&wide);
    for (uint32_t j = 0; j < body->n_in; j++) {
        int64_t n = ir_type_elements(&body->in[j]);
        wide.data[j] = malloc(ir_type_bytes(&wide.in[j]) + 1);
        for (int64_t i = 0; i < n; i++) {
            if (ir_dtype_is_float(body->in[j].dtype))
                ir_element_store(wide.in[j].dtype, wide.data[j], (size_t)i,
                                 ir_element_load(body->in[j].dtype, body->data[j], (size_t)i));
            else
                ir_element_store_i64(
                    wide.in[j].dtype, wide.data[j], (size_t)i,
                    ir_element_load_i64(body->in[j].dtype, body->data[j], (size_t)i));
        }
    }
    return wide;
}

results_t body_run(const body_t *body, const char *name, int n_threads) {
    results_t r = {{0}, {0}};
    const kern_impl_t *impl = kern_find(name);
    const char *reason = "";
    kern_problem_t problem = body->problem;
    problem.attrs = &body->attr;
    problem.in = body->in;
    problem.out = body->out;
    assert_non_null(impl);
    if (impl->can_run && !impl->can_run(&problem, &reason)) fail_msg("%s: %s", name, reason);
    for (uint32_t k = 0; k < body->n_out; k++) {
        size_t bytes = ir_type_bytes(&body->out[k]);
        r.block[k] = aligned_alloc(64, (bytes + 2 * GUARD + 63) & ~(size_t)63);
        memset(r.block[k], GUARD_BYTE, bytes + 2 * GUARD);
        r.out[k] = bytes ? (char *)r.block[k] + GUARD : NULL;
    }
    const void *in[BODY_MAX];
    for (uint32_t j = 0; j < body->n_in; j++)
        in[j] = ir_type_elements(&body->in[j]) ? body->data[j] : NULL;
    if (kern_run_impl(impl, &problem, n_threads, in, r.out) != ST_OK)
        fail_msg("%s", st_last_error());
    for (uint32_t k = 0; k < body->n_out; k++) {
        const unsigned char *block = r.block[k];
        size_t bytes = ir_type_bytes(&body->out[k]);
        for (size_t i = 0; i < GUARD; i++)
            if (block[i] != GUARD_BYTE || block[GUARD + bytes + i] != GUARD_BYTE)
                fail_msg("%s writes outside of result %u", name, k);
    }
    return r;
}

void results_free(const body_t *body, results_t *results) {
    for (uint32_t k = 0; k < body->n_out; k++) free(results->block[k]);
}

static double rounding(ir_dtype_t dtype) {
    return dtype == IR_F64    ? 0x1p-52
           : dtype == IR_F32  ? 0x1p-23
           : dtype == IR_F16  ? 0x1p-10
           : dtype == IR_BF16 ? 0x1p-7
                              : 0;
}

void body_compare(const body_t *body, const results_t *got, const body_t *wide,
                  const results_t *expected, double terms, const char *label) {
    for (uint32_t k = 0; k < body->n_out; k++) {
        ir_dtype_t dtype = body->out[k].dtype, dtype64 = wide->out[k].dtype;
        int64_t n = ir_type_elements(&body->out[k]);
        double largest = 1, inside = dtype == IR_F64 ? 0x1p-52 : 0x1p-23;
        for (int64_t i = 0; i < n; i++) {
            double e = fabs(ir_element_load(dtype64, expected->out[k], (size_t)i));
            if (isfinite(e) && e > largest) largest = e;
        }
        for (int64_t i = 0; i < n; i++) {
            double e = ir_element_load(dtype64, expected->out[k], (size_t)i);
            double g = ir_element_load(dtype, got->out[k], (size_t)i);
            double limit =
                rounding(dtype) * fmax(1, fabs(e)) + inside * (16 + 4 * sqrt(terms)) * largest;
            if (!ir_dtype_is_float(dtype)) limit = 0;
            if (isinf(e) && g == e) continue;
            if (isnan(g) || isnan(e) || fabs(g - e) > limit)
                fail_msg("%s, result %u[%lld]: expected %.17g, got %.17g, limit %g", label, k,
                         (long long)i, e, g, limit);
        }
    }
}

/* Has the body values of 16 bits? What its nodes make is rounded to them one by one (ir/nest.h), as
 * the reference does it in the body's own types. */
static bool is_small(const body_t *body) {
    for (ir_value_t v = 0; v < body->graph->values.n; v++)
        if (ir_dtype_bytes(ir_value_type(body->graph, v)->dtype) == 2) return true;
    return false;
}

void body_check(body_t *body, double terms, const char *label) {
    const bool small = is_small(body);
    body_t wide = small ? (body_t){0} : body_widen(body);
    const body_t *oracle = small ? body : &wide;
    results_t expected = body_run(oracle, "cpu.fused.reference", 1);
    results_t one = body_run(body, "cpu.fused.nest", 1);
    body_compare(body, &one, oracle, &expected, terms, label);
    for (int threads = 2; threads <= 4; threads += 2) {
        results_t more = body_run(body, "cpu.fused.nest", threads);
        for (uint32_t k = 0; k < body->n_out; k++)
            if (memcmp((char *)one.block[k] + GUARD, (char *)more.block[k] + GUARD,
                       ir_type_bytes(&body->out[k])) != 0)
                fail_msg("%s, result %u: other bits on %d threads", label, k, threads);
        results_free(body, &more);
    }
    results_free(body, &one);
    results_free(oracle, &expected);
    if (!small) body_free(&wide);
}

/* ---- in place ---- */

static void run_in_place(const body_t *body, const results_t *apart, const char *name,
                         uint32_t result, uint32_t operand, const char *label) {
    void *in[BODY_MAX], *out[BODY_MAX];
    kern_problem_t problem = body->problem;
    problem.attrs = &body->attr;
    problem.in = body->in;
    problem.out = body->out;
    for (uint32_t j = 0; j < problem.n_in; j++) {
        in[j] = malloc(ir_type_bytes(&body->in[j]) + 1);
        memcpy(in[j], body->data[j], ir_type_bytes(&body->in[j]));
    }
    for (uint32_t k = 0; k < problem.n_out; k++)
        out[k] = k == result ? in[operand] : malloc(ir_type_bytes(&body->out[k]) + 1);
    if (kern_run_impl(kern_find(name), &problem, 2, (const void *const *)in, out) != ST_OK)
        fail_msg("%s", st_last_error());
    for (uint32_t k = 0; k < problem.n_out; k++) {
        if (memcmp(out[k], apart->out[k], ir_type_bytes(&body->out[k])) != 0)
            fail_msg("%s, %s: result %u differs with result %u over operand %u", label, name, k,
                     result, operand);
        if (k != result) free(out[k]);
    }
    for (uint32_t j = 0; j < problem.n_in; j++) free(in[j]);
}

/* Marks what a kernel computes to have `v`, down to what earlier kernels leave in the workspace. */
static void mark_slice(const emit_schedule_t *s, const emit_kernel_t *k, nest_value_t v,
                       bool *marks) {
    const nest_stmt_t *stmt = &s->nest->stmts[v];
    bool left =
        emit_is_result(s, k->level, v) ||
        (s->uniform[v] != UINT64_MAX && (k->shape != EMIT_UNIFORM || s->level[v] < k->level));
    if (marks[v] || left) return;
    marks[v] = true;
    for (uint32_t i = 0; i < stmt->n_args; i++) mark_slice(s, k, stmt->args[i], marks);
    if (stmt->access.index != NEST_NONE && stmt->kind == NEST_LOAD)
        mark_slice(s, k, stmt->access.index, marks);
}

static bool kernel_reads(const emit_schedule_t *s, const emit_kernel_t *k, uint32_t operand) {
    bool *marks = calloc(s->nest->n_stmts + 1, sizeof *marks), reads = false;
    for (uint32_t i = 0; i < k->n_stores; i++)
        mark_slice(s, k, s->nest->stores[k->stores[i]].value, marks);
    for (uint32_t i = 0; i < k->n_reduces && k->shape != EMIT_FINISH; i++)
        mark_slice(s, k, s->of[k->reduces[i]], marks);
    for (uint32_t v = 0; v < s->nest->n_stmts; v++) {
        const nest_stmt_t *stmt = &s->nest->stmts[v];
        if (k->shape == EMIT_UNIFORM && s->uniform[v] != UINT64_MAX && s->level[v] == k->level)
            mark_slice(s, k, v, marks);
        reads |= marks[v] && stmt->kind == NEST_LOAD && stmt->access.tensor == operand;
    }
    free(marks);
    return reads;
}

/* The launch that stores the result is the last to read the operand, and no other kernel of it
 * does. */
static void check_kernels(const nest_t *nest, uint32_t result, uint32_t operand,
                          const char *label) {
    emit_schedule_t *s = NULL;
    if (emit_schedule_create(nest, &s) != ST_OK) return; /* not for GPUs */
    uint32_t stored = UINT32_MAX;
    for (uint32_t i = 0; i < s->n_kernels; i++)
        for (uint32_t k = 0; k < s->kernels[i].n_stores; k++)
            if (nest->stores[s->kernels[i].stores[k]].access.tensor == result) stored = i;
    assert_int_not_equal(stored, UINT32_MAX);
    uint32_t first = stored;
    while (s->kernels[first].joined) first--;
    for (uint32_t i = first; i < s->n_kernels; i++)
        if (i != stored && kernel_reads(s, &s->kernels[i], operand))
            fail_msg("%s: kernel %u reads operand %u, over which kernel %u stores result %u", label,
                     i, operand, stored, result);
    emit_schedule_destroy(s);
}

size_t body_check_proof(const ir_graph_t *graph) {
    nest_t *nest = NULL;
    plan_reuse_t *proof = NULL;
    const char *reason;
    size_t n_planned = 0;
    const uint32_t n_in = ir_body_n_inputs(graph);
    ir_value_t *in = malloc((n_in + 1) * sizeof *in);
    ir_body_inputs(graph, in);
    assert_int_equal(nest_build(graph, &nest, &reason), ST_OK);
    if (nest) assert_int_equal(plan_reuse_open(graph, &proof), ST_OK);
    for (uint32_t k = 0; nest && k < graph->outputs.n; k++)
        for (uint32_t j = 0; j < n_in; j++) {
            const ir_type_t *x = ir_value_type(graph, in[j]), *y = ir_body_output_type(graph, k);
            bool proved;
            if (ir_type_elements(x) != ir_type_elements(y) ||
                ir_type_bytes(x) != ir_type_bytes(y) || !ir_type_bytes(x) ||
                !nest_may_reuse(nest, k, j))
                continue;
            n_planned++;
            assert_int_equal(plan_reuse_allows(proof, k, j, &proved), ST_OK);
            if (proved) continue;
            char *text;
            assert_int_equal(ir_graph_print(graph, &text), ST_OK);
            fail_msg("result %u over operand %u is not proved:\n%s", k, j, text);
        }
    plan_reuse_close(proof);
    nest_destroy(nest);
    free(in);
    return n_planned;
}

uint32_t body_check_in_place(const body_t *body, const char *label) {
    static const char *const impls[] = {"cpu.fused.nest", "cpu.fused.reference"};
    nest_t *nest = NULL;
    plan_reuse_t *proof = NULL;
    const char *reason;
    uint32_t n = 0;
    assert_int_equal(nest_build(body->graph, &nest, &reason), ST_OK);
    assert_non_null(nest);
    assert_int_equal(plan_reuse_open(body->graph, &proof), ST_OK);
    results_t apart[2] = {body_run(body, impls[0], 2), body_run(body, impls[1], 2)};
    for (uint32_t k = 0; k < body->n_out; k++)
        for (uint32_t j = 0; j < body->n_in; j++) {
            if (ir_type_elements(&body->in[j]) != ir_type_elements(&body->out[k]) ||
                ir_type_bytes(&body->in[j]) != ir_type_bytes(&body->out[k]) ||
                !ir_type_bytes(&body->in[j]) || !nest_may_reuse(nest, k, j))
                continue;
            bool proved;
            assert_int_equal(plan_reuse_allows(proof, k, j, &proved), ST_OK);
            if (!proved) fail_msg("%s: result %u over operand %u is not proved", label, k, j);
            n++;
            for (int i = 0; i < 2; i++) run_in_place(body, &apart[i], impls[i], k, j, label);
            check_kernels(nest, k, j, label);
        }
    for (int i = 0; i < 2; i++) results_free(body, &apart[i]);
    plan_reuse_close(proof);
    nest_destroy(nest);
    return n;
}

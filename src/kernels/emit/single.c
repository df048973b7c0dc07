/* Nests of single ops (single.h): the op alone in a body, then as any body. Linear in the body. */
#include "kernels/emit/single.h"

#include <stdio.h>

#include "base/memory.h"

/* A graph whose only node beside its inputs is the problem's. */
static st_status_t make_body(const kern_problem_t *problem, ir_graph_t *body) {
    const ir_op_def_t *def = ir_op_def(problem->op);
    st_arena_t scratch = {0};
    st_status_t status = ST_OK;
    uint32_t n_attrs = ir_op_n_attrs(def);
    ir_value_t *inputs = st_arena_array(&scratch, problem->n_in + 1, sizeof *inputs), first;
    ir_arg_t *args = st_arena_array(&scratch, n_attrs + 1, sizeof *args);
    if (!inputs || !args) TRY_GOTO(st_no_memory(n_attrs * sizeof *args, "a nest"), done);
    for (uint32_t j = 0; j < problem->n_in; j++) {
        const ir_type_t *type = &problem->in[j];
        char name[16];
        snprintf(name, sizeof name, "%u", j);
        const ir_arg_t input[] = {IR_ARG_DTYPE("dtype", type->dtype),
                                  IR_ARG_INTS("shape", type->dims, type->rank),
                                  IR_ARG_INT("batch_axis", -1)};
        TRY_GOTO(ir_graph_add(body, IR_OP_INPUT, name, 0, NULL, 3, input, &inputs[j]), done);
    }
    for (uint32_t i = 0; i < n_attrs; i++)
        args[i] = (ir_arg_t){def->attrs[i].key, problem->attrs[i]};
    TRY_GOTO(ir_graph_add(body, problem->op, NULL, problem->n_in, inputs, n_attrs, args, &first),
             done);
    for (uint32_t k = 0; k < problem->n_out; k++) {
        char name[16];
        snprintf(name, sizeof name, "%u", k);
        TRY_GOTO(ir_graph_append_output(body, name, first + k), done);
    }
done:
    st_arena_clear(&scratch);
    return status;
}

static st_status_t fill(const kern_problem_t *problem, emit_problem_t *out,
                        const char **out_reason) {
    const ir_graph_t *body;
    if (problem->op == IR_OP_FUSED) {
        body = kern_attr(problem, "body")->graph;
    } else {
        TRY(ir_graph_create("", &out->body));
        TRY(make_body(problem, out->body));
        body = out->body;
    }
    st_status_t status = nest_build(body, &out->nest, out_reason);
    if (status == ST_OK && !out->nest) return ST_OK;
    if (status == ST_OK) status = emit_schedule_create(out->nest, &out->schedule);
    if (status != ST_UNSUPPORTED) return status;
    *out_reason = st_last_error();
    return ST_OK;
}

st_status_t emit_problem_create(const kern_problem_t *problem, emit_problem_t *out,
                                const char **out_reason) {
    *out = (emit_problem_t){0};
    *out_reason = "";
    st_status_t status = fill(problem, out, out_reason);
    if (status != ST_OK) emit_problem_clear(out);
    return status;
}

void emit_problem_clear(emit_problem_t *problem) {
    emit_schedule_destroy(problem->schedule);
    nest_destroy(problem->nest);
    ir_graph_destroy(problem->body);
    *problem = (emit_problem_t){0};
}

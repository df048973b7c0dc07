/* Bodies of the conformance cases, by name, in the text form; T is the case's type. And the oracle of
 * the ops that own one: the body node by node, each by the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/body.h"
#include "ir/text.h"
#include "oracle.h"

#define INPUT(dims) "input {dtype=T, shape=[" dims "], batch_axis=-1}\n"

static const struct {
    const char *name, *text;
} bodies[] = {
    /* two operands of which one is broadcast, one result */
    {"bias",
     "graph {\n %x a = " INPUT("3,35") "%b b = " INPUT("35") "%s = add(%x, %b)\n %y = mul(%s, %x)\n"
                                                             "output r = %y }"},
    /* an operand as a result, one value twice, a view of a result, and a view of an operand */
    {"passes",
     "graph {\n %x a = " INPUT(
         "2,6") "%y = neg(%x)\n %v = reshape(%y) {shape=[3,4]}\n"
                "%w = reshape(%x) {shape=[12]}\n"
                "output p = %y output q = %x output r = %y output s = %v output t = %w }"},
    /* a reduction, and what only one of the results needs */
    {"centre", "graph {\n %x a = " INPUT(
                   "4,5") "%m = reduce_mean(%x) {axes=[1], keep=true}\n"
                          "%d = sub(%x, %m)\n %h = square(%d)\n output r = %h output m = %m }"},
    {"empty", "graph {\n %x a = " INPUT("0,3") "%y = exp(%x)\n output r = %y }"},
    {"source", "graph {\n %c = constant {dtype=f32, shape=[3], data=2}\n output r = %c }"},
    /* a body in a body */
    {"nested", "graph {\n %x a = " INPUT("7") "%y = fused(%x) {body=graph {\n %x a = " INPUT(
                   "7") "%y = square(%x)\n output r = %y }}\n %z = add(%y, %x)\n output r = %z }"},
};

ir_graph_t *conf_body(const char *name, ir_dtype_t dtype) {
    char text[4096];
    size_t used = 0;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        if (strcmp(bodies[i].name, name) != 0) continue;
        for (const char *c = bodies[i].text; *c; c++) {
            bool type = c[0] == 'T' && c > bodies[i].text && c[-1] == '=';
            used += (size_t)snprintf(text + used, sizeof text - used, type ? "%s" : "%.1s",
                                     type ? ir_dtype_text(dtype) : c);
            assert_true(used < sizeof text);
        }
        ir_graph_t *body;
        if (ir_graph_parse(text, used, &body) != ST_OK)
            fail_msg("body %s: %s", name, st_last_error());
        return body;
    }
    fail_msg("there is no body '%s'", name);
    return NULL;
}

/* ---- the oracle ---- */

static bool node_by_oracle(const ir_graph_t *body, const ir_node_info_t *node, double **values) {
    conf_built_t *built = calloc(1, sizeof *built);
    double *out[CONF_MAX_OPERANDS];
    assert_true(node->n_inputs <= CONF_MAX_OPERANDS && node->n_outputs <= CONF_MAX_OPERANDS);
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        built->in[j] = *ir_value_type(body, node->inputs[j]);
        built->in_values[j] = values[node->inputs[j]];
    }
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        ir_value_t v = node->first_output + k;
        built->out[k] = *ir_value_type(body, v);
        out[k] = values[v] = calloc((size_t)ir_type_elements(&built->out[k]) + 1, sizeof(double));
    }
    built->problem = (kern_problem_t){node->op,   node->n_inputs, node->n_outputs, built->in,
                                      built->out, node->attrs,    node->name};
    bool known = conf_oracle(built, out);
    free(built);
    return known;
}

bool conf_body_oracle(const ir_graph_t *body, const double *const *in, double *const *out) {
    double **values = calloc(body->values.n + 1, sizeof *values);
    bool known = true;
    for (ir_node_t i = 0; i < body->nodes.n; i++) {
        const ir_node_info_t *node = ir_node(body, i);
        if (node->op == IR_OP_INPUT) {
            size_t n = (size_t)ir_type_elements(ir_value_type(body, node->first_output));
            values[node->first_output] = calloc(n + 1, sizeof(double));
            memcpy(values[node->first_output], *in++, n * sizeof(double));
        } else if (known) {
            known = node_by_oracle(body, node, values);
        }
    }
    for (size_t k = 0; known && k < body->outputs.n; k++)
        memcpy(out[k], values[body->outputs.data[k].value],
               (size_t)ir_type_elements(ir_body_output_type(body, k)) * sizeof(double));
    for (size_t v = 0; v < body->values.n; v++) free(values[v]);
    free(values);
    return known;
}

bool oracle_fused(const o_call_t *c) {
    const double *in[CONF_MAX_OPERANDS];
    for (uint32_t j = 0; j < c->p->n_in; j++) in[j] = c->in[j].v;
    return conf_body_oracle(kern_attr(c->p, "body")->graph, in, c->out);
}

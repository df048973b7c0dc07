/* Bodies of the conformance cases, by name, in the text form; T is the case's type. And the oracle
 * of the ops that own one: the body node by node, each by the oracle. */
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
    /* a recurrence: h' = tanh(h w + x) with h' stacked too, and a counter that is carried */
    {"recurrence",
     "graph {\n %h h = " INPUT(
         "2,3") "%n n = input {dtype=i64, shape=[], batch_axis=-1}\n"
                "%x x = " INPUT("2,3") "%w w = " INPUT(
                    "3,3") "%p = matmul(%h, %w)\n %s = add(%p, %x)\n %y = tanh(%s)\n"
                           "%one = constant {dtype=i64, shape=[], data=1}\n %m = add(%n, %one)\n"
                           "output h = %y output n = %m output y = %y output at = %n }"},
    /* carries that change places; a scanned slice as it is; a view of a carry */
    {"swap", "graph {\n %a a = " INPUT("4") "%b b = " INPUT("4") "%x x = " INPUT(
                 "4") "%s = add(%a, %x)\n %v = reshape(%b) {shape=[2,2]}\n"
                      "output a = %b output b = %s output x = %x output v = %v }"},
    {"sum",
     "graph {\n %x x = " INPUT("5") "%c c = " INPUT("5") "%y = mul(%x, %c)\n output y = %y }"},
    {"power",
     "graph {\n %a a = " INPUT("3") "%c c = " INPUT("3") "%y = mul(%a, %c)\n output y = %y }"},
    /* a loop in a loop */
    {"loops", "graph {\n %a a = " INPUT("2") "%x x = " INPUT("3,2") "%c c = " INPUT(
                  "2") "%s, %t = "
                       "repeat(%a, %x, "
                       "%c) "
                       "{body=graph "
                       "{\n %a a "
                       "= " INPUT("2") "%x x = " INPUT("2") "%c c = " INPUT("2") "%p = "
                                                                                 "mul(%"
                                                                                 "a, "
                                                                                 "%c)\n "
                                                                                 "%y = "
                                                                                 "add(%"
                                                                                 "p, "
                                                                                 "%x)\n "
                                                                                 "%z = "
                                                                                 "sigmoi"
                                                                                 "d(%y)"
                                                                                 "\n"
                                                                                 "output"
                                                                                 " a = "
                                                                                 "%z "
                                                                                 "output"
                                                                                 " p = "
                                                                                 "%p }, "
                                                                                 "trip="
                                                                                 "3, "
                                                                                 "carrie"
                                                                                 "d=1, "
                                                                                 "scanne"
                                                                                 "d=1}\n"
                                                                                 "output"
                                                                                 " a = "
                                                                                 "%s "
                                                                                 "output"
                                                                                 " t = "
                                                                                 "%t }"},
    {"plus",
     "graph {\n %a a = " INPUT("3") "%b b = " INPUT("3") "%y = add(%a, %b)\n %z = square(%y)\n"
                                                         "output y = %z output b = %b }"},
    {"times", "graph {\n %a a = " INPUT("3") "%b b = " INPUT("3") "%y = mul(%a, %b)\n"
                                                                  "output y = %y output b = %a }"},
    /* rows of a table, as they are and normalized, beside the whole table */
    {"looked_up",
     "graph {\n %t a = " INPUT("9,16") "%w w = " INPUT(
         "16") "%n = neg(%t)\n"
               "%i = constant {dtype=i64, shape=[4], data=[7,0,7,8]}\n %r = gather(%t, %i) "
               "{axis=0}\n"
               "%s = square(%r)\n %m = reduce_mean(%s) {axes=[1], keep=true}\n %y = mul(%r, %m)\n"
               "%z = mul(%y, %w)\n output n = %n output r = %r output z = %z output m = %m }"},
    /* a result along rows, and sums over all rows of what the rows are made from */
    {"scaled_rows", "graph {\n %x a = " INPUT("300,16") "%d d = " INPUT(
                        "300,16") "%p = mul(%x, %d)\n"
                                  "%m = reduce_mean(%p) {axes=[1], keep=true}\n %q = mul(%x, %m)\n "
                                  "%y = sub(%d, %q)\n"
                                  "%s = reduce_sum(%p) {axes=[0], keep=false}\n"
                                  "%b = reduce_sum(%d) {axes=[0], keep=false}\n output y = %y "
                                  "output s = %s output b = %b }"},
    /* statistics of columns whose mean is a hundred times what they vary by, and what comes of
     * them */
    {"statistics",
     "graph {\n %x a = " INPUT("300,24") "%k = constant {dtype=T, shape=[], data=0.0625}\n"
                                         "%o = constant {dtype=T, shape=[], data=64}\n"
                                         "%s = mul(%x, %k)\n %y = add(%s, %o)\n"
                                         "%m = reduce_mean(%y) {axes=[0], keep=true}\n"
                                         "%d = sub(%y, %m)\n %q = square(%d)\n"
                                         "%v = reduce_mean(%q) {axes=[0], keep=true}\n"
                                         "%z = mul(%x, %v)\n"
                                         "output z = %z output m = %m output v = %v }"},
    /* the same of channels that lie inside, of three blocks each and a rest */
    {"inner_statistics",
     "graph {\n %x a = " INPUT("3,40,1100") "%m = reduce_mean(%x) {axes=[0,2], keep=true}\n"
                                            "%d = sub(%x, %m)\n %q = mul(%d, %d)\n"
                                            "%v = reduce_sum(%q) {axes=[0,2], keep=false}\n"
                                            "output m = %m output v = %v }"},
    /* rows too long for a warp: a maximum and the exponentials less it, and what comes of their sum
       over all rows */
    {"long_rows",
     "graph {\n %x a = " INPUT("30,1400") "%m = reduce_max(%x) {axes=[1], keep=true}\n"
                                          "%d = sub(%x, %m)\n %e = exp(%d)\n"
                                          "%s = reduce_sum(%e) {axes=[1], keep=true}\n"
                                          "%l = log(%s)\n %h = add(%l, %m)\n"
                                          "%t = reduce_mean(%h) {axes=[0], keep=true}\n"
                                          "%c = sub(%x, %h)\n %p = exp(%c)\n %y = mul(%p, %t)\n"
                                          "output y = %y output t = %t }"},
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

/* Slice i of a stack of slices of `n` elements. */
static const double *slice_of(const double *stack, int64_t n, int64_t i) {
    return stack + n * i;
}

bool oracle_repeat(const o_call_t *c) {
    const ir_graph_t *body = kern_attr(c->p, "body")->graph;
    const int64_t trip = attr_int(c, "trip"), carried = attr_int(c, "carried");
    const int64_t scanned = attr_int(c, "scanned");
    double *next[CONF_MAX_OPERANDS];
    bool known = true;
    for (int64_t j = 0; j < carried; j++) {
        size_t bytes = (size_t)count(c->in[j].type) * sizeof(double);
        memcpy(c->out[j], c->in[j].v, bytes);
        next[j] = malloc(bytes + 1);
    }
    for (int64_t n = 0; known && n < trip; n++) {
        const double *in[CONF_MAX_OPERANDS];
        double *out[CONF_MAX_OPERANDS];
        int64_t i = attr_int(c, "reverse") ? trip - 1 - n : n;
        for (uint32_t j = 0; j < c->p->n_in; j++)
            in[j] = j < carried             ? c->out[j]
                    : j < carried + scanned ? slice_of(c->in[j].v, count(c->in[j].type) / trip, i)
                                            : c->in[j].v;
        for (uint32_t k = 0; k < c->p->n_out; k++)
            out[k] = k < carried ? next[k] : c->out[k] + count(&c->p->out[k]) / trip * i;
        known = conf_body_oracle(body, in, out);
        for (int64_t j = 0; j < carried; j++)
            memcpy(c->out[j], next[j], (size_t)count(c->in[j].type) * sizeof(double));
    }
    for (int64_t j = 0; j < carried; j++) free(next[j]);
    return known;
}

bool oracle_cond(const o_call_t *c) {
    const double *in[CONF_MAX_OPERANDS];
    for (uint32_t j = 1; j < c->p->n_in; j++) in[j - 1] = c->in[j].v;
    return conf_body_oracle(kern_attr(c->p, c->in[0].v[0] != 0 ? "then" : "else")->graph, in,
                            c->out);
}

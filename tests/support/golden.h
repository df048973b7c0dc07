/* Golden tests of passes: text in, text out. To be included behind <cmocka.h>; in a header, since
 * not all folders of tests link graphs. */
#ifndef STATOR_TESTS_SUPPORT_GOLDEN_H
#define STATOR_TESTS_SUPPORT_GOLDEN_H

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ir/text.h"
#include "ir/verify.h"

/* A graph's whole text. */
static inline ir_graph_t *golden_read(const char *text) {
    ir_graph_t *graph;
    if (ir_graph_parse(text, strlen(text), &graph) != ST_OK) fail_msg("%s", st_last_error());
    return graph;
}

/* The statements between its braces. */
static inline ir_graph_t *golden_parse(const char *statements) {
    char text[8192];
    int used = snprintf(text, sizeof text, "graph \"g\" {\n%s}\n", statements);
    assert_true(used > 0 && (size_t)used < sizeof text);
    return golden_read(text);
}

/* The graph verifies, and prints as `wanted` does. */
static inline void assert_prints_as(const ir_graph_t *graph, const ir_graph_t *wanted) {
    char *got, *expected;
    if (ir_graph_verify(graph) != ST_OK) fail_msg("%s", st_last_error());
    assert_int_equal(ir_graph_print(graph, &got), ST_OK);
    assert_int_equal(ir_graph_print(wanted, &expected), ST_OK);
    assert_string_equal(got, expected);
    st_free(got);
    st_free(expected);
}

/* Both texts are the statements between a graph's braces; types need not be given. Fails unless the
 * pass makes of `before` a graph that verifies and prints as `after` does. */
static inline void assert_becomes(st_status_t (*pass)(const ir_graph_t *graph,
                                                      ir_graph_t **out_graph),
                                  const char *before, const char *after) {
    ir_graph_t *graph = golden_parse(before), *wanted = golden_parse(after), *made = NULL;
    if (pass(graph, &made) != ST_OK) fail_msg("%s", st_last_error());
    assert_prints_as(made, wanted);
    ir_graph_destroy(graph);
    ir_graph_destroy(wanted);
    ir_graph_destroy(made);
}

#endif

/* Pins (pins.h). */
#include "shard/pins.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/words.h"

enum { PATTERN_BYTES = 256 };

typedef struct user_pin {
    char pattern[PATTERN_BYTES];
    ir_placement_t placement;
    uint32_t axis;
} user_pin_t;

static st_status_t no_pin(const char *text, size_t length) {
    return FAIL(ST_INVALID,
                "'%.*s' is no pin: PATTERN=split(DIM,AXIS) or PATTERN=whole(AXIS) is needed",
                (int)length, text);
}

/* The pin written in text[0 … length). */
static st_status_t parse_pin(const char *text, size_t length, const ir_mesh_t *mesh,
                             user_pin_t *out) {
    char line[2 * PATTERN_BYTES], axis[IR_AXIS_NAME_BYTES] = "";
    char number[PATTERN_BYTES];
    int64_t dim = 0;
    int end = 0;
    if (length >= sizeof line) return no_pin(text, length);
    memcpy(line, text, length);
    line[length] = '\0';
    char *equals = strrchr(line, '=');
    if (!equals || equals == line || (size_t)(equals - line) >= sizeof out->pattern)
        return no_pin(text, length);
    *equals = '\0';
    memcpy(out->pattern, line, (size_t)(equals - line) + 1);
    const char *what = equals + 1;
    if (sscanf(what, "split(%255[0-9],%15[a-z])%n", number, axis, &end) == 2 && end > 0 &&
        !what[end]) {
        if (!st_int_parse(number, strlen(number), &dim) || dim >= IR_MAX_RANK)
            return FAIL(ST_INVALID, "pin '%.*s': no tensor has a dim %s; 0 to %d are possible",
                        (int)length, text, number, IR_MAX_RANK - 1);
        out->placement = IR_PLACE_SPLIT((int32_t)dim, IR_GRANULES_EACH);
    } else if (sscanf(what, "whole(%15[a-z])%n", axis, &end) == 1 && end > 0 && !what[end]) {
        out->placement = IR_PLACE_REPLICATE;
    } else {
        return no_pin(text, length);
    }
    if (strcmp(axis, IR_AXIS_PIPE) == 0)
        return FAIL(
            ST_INVALID,
            "pin '%.*s': ranks of axis '%s' have stages of the layers; no tensor is split or "
            "whole along it",
            (int)length, text, axis);
    out->axis = ir_mesh_find(mesh, axis);
    if (out->axis != IR_NONE) return ST_OK;
    char buffer[IR_MESH_TEXT_BYTES];
    return FAIL(ST_INVALID, "pin '%.*s': the mesh %s has no axis '%s'", (int)length, text,
                ir_mesh_text(mesh, buffer, sizeof buffer), axis);
}

/* The next pin from *at on; false at the end. */
static bool next_pin(const char **at, size_t *out_length) {
    *at += strspn(*at, "; ");
    *out_length = strcspn(*at, ";");
    return **at != '\0';
}

static bool is_pinned(const user_pin_t *pin, const ir_node_info_t *node) {
    return node->n_outputs && node->name[0] && st_glob(pin->pattern, node->name);
}

st_status_t shard_pins_check(const char *text, const ir_mesh_t *mesh, const ir_graph_t *graph) {
    size_t length;
    for (const char *at = text; next_pin(&at, &length); at += length) {
        user_pin_t pin;
        bool any = false;
        TRY(parse_pin(at, length, mesh, &pin));
        for (ir_node_t n = 0; n < graph->nodes.n; n++) {
            const ir_node_info_t *node = ir_node(graph, n);
            if (!is_pinned(&pin, node)) continue;
            const ir_type_t *type = ir_value_type(graph, node->first_output);
            char buffer[IR_TYPE_TEXT_BYTES];
            any = true;
            if (pin.placement.kind == IR_SPLIT && pin.placement.dim >= type->rank)
                return FAIL(ST_INVALID, "pin '%.*s': '%s' is %s, which has no dim %d", (int)length,
                            at, node->name, ir_type_text(type, buffer, sizeof buffer),
                            (int)pin.placement.dim);
        }
        if (!any)
            return FAIL(ST_INVALID, "pin '%.*s': no parameter, buffer or node has a name like '%s'",
                        (int)length, at, pin.pattern);
    }
    return ST_OK;
}

static st_status_t apply(const user_pin_t *pin, const ir_graph_t *graph, ir_node_t n,
                         shard_settled_t *settled) {
    const ir_node_info_t *node = ir_node(graph, n);
    const ir_value_t v = node->first_output;
    if ((ir_op_def(node->op)->flags & IR_STATE) ||
        (node->op == IR_OP_INPUT && settled->places_inputs)) {
        settled->homes[n] = pin->placement;
        return ST_OK;
    }
    size_t kept = 0;
    for (size_t i = 0; i < settled->pins.n; i++)
        if (settled->pins.data[i].value != v) settled->pins.data[kept++] = settled->pins.data[i];
    settled->pins.n = kept;
    return shard_settle_pin(settled, v, pin->placement, SHARD_ALL_PHASES, false);
}

st_status_t shard_pins_apply(const char *text, const ir_mesh_t *mesh, uint32_t axis,
                             const ir_graph_t *graph, shard_settled_t *settled) {
    size_t length;
    for (const char *at = text; next_pin(&at, &length); at += length) {
        user_pin_t pin;
        TRY(parse_pin(at, length, mesh, &pin));
        for (ir_node_t n = 0; n < graph->nodes.n && pin.axis == axis; n++)
            if (is_pinned(&pin, ir_node(graph, n))) TRY(apply(&pin, graph, n, settled));
    }
    return ST_OK;
}

st_status_t shard_pins_states(const char *text, const ir_mesh_t *mesh, uint32_t axis,
                              const ir_graph_t *graph, st_arena_t *arena,
                              const ir_placement_t *const **out_states) {
    const ir_placement_t **states = st_arena_array(arena, graph->nodes.n, sizeof *states);
    size_t length;
    *out_states = states;
    if (!states) return st_no_memory(graph->nodes.n * sizeof *states, "pins");
    for (const char *at = text; next_pin(&at, &length); at += length) {
        user_pin_t pin;
        TRY(parse_pin(at, length, mesh, &pin));
        for (ir_node_t n = 0; n < graph->nodes.n && pin.axis == axis; n++) {
            const ir_node_info_t *node = ir_node(graph, n);
            if (!(ir_op_def(node->op)->flags & IR_STATE) || !is_pinned(&pin, node)) continue;
            ir_placement_t *placement = st_arena_copy(arena, &pin.placement, sizeof *placement);
            if (!placement) return st_no_memory(sizeof *placement, "pins");
            if (placement->kind == IR_SPLIT)
                placement->granules =
                    ir_value_type(graph, node->first_output)->dims[placement->dim];
            states[n] = placement;
        }
    }
    return ST_OK;
}

/* Lowering to a mesh (mesh.h). */
#include "shard/mesh.h"

#include <string.h>

#include "base/memory.h"
#include "ir/structure.h"
#include "shard/pins.h"

/* Distinct graphs, and which one each combination of coordinates has. Combinations count the axes
 * that are done in the order of lowering, the last fastest. */
typedef struct level {
    uint32_t n_graphs;
    ir_graph_t **graphs; /* owned */
    uint64_t *hashes;
    uint32_t n; /* combinations */
    uint32_t *graph_of;
    const uint32_t *class_of; /* [combinations]; NULL: one class */
} level_t;

static void level_free(level_t *level) {
    for (uint32_t g = 0; g < level->n_graphs; g++) ir_graph_destroy(level->graphs[g]);
    st_free(level->graphs);
    st_free(level->hashes);
    st_free(level->graph_of);
    *level = (level_t){0};
}

static st_status_t level_open(level_t *level, uint32_t n) {
    *level = (level_t){.n = n};
    level->graphs = st_calloc(n, sizeof *level->graphs);
    level->hashes = st_calloc(n, sizeof *level->hashes);
    level->graph_of = st_calloc(n, sizeof *level->graph_of);
    return level->graphs && level->hashes && level->graph_of
               ? ST_OK
               : st_no_memory(n * sizeof *level->graphs, "the ranks' programs");
}

/* Nodes, attributes, outputs and phases. */
static bool same_program(const ir_graph_t *a, const ir_graph_t *b) {
    if (!ir_graph_equal(a, b)) return false;
    for (ir_node_t n = 0; n < a->nodes.n; n++)
        if (ir_node(a, n)->phase != ir_node(b, n)->phase) return false;
    return true;
}

/* Gives combination `at` the graph, which the level takes over. */
static void level_add(level_t *level, uint32_t at, ir_graph_t *graph) {
    uint64_t hash = ir_graph_hash(graph, 0);
    uint32_t class_at = level->class_of ? level->class_of[at] : 0;
    for (uint32_t other = 0; other < at; other++) {
        uint32_t g = level->graph_of[other];
        if (level->hashes[g] != hash || (level->class_of && level->class_of[other] != class_at) ||
            !same_program(level->graphs[g], graph))
            continue;
        ir_graph_destroy(graph);
        level->graph_of[at] = g;
        return;
    }
    level->graphs[level->n_graphs] = graph;
    level->hashes[level->n_graphs] = hash;
    level->graph_of[at] = level->n_graphs++;
}

/* ---- one axis ---- */

typedef struct lowering {
    const shard_mesh_options_t *options;
    const ir_graph_t *global;
    shard_programs_t *out;
    level_t level;
} lowering_t;

static uint32_t largest_graph(const level_t *level) {
    uint32_t largest = 0;
    uint64_t most = 0;
    for (uint32_t g = 0; g < level->n_graphs; g++) {
        uint64_t bytes = ir_graph_value_bytes(level->graphs[g]);
        if (bytes > most) most = bytes, largest = g;
    }
    return largest;
}

typedef ir_value_t (*find_t)(const ir_graph_t *graph, const char *name);

static ir_value_t find_node(const ir_graph_t *graph, const char *name) {
    return ir_node(graph, ir_graph_find(graph, name))->first_output;
}

/* Granules of a split are those of all ranks, unless every element is one. */
static void note_layout(const lowering_t *l, uint32_t axis, shard_lowering_t *const *decided,
                        find_t find, const char *name, ir_placement_t placement,
                        shard_layout_t *layout) {
    const ir_mesh_t *mesh = l->options->mesh;
    bool each = placement.kind == IR_SPLIT, same = true, again = false;
    for (uint32_t g = 0; g < l->level.n_graphs && placement.kind == IR_SPLIT; g++) {
        ir_value_t v = find(l->level.graphs[g], name);
        int64_t granules = shard_value_placement(decided[g], v).granules;
        const int64_t size = ir_value_type(l->level.graphs[g], v)->dims[placement.dim];
        each &= size == 0 || granules == size; /* of nothing there may be any number */
        same &= granules == placement.granules;
    }
    for (uint32_t a = 0; a < mesh->n; a++)
        again |= a != axis && layout->placements[a].kind == IR_SPLIT &&
                 layout->placements[a].dim == placement.dim;
    if (each && (again || !same)) placement.granules = IR_GRANULES_EACH;
    layout->placements[axis] = placement;
}

static void note_layouts(lowering_t *l, uint32_t axis, uint32_t largest,
                         shard_lowering_t *const *decided) {
    const ir_graph_t *graph = l->level.graphs[largest];
    for (ir_node_t n = 0; n < l->global->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(l->global, n);
        if (node->op != IR_OP_INPUT && !(ir_op_def(node->op)->flags & IR_STATE)) continue;
        ir_placement_t placement =
            shard_value_placement(decided[largest], find_node(graph, node->name));
        note_layout(l, axis, decided, find_node, node->name, placement, &l->out->nodes[n]);
    }
    for (size_t o = 0; o < l->global->outputs.n; o++)
        note_layout(l, axis, decided, ir_graph_find_output, l->global->outputs.data[o].name,
                    shard_output_placement(decided[largest], o), &l->out->outputs[o]);
}

static bool is_axis(const ir_mesh_t *mesh, uint32_t axis, const char *name) {
    return strcmp(mesh->axes[axis].name, name) == 0;
}

/* What is settled of the axis, said of the largest graph. */
static st_status_t settle(const lowering_t *l, uint32_t axis, const ir_graph_t *graph,
                          shard_settled_t *settled) {
    const shard_mesh_options_t *o = l->options;
    const bool data = is_axis(o->mesh, axis, IR_AXIS_DATA);
    bool given = false;
    TRY(shard_settled_open(graph, settled));
    settled->axis = o->mesh->axes[axis].name;
    settled->n_ranks = o->mesh->axes[axis].size;
    if (o->settle && !o->home_of) return o->settle(o->settle_context, graph, axis, settled);
    if (!data || !o->home_of) TRY(shard_form_axis(graph, o->form, o->context_attention, settled));
    for (ir_node_t n = 0; n < graph->nodes.n && o->home_of; n++) {
        const ir_node_info_t *node = ir_node(graph, n);
        if (!(ir_op_def(node->op)->flags & IR_STATE)) continue;
        const ir_placement_t *homes = o->home_of(o->context, node->name);
        if (homes) settled->homes[n] = homes[axis];
        given |= homes != NULL;
    }
    return data && given ? shard_gather_states(graph, settled) : ST_OK;
}

/* The graphs with what is settled worked in, which take the place of the level's. */
static st_status_t prepare(lowering_t *l, uint32_t axis, shard_prepared_t *prepared) {
    shard_settled_t settled = {0};
    const ir_graph_t *graph = l->level.graphs[largest_graph(&l->level)];
    const shard_mesh_options_t *o = l->options;
    const uint32_t pipe = ir_mesh_find(o->mesh, IR_AXIS_PIPE);
    st_status_t status = ST_OK;
    if (is_axis(o->mesh, axis, IR_AXIS_CONTEXT) && o->context_attention == SHARD_CONTEXT_RING &&
        pipe != IR_NONE && o->mesh->axes[pipe].size > 1)
        return FAIL(ST_UNSUPPORTED,
                    "keys do not go round within stages of a pipeline: --context-attention gather");
    status = settle(l, axis, graph, &settled);
    if (status == ST_OK && o->pins && !o->home_of)
        status = shard_pins_apply(o->pins, o->mesh, axis, graph, &settled);
    for (uint32_t g = 0; g < l->level.n_graphs && status == ST_OK; g++) {
        status = shard_prepare(l->level.graphs[g], &settled, &prepared[g]);
        if (status != ST_OK) break;
        ir_graph_destroy(l->level.graphs[g]);
        l->level.graphs[g] = prepared[g].graph;
        prepared[g].graph = NULL;
    }
    shard_settled_free(&settled);
    return status;
}

static st_status_t decide(lowering_t *l, uint32_t axis, const shard_prepared_t *prepared,
                          shard_lowering_t **decided) {
    const ir_mesh_t *mesh = l->options->mesh;
    const shard_lowering_t *like = NULL;
    const uint32_t largest = largest_graph(&l->level);
    for (uint32_t i = 0; i < l->level.n_graphs; i++) {
        const uint32_t g = i == 0 ? largest : i <= largest ? i - 1 : i; /* the largest first */
        const shard_axis_t what = {.name = mesh->axes[axis].name,
                                   .n_ranks = mesh->axes[axis].size,
                                   .splits_batch = is_axis(mesh, axis, IR_AXIS_DATA) ||
                                                   is_axis(mesh, axis, IR_AXIS_EXPERT),
                                   .like = like,
                                   .has_others = l->level.n_graphs > 1,
                                   .forced = prepared[g].forced,
                                   .homes = prepared[g].homes,
                                   .places_inputs = prepared[g].places_inputs};
        TRY(shard_decide(l->level.graphs[g], &what, &decided[g]));
        if (i == 0) like = decided[g];
    }
    note_layouts(l, axis, largest, decided);
    return ST_OK;
}

/* The graphs of all coordinates on the axis. */
static st_status_t emit(const level_t *from, shard_lowering_t *const *decided, uint32_t size,
                        level_t *to) {
    for (uint32_t at = 0; at < from->n; at++) {
        const shard_lowering_t *lowering = decided[from->graph_of[at]];
        uint32_t first = 0; /* combination of the same graph, whose results are this one's too */
        while (from->graph_of[first] != from->graph_of[at]) first++;
        for (uint32_t c = 0; c < size; c++) {
            uint32_t same = 0;
            const uint32_t own = at * size + c;
            while (same < c &&
                   !(shard_same_graph(lowering, same, c) &&
                     (!to->class_of || to->class_of[at * size + same] == to->class_of[own])))
                same++;
            if (first < at && !to->class_of) {
                to->graph_of[own] = to->graph_of[first * size + c];
            } else if (same < c) {
                to->graph_of[own] = to->graph_of[at * size + same];
            } else {
                ir_graph_t *made;
                TRY(shard_emit(lowering, c, &made));
                level_add(to, own, made);
            }
        }
    }
    return ST_OK;
}

static st_status_t lower_axis(lowering_t *l, uint32_t axis, const uint32_t *class_of) {
    const uint32_t size = l->options->mesh->axes[axis].size, n = l->level.n_graphs;
    level_t next = {0};
    shard_lowering_t **decided = st_calloc(n, sizeof(shard_lowering_t *));
    shard_prepared_t *prepared = st_calloc(n, sizeof *prepared);
    st_status_t status =
        decided && prepared ? ST_OK : st_no_memory(n * sizeof *prepared, "the lowering");
    if (status == ST_OK && size > 1) status = prepare(l, axis, prepared);
    if (status == ST_OK) status = decide(l, axis, prepared, decided);
    if (status == ST_OK) status = level_open(&next, l->level.n * size);
    next.class_of = class_of;
    if (status == ST_OK) status = emit(&l->level, decided, size, &next);
    for (uint32_t g = 0; g < n; g++) {
        if (decided) shard_lowering_destroy(decided[g]);
        if (prepared) shard_prepared_free(&prepared[g]);
    }
    st_free(decided);
    st_free(prepared);
    level_free(&l->level);
    l->level = next;
    return status;
}

/* ---- the pipe axis ---- */

/* Ranks that hold the state in the plan whose state is shared. */
static uint64_t held_by(void *context, const char *name) {
    const shard_mesh_options_t *o = context;
    const ir_placement_t *homes = o->home_of(o->context, name);
    const uint32_t axis = ir_mesh_find(o->mesh, IR_AXIS_PIPE);
    if (!homes) return 0;
    return homes[axis].kind == IR_HELD ? (uint64_t)homes[axis].granules : UINT64_MAX;
}

static ir_placement_t held_where(uint64_t ranks, uint32_t size) {
    return ranks == (1ull << size) - 1 ? IR_PLACE_REPLICATE : IR_PLACE_HELD((int64_t)ranks);
}

/* Where the ranks of the first combination have ports. */
static void note_stages(lowering_t *l, uint32_t axis, ir_graph_t *const *made) {
    const uint32_t size = l->options->mesh->axes[axis].size;
    for (ir_node_t n = 0; n < l->global->nodes.n; n++) {
        const ir_node_info_t *node = ir_node(l->global, n);
        uint64_t ranks = 0;
        if (node->op != IR_OP_INPUT && !(ir_op_def(node->op)->flags & IR_STATE)) continue;
        for (uint32_t c = 0; c < size; c++)
            ranks |= (uint64_t)(ir_graph_find(made[c], node->name) != IR_NONE) << c;
        l->out->nodes[n].placements[axis] = held_where(ranks, size);
    }
    for (size_t o = 0; o < l->global->outputs.n; o++) {
        uint64_t ranks = 0;
        const char *name = l->global->outputs.data[o].name;
        for (uint32_t c = 0; c < size; c++)
            ranks |= (uint64_t)(ir_graph_find_output(made[c], name) != IR_NONE) << c;
        l->out->outputs[o].placements[axis] = held_where(ranks, size);
    }
}

/* Takes the graphs over, those of one stage after the other. Combinations of one graph share its
 * parts, unless their classes differ. */
static st_status_t share_stages(const level_t *from, uint32_t size, ir_graph_t **made,
                                level_t *to) {
    for (uint32_t c = 0; c < size; c++)
        for (uint32_t at = 0; at < from->n; at++) {
            const uint32_t own = at * size + c, g = from->graph_of[at];
            uint32_t same = 0;
            while (same < at &&
                   (from->graph_of[same] != g ||
                    (to->class_of && to->class_of[same * size + c] != to->class_of[own])))
                same++;
            if (same < at) {
                to->graph_of[own] = to->graph_of[same * size + c];
                continue;
            }
            to->graph_of[own] = to->n_graphs;
            ir_graph_t **graph = &made[g * size + c], **kept = &to->graphs[to->n_graphs];
            TRY(ir_graph_copy(*graph, kept));
            to->n_graphs++;
        }
    return ST_OK;
}

static st_status_t lower_pipe(lowering_t *l, uint32_t axis, const uint32_t *class_of) {
    const shard_mesh_options_t *o = l->options;
    const uint32_t size = o->mesh->axes[axis].size, n = l->level.n_graphs;
    shard_pipe_t pipe = o->pipe;
    level_t next = {0};
    pipe.axis = o->mesh->axes[axis].name;
    pipe.n_ranks = size;
    if (o->home_of) pipe.held_by = held_by, pipe.context = (void *)(uintptr_t)o;
    ir_graph_t **made = st_calloc((size_t)n * size, sizeof *made);
    if (!made) return st_no_memory((size_t)n * size * sizeof *made, "the lowering");
    st_status_t status =
        shard_pipe_lower(&pipe, n, l->level.graphs, largest_graph(&l->level), made);
    if (status == ST_OK) status = level_open(&next, l->level.n * size);
    next.class_of = class_of;
    if (status == ST_OK) note_stages(l, axis, made);
    if (status == ST_OK) status = share_stages(&l->level, size, made, &next);
    for (uint32_t i = 0; i < n * size; i++) ir_graph_destroy(made[i]);
    st_free(made);
    level_free(&l->level);
    l->level = next;
    return status;
}

/* ---- all axes ---- */

/* Combination of a rank: its coordinates in the order of lowering. */
static uint32_t combination_of(const ir_mesh_t *mesh, const uint32_t *order, uint32_t n_axes,
                               uint32_t rank) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < n_axes; i++)
        at = at * mesh->axes[order[i]].size + ir_mesh_coordinate(mesh, rank, order[i]);
    return at;
}

static st_status_t lower_all(lowering_t *l, const uint32_t *order, uint32_t *classes) {
    const ir_mesh_t *mesh = l->options->mesh;
    TRY(level_open(&l->level, 1));
    TRY(ir_graph_copy(l->global, &l->level.graphs[0]));
    l->level.n_graphs = 1;
    for (uint32_t r = 0; l->options->class_of && r < ir_mesh_ranks(mesh); r++)
        classes[combination_of(mesh, order, mesh->n, r)] = l->options->class_of[r];
    for (uint32_t i = 0; i < mesh->n; i++) {
        const uint32_t *last = l->options->class_of && i + 1 == mesh->n ? classes : NULL;
        const bool pipe = strcmp(mesh->axes[order[i]].name, IR_AXIS_PIPE) == 0;
        if (pipe && mesh->axes[order[i]].size > 1)
            TRY(lower_pipe(l, order[i], last));
        else
            TRY(lower_axis(l, order[i], last));
    }
    for (uint32_t r = 0; r < ir_mesh_ranks(mesh); r++)
        l->out->program_of[r] = l->level.graph_of[combination_of(mesh, order, mesh->n, r)];
    l->out->n_programs = l->level.n_graphs;
    l->out->graphs = l->level.graphs;
    l->level.graphs = NULL;
    l->level.n_graphs = 0;
    return ST_OK;
}

st_status_t shard_lower_mesh(const ir_graph_t *graph, const shard_mesh_options_t *options,
                             shard_programs_t *out) {
    const uint32_t n_ranks = ir_mesh_ranks(options->mesh);
    uint32_t order[IR_MAX_AXES];
    lowering_t l = {.options = options, .global = graph, .out = out};
    *out = (shard_programs_t){0};
    ir_mesh_order(options->mesh, order);
    uint32_t *classes = st_calloc(n_ranks, sizeof *classes);
    out->program_of = st_calloc(n_ranks, sizeof *out->program_of);
    out->nodes = st_calloc(graph->nodes.n, sizeof *out->nodes);
    out->outputs = st_calloc(graph->outputs.n, sizeof *out->outputs);
    st_status_t status = classes && out->program_of && out->nodes && out->outputs
                             ? ST_OK
                             : st_no_memory(graph->nodes.n * sizeof *out->nodes, "the lowering");
    if (status == ST_OK && options->pins && !options->home_of)
        status = shard_pins_check(options->pins, options->mesh, graph);
    if (status == ST_OK) status = lower_all(&l, order, classes);
    level_free(&l.level);
    st_free(classes);
    return status;
}

void shard_programs_free(shard_programs_t *programs) {
    for (uint32_t p = 0; p < programs->n_programs; p++) ir_graph_destroy(programs->graphs[p]);
    st_free(programs->graphs);
    st_free(programs->program_of);
    st_free(programs->nodes);
    st_free(programs->outputs);
    *programs = (shard_programs_t){0};
}

/* Parts of global tensors (internal.h). */
#include "exec/internal.h"

exec_part_t exec_part_make(const plan_t *plan, const plan_port_t *port, uint32_t rank,
                           void *local) {
    exec_part_t part = {.local = local, .type = port->type};
    ir_mesh_box(&plan->mesh, port->placements, &port->type, rank, &part.box);
    part.delivers = !part.box.none && ir_mesh_is_first_holder(&plan->mesh, port->placements, rank);
    return part;
}

typedef struct each {
    const exec_part_t *part;
    exec_move_t move;
    void *context;
} each_t;

static st_status_t move_run(void *context, size_t in_whole, size_t in_part, size_t bytes) {
    const each_t *each = context;
    return each->move(each->context, (char *)each->part->local + in_part, in_whole, bytes);
}

st_status_t exec_part_each_in(const exec_part_t *part, const ir_box_t *box, exec_move_t move,
                              void *context) {
    each_t each = {part, move, context};
    return ir_box_runs(&part->type, box, &part->box, move_run, &each);
}

st_status_t exec_part_each(const exec_part_t *part, exec_move_t move, void *context) {
    const ir_box_t whole = ir_box_whole(&part->type);
    return exec_part_each_in(part, &whole, move, context);
}

st_status_t exec_part_each_within(const exec_part_t *part, const ir_box_t *box, size_t offset,
                                  size_t bytes, exec_move_t move, void *context) {
    each_t each = {part, move, context};
    return ir_box_runs_within(&part->type, box, offset, bytes, &part->box, move_run, &each);
}

st_status_t exec_move_in(void *moved, void *local, size_t offset, size_t bytes) {
    const exec_moved_t *m = moved;
    return m->rank->device->copy_in(m->rank->stream, local, m->from + offset, bytes);
}

st_status_t exec_move_out(void *moved, void *local, size_t offset, size_t bytes) {
    const exec_moved_t *m = moved;
    return m->rank->device->copy_out(m->rank->stream, m->to + offset, local, bytes);
}

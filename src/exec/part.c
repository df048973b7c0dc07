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

st_status_t exec_part_each(const exec_part_t *part, exec_move_t move, void *context) {
    const ir_box_t whole = ir_box_whole(&part->type);
    each_t each = {part, move, context};
    return ir_box_runs(&part->type, &whole, &part->box, move_run, &each);
}

/* Parts of global tensors (internal.h). */
#include "exec/internal.h"

exec_part_t exec_part_make(const plan_t *plan, const plan_port_t *port, uint32_t rank,
                           void *local) {
    exec_part_t part = {.local = local, .type = port->type};
    ir_mesh_box(&plan->mesh, port->placements, &port->type, rank, &part.box);
    part.delivers = ir_mesh_is_first_holder(&plan->mesh, port->placements, rank);
    return part;
}

/* Everything behind the last dim that is cut lies together. */
st_status_t exec_part_each(const exec_part_t *part, exec_move_t move, void *context) {
    const ir_type_t *type = &part->type;
    const ir_box_t *box = &part->box;
    int32_t cut = type->rank - 1;
    int64_t at[IR_MAX_RANK] = {0}; /* in the part */
    size_t pitch[IR_MAX_RANK + 1]; /* bytes of one step along the dim, in the global tensor */
    pitch[type->rank] = ir_dtype_bytes(type->dtype);
    for (int32_t d = type->rank; d-- > 0;)
        pitch[d] =
            d + 1 == type->rank ? pitch[type->rank] : pitch[d + 1] * (size_t)type->dims[d + 1];
    while (cut >= 0 && box->extent[cut] == type->dims[cut]) cut--;
    size_t run = cut < 0 ? ir_type_bytes(type) : pitch[cut] * (size_t)box->extent[cut];
    size_t first = cut < 0 ? 0 : pitch[cut] * (size_t)box->begin[cut];
    char *local = part->local;
    for (int32_t d = 0; d < type->rank; d++)
        if (!box->extent[d]) return ST_OK;
    for (;;) {
        size_t offset = first;
        for (int32_t d = 0; d < cut; d++) offset += pitch[d] * (size_t)(box->begin[d] + at[d]);
        if (run) TRY(move(context, local, offset, run));
        local += run;
        int32_t d = cut - 1;
        while (d >= 0 && ++at[d] == box->extent[d]) at[d--] = 0;
        if (d < 0) return ST_OK;
    }
}

/* State by name: whole, or the parts that this process keeps (session.h). */
#include <string.h>

#include "exec/internal.h"

static st_status_t find_state(const exec_session_t *session, const char *name,
                              const plan_port_t **out_state) {
    *out_state = plan_state(session->plan, name);
    return *out_state ? ST_OK : FAIL(ST_NOT_FOUND, "there is no parameter or buffer '%s'", name);
}

static st_status_t find_typed(const exec_session_t *session, const char *name,
                              const ir_type_t *type, const plan_port_t **out_state) {
    char given[IR_TYPE_TEXT_BYTES], expected[IR_TYPE_TEXT_BYTES];
    TRY(find_state(session, name, out_state));
    if (ir_type_equal(&(*out_state)->type, type)) return ST_OK;
    return FAIL(ST_INVALID, "'%s' is %s, not %s", name,
                ir_type_text(&(*out_state)->type, expected, sizeof expected),
                ir_type_text(type, given, sizeof given));
}

static exec_part_t part_of_state(const exec_session_t *session, const plan_port_t *state,
                                 uint32_t rank) {
    const exec_rank_t *r = &session->ranks[rank];
    const plan_place_t *place = plan_state_place(r->program, state->name);
    return exec_part_make(session->plan, state, rank, place ? exec_address(r, place) : NULL);
}

/* ---- whole ---- */

st_status_t exec_state_write(exec_session_t *session, const char *name, const ir_type_t *type,
                             const void *data) {
    const ir_box_t whole = ir_box_whole(type);
    return exec_state_write_box(session, name, type, &whole, data);
}

st_status_t exec_state_read(exec_session_t *session, const char *name, const ir_type_t *type,
                            void *data) {
    const plan_port_t *state;
    TRY(exec_session_idle(session));
    TRY(find_typed(session, name, type, &state));
    for (uint32_t r = session->first; r < session->first + session->n_local; r++) {
        exec_part_t part = part_of_state(session, state, r);
        if (part.delivers || session->beside)
            TRY(exec_state_part_out(&session->ranks[r], &part, data));
    }
    return session->beside ? exec_complete(session, state, data) : ST_OK;
}

st_status_t exec_state_draw(exec_session_t *session, const char *name, const st_draw_t *draw) {
    const plan_port_t *state;
    TRY(exec_session_idle(session));
    TRY(find_state(session, name, &state));
    exec_shadows_note_write(session);
    for (uint32_t r = session->first; r < session->first + session->n_local; r++) {
        const exec_rank_t *rank = &session->ranks[r];
        const exec_part_t part = part_of_state(session, state, r);
        st_draw_t own = *draw;
        memcpy(own.begin, part.box.begin, sizeof own.begin);
        memcpy(own.extent, part.box.extent, sizeof own.extent);
        if (ir_box_elements(&state->type, &part.box))
            TRY(rank->device->draw(rank->stream, part.local, &own));
    }
    return ST_OK;
}

/* ---- parts ---- */

st_status_t exec_state_write_box(exec_session_t *session, const char *name, const ir_type_t *type,
                                 const ir_box_t *box, const void *data) {
    const plan_port_t *state;
    TRY(exec_session_idle(session));
    TRY(find_typed(session, name, type, &state));
    exec_shadows_note_write(session);
    for (uint32_t r = session->first; r < session->first + session->n_local; r++) {
        const exec_part_t part = part_of_state(session, state, r);
        exec_moved_t move = {.rank = &session->ranks[r], .from = data};
        TRY(exec_part_each_in(&part, box, exec_move_in, &move));
    }
    return ST_OK;
}

st_status_t exec_state_piece(const exec_session_t *session, const char *name, ir_box_t *out_box,
                             bool *out_delivers) {
    const plan_port_t *state;
    TRY(find_state(session, name, &state));
    const exec_part_t part = exec_part_make(session->plan, state, session->first, NULL);
    *out_box = session->beside ? part.box : ir_box_whole(&state->type);
    *out_delivers = !session->beside || part.delivers;
    return ST_OK;
}

st_status_t exec_state_read_range(exec_session_t *session, const char *name, size_t offset,
                                  size_t bytes, void *out) {
    const plan_port_t *state;
    ir_box_t piece;
    bool delivers;
    TRY(exec_session_idle(session));
    TRY(find_state(session, name, &state));
    TRY(exec_state_piece(session, name, &piece, &delivers));
    for (uint32_t r = session->first; r < session->first + session->n_local; r++) {
        const exec_part_t part = part_of_state(session, state, r);
        exec_moved_t move = {.rank = &session->ranks[r], .to = out};
        if (!part.delivers) continue;
        TRY(exec_part_each_within(&part, &piece, offset, bytes, exec_move_out, &move));
        TRY(move.rank->device->synchronize(move.rank->stream));
    }
    return ST_OK;
}

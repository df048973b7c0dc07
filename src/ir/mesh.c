/* Meshes (mesh.h). */
#include "ir/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"

/* Known axes, in the order of lowering. */
static const char *const axis_names[] = {IR_AXIS_TENSOR, IR_AXIS_DATA, IR_AXIS_EXPERT,
                                         IR_AXIS_CONTEXT, IR_AXIS_PIPE};
enum { N_NAMES = sizeof axis_names / sizeof axis_names[0] };

static uint32_t name_index(const char *name) {
    uint32_t i = 0;
    while (i < N_NAMES && strcmp(axis_names[i], name) != 0) i++;
    return i;
}

ir_mesh_t ir_mesh_of_ranks(uint32_t n_ranks) {
    ir_mesh_t mesh = {.n = 1};
    snprintf(mesh.axes[0].name, sizeof mesh.axes[0].name, "%s", IR_AXIS_DATA);
    mesh.axes[0].size = n_ranks;
    return mesh;
}

/* ---- text ---- */

/* The axis written in text[0 … length). */
static st_status_t parse_axis(const char *text, size_t length, ir_mesh_t *mesh) {
    const char *equals = memchr(text, '=', length);
    char name[IR_AXIS_NAME_BYTES] = "", *end;
    if (!equals || equals == text || equals + 1 == text + length)
        return FAIL(ST_INVALID, "'%.*s' is no axis: NAME=SIZE is needed", (int)length, text);
    size_t n = (size_t)(equals - text);
    if (n < sizeof name) memcpy(name, text, n);
    if (name_index(name) == N_NAMES) {
        const char *nearest = st_nearest(name, N_NAMES, axis_names);
        return FAIL(ST_UNSUPPORTED,
                    "there is no mesh axis '%.*s'%s%s%s; the axes are: data, tensor, "
                    "expert, context, pipe",
                    (int)n, text, nearest ? " (do you mean '" : "", nearest ? nearest : "",
                    nearest ? "'?)" : "");
    }
    if (ir_mesh_find(mesh, name) != IR_NONE)
        return FAIL(ST_INVALID, "axis '%s' is given twice", name);
    long long size = strtoll(equals + 1, &end, 10);
    if (end != text + length || size < 1 || size > IR_MAX_RANKS)
        return FAIL(ST_INVALID,
                    "axis '%s' has the size '%.*s': a whole number from 1 to %d is needed", name,
                    (int)(length - n - 1), equals + 1, IR_MAX_RANKS);
    ASSERT(mesh->n < IR_MAX_AXES);
    memcpy(mesh->axes[mesh->n].name, name, sizeof name);
    mesh->axes[mesh->n++].size = (uint32_t)size;
    return ST_OK;
}

st_status_t ir_mesh_parse(const char *text, ir_mesh_t *out_mesh) {
    ir_mesh_t mesh = {0};
    *out_mesh = mesh;
    uint64_t n_ranks = 1;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        st_status_t status = parse_axis(at, length, &mesh);
        if (status != ST_OK) return st_error_context(status, "mesh '%s'", text);
        n_ranks *= mesh.axes[mesh.n - 1].size;
        at += length;
        if (!*at) break;
    }
    if (n_ranks > IR_MAX_RANKS)
        return FAIL(ST_INVALID, "mesh '%s' has %llu ranks, at most %d are possible", text,
                    (unsigned long long)n_ranks, IR_MAX_RANKS);
    *out_mesh = mesh;
    return ST_OK;
}

const char *ir_mesh_text(const ir_mesh_t *mesh, char *buffer, size_t bytes) {
    size_t used = 0;
    buffer[0] = '\0';
    for (uint32_t a = 0; a < mesh->n && used < bytes; a++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%s=%u", a ? "," : "",
                                 mesh->axes[a].name, mesh->axes[a].size);
    return buffer;
}

bool ir_mesh_equal(const ir_mesh_t *a, const ir_mesh_t *b) {
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->axes[i].size != b->axes[i].size || strcmp(a->axes[i].name, b->axes[i].name) != 0)
            return false;
    return true;
}

/* ---- ranks ---- */

uint32_t ir_mesh_ranks(const ir_mesh_t *mesh) {
    uint32_t n = 1;
    for (uint32_t a = 0; a < mesh->n; a++) n *= mesh->axes[a].size;
    return n;
}

uint32_t ir_mesh_find(const ir_mesh_t *mesh, const char *name) {
    for (uint32_t a = 0; a < mesh->n; a++)
        if (strcmp(mesh->axes[a].name, name) == 0) return a;
    return IR_NONE;
}

uint32_t ir_mesh_stride(const ir_mesh_t *mesh, uint32_t axis) {
    uint32_t stride = 1;
    for (uint32_t a = axis + 1; a < mesh->n; a++) stride *= mesh->axes[a].size;
    return stride;
}

uint32_t ir_mesh_coordinate(const ir_mesh_t *mesh, uint32_t rank, uint32_t axis) {
    return rank / ir_mesh_stride(mesh, axis) % mesh->axes[axis].size;
}

uint32_t ir_mesh_peer(const ir_mesh_t *mesh, uint32_t rank, uint32_t axis, uint32_t coordinate) {
    uint32_t stride = ir_mesh_stride(mesh, axis);
    return rank - ir_mesh_coordinate(mesh, rank, axis) * stride + coordinate * stride;
}

void ir_mesh_order(const ir_mesh_t *mesh, uint32_t *order) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_NAMES; i++)
        for (uint32_t a = 0; a < mesh->n; a++)
            if (name_index(mesh->axes[a].name) == i) order[n++] = a;
    ASSERT(n == mesh->n);
}

/* ---- parts ---- */

static bool holds(const ir_placement_t *placement, uint32_t coordinate) {
    return (uint64_t)placement->granules >> coordinate & 1;
}

void ir_mesh_box(const ir_mesh_t *mesh, const ir_placement_t *placements, const ir_type_t *type,
                 uint32_t rank, ir_box_t *out_box) {
    uint32_t order[IR_MAX_AXES];
    ir_mesh_order(mesh, order);
    memset(out_box, 0, sizeof *out_box);
    for (int32_t d = 0; d < type->rank; d++) out_box->extent[d] = type->dims[d];
    for (uint32_t i = 0; i < mesh->n; i++) {
        const ir_placement_t *placement = &placements[order[i]];
        if (placement->kind == IR_HELD &&
            !holds(placement, ir_mesh_coordinate(mesh, rank, order[i]))) {
            memset(out_box, 0, sizeof *out_box);
            out_box->none = true;
            return;
        }
        if (placement->kind != IR_SPLIT) continue;
        int64_t *extent = &out_box->extent[placement->dim], begin;
        int64_t granules = placement->granules == IR_GRANULES_EACH ? *extent : placement->granules;
        ir_split_range(*extent, granules, ir_mesh_coordinate(mesh, rank, order[i]),
                       mesh->axes[order[i]].size, &begin, extent);
        out_box->begin[placement->dim] += begin;
    }
}

st_status_t ir_mesh_check_placements(const ir_mesh_t *mesh, const ir_placement_t *placements,
                                     const ir_type_t *type) {
    uint32_t order[IR_MAX_AXES], split_before = 0;
    ir_mesh_order(mesh, order);
    for (uint32_t i = 0; i < mesh->n; i++) {
        const ir_placement_t *p = &placements[order[i]];
        if (p->kind == IR_REPLICATE) continue;
        if (p->kind == IR_HELD) {
            const uint32_t size = mesh->axes[order[i]].size;
            if (p->granules > 0 && size <= IR_MAX_HOLDERS && !(p->granules >> size)) continue;
            return FAIL(ST_INVALID,
                        "it is held by ranks of axis '%s' that there are not, or by none",
                        mesh->axes[order[i]].name);
        }
        bool right = p->kind == IR_SPLIT && p->dim >= 0 && p->dim < type->rank && p->granules >= 0;
        if (right && p->granules != IR_GRANULES_EACH)
            right = !(split_before >> p->dim & 1) && type->dims[p->dim] % p->granules == 0;
        if (!right)
            return FAIL(ST_INVALID, "it is split over axis '%s' in a way its type does not allow",
                        mesh->axes[order[i]].name);
        split_before |= 1u << p->dim;
    }
    return ST_OK;
}

bool ir_mesh_is_first_holder(const ir_mesh_t *mesh, const ir_placement_t *placements,
                             uint32_t rank) {
    for (uint32_t a = 0; a < mesh->n; a++) {
        const uint32_t at = ir_mesh_coordinate(mesh, rank, a);
        if (placements[a].kind == IR_HELD) {
            if (at != (uint32_t)__builtin_ctzll((uint64_t)placements[a].granules)) return false;
        } else if (placements[a].kind != IR_SPLIT && at != 0) {
            return false;
        }
    }
    return true;
}

/* Building a nest from a body.
 *
 *   definitions inlined → live nodes → axes of all dims (nest_axes.c) → statements → coalescing
 *
 * Statements are made node by node in the body's order, equal ones once. Broadcast, reshape,
 * transpose and casts between floats make none: with the axes found, their value is their
 * operand's. Slices and gathers of an operand are loads with other strides. Coalescing then makes
 * neighbouring axes one where every access and every mask allows it; axes that nothing uses go.
 * Linear in the body, but for NEST_MAX_AXES squared a domain. */
#include "ir/nest.h"

#include <string.h>

#include "base/hash.h"
#include "ir/convert.h"
#include "ir/expand.h"
#include "ir/nest_axes.h"
#include "ir/nest_order.h"
#include "ir/nest_round.h"
#include "ir/op.h"

typedef struct builder {
    const ir_graph_t *body; /* expanded */
    bool *live;             /* [n_nodes] */
    nest_axes_t axes;
    nest_t *nest;
    ST_VEC(nest_stmt_t) stmts;
    ST_VEC(nest_store_t) stores;
    ST_VEC(nest_domain_t) domains;
    nest_value_t *value;     /* [n_values] the statement */
    uint32_t *domain, *axis; /* [n classes] of a root: domain + 1, number within it */
    uint32_t *slots;         /* hash table of statements: index + 1, 0 empty */
    size_t n_slots;
    uint32_t operand; /* of the next input */
    bool wide;        /* some value is f64, so that f32 ones may be computed in it */
    const char *reason;
    st_status_t status;
} builder_t;

static bool stopped(const builder_t *b) {
    return b->status != ST_OK || b->reason;
}
static const ir_type_t *type_of(const builder_t *b, ir_value_t value) {
    return ir_value_type(b->body, value);
}

/* ---- axes of the domains ---- */

/* Domain and bit of a root, which gets the next number of its domain where it has none. */
static uint32_t place_axis(builder_t *b, uint32_t class, uint32_t *out_axis) {
    uint32_t top = nest_axes_domain(&b->axes, class);
    if (b->domain[top] == 0) {
        if (b->status == ST_OK) b->status = ST_VEC_PUSH(&b->domains, (nest_domain_t){0});
        if (b->status != ST_OK) return 0;
        b->domain[top] = (uint32_t)b->domains.n;
    }
    uint32_t number = b->domain[top] - 1;
    nest_domain_t *domain = &b->domains.data[number];
    if (b->axis[class] == 0) {
        if (domain->n_axes == NEST_MAX_AXES) {
            b->reason = "more axes than a nest keeps apart";
            return 0;
        }
        domain->axes[domain->n_axes].extent = b->axes.classes.data[class].extent;
        b->axis[class] = ++domain->n_axes;
    }
    *out_axis = b->axis[class] - 1;
    return number;
}

/* Axes in a row that grows at both ends and between. */
typedef struct axis_list {
    uint32_t *next, *before; /* [n classes] + 1 of the neighbours, 0: none */
    uint32_t first, last;    /* + 1 */
    bool *in;                /* [n classes] */
} axis_list_t;

static void insert_axis(axis_list_t *l, uint32_t class,
                        uint32_t right) { /* right + 1; 0: the end */
    uint32_t left = right ? l->before[right - 1] : l->last;
    l->in[class] = true;
    l->before[class] = left;
    l->next[class] = right;
    *(left ? &l->next[left - 1] : &l->first) = class + 1;
    *(right ? &l->before[right - 1] : &l->last) = class + 1;
}

/* A new axis comes before the next one of its row that is there already, so that results which
 * share inner axes, as a table's rows and rows gathered from it, both have those innermost. */
static void take_row(axis_list_t *l, nest_row_t row) {
    uint32_t right = 0;
    for (uint32_t i = row.n; i-- > 0;) {
        if (!l->in[row.axis[i]]) insert_axis(l, row.axis[i], right);
        right = row.axis[i] + 1;
    }
}

/* Numbers the axes: those of the results first, so that they are written row by row; then the
 * others as the body has them. Linear in the body's dims. */
static void number_axes(builder_t *b) {
    const size_t n = b->axes.classes.n;
    axis_list_t l = {.next = st_calloc(n, sizeof *l.next),
                     .before = st_calloc(n, sizeof *l.before),
                     .in = st_calloc(n, sizeof *l.in)};
    if (!l.next || !l.before || !l.in) b->status = st_no_memory(n * 9, "the axes of a nest");
    for (size_t k = 0; k < b->body->outputs.n && !stopped(b); k++) {
        ir_value_t v = b->body->outputs.data[k].value;
        take_row(&l, nest_axes_all(&b->axes, v, type_of(b, v)->rank));
    }
    for (ir_node_t i = 0; i < b->body->nodes.n && !stopped(b); i++) {
        ir_value_t v = ir_node(b->body, i)->first_output;
        if (b->live[i]) take_row(&l, nest_axes_all(&b->axes, v, type_of(b, v)->rank));
    }
    for (uint32_t at = l.first; at && !stopped(b); at = l.next[at - 1]) {
        uint32_t axis;
        (void)place_axis(b, at - 1, &axis);
    }
    st_free(l.next);
    st_free(l.before);
    st_free(l.in);
}

/* The axes of a row as a mask; *domain is set where there is one. */
static uint32_t mask_of(builder_t *b, nest_row_t row, uint32_t *domain) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < row.n && !stopped(b); i++) {
        uint32_t axis = 0;
        *domain = place_axis(b, row.axis[i], &axis);
        mask |= 1u << axis;
    }
    return mask;
}

/* Strides of the axes of dim `dim` of `value`, where the whole dim has `stride`. */
static void set_strides(builder_t *b, ir_value_t value, int32_t dim, int64_t stride,
                        nest_access_t *access) {
    nest_row_t row = nest_axes_dim(&b->axes, value, dim);
    for (uint32_t i = row.n; i-- > 0 && !stopped(b);) {
        uint32_t axis = 0;
        (void)place_axis(b, row.axis[i], &axis);
        access->stride[axis] = stride;
        stride *= b->axes.classes.data[row.axis[i]].extent;
    }
}

/* Row-major strides of `dims` for the dims of `value`. */
static void dense_strides(builder_t *b, ir_value_t value, int32_t rank, const int64_t *dims,
                          nest_access_t *access) {
    int64_t stride = 1;
    for (int32_t d = rank - 1; d >= 0; d--) {
        set_strides(b, value, d, stride, access);
        stride *= dims[d];
    }
}

/* ---- statements ---- */

static nest_stmt_t stmt_of(nest_kind_t kind, ir_op_t op, ir_dtype_t dtype) {
    nest_stmt_t stmt;
    memset(&stmt, 0, sizeof stmt); /* compared as bytes */
    stmt.kind = kind;
    stmt.op = op;
    stmt.dtype = dtype;
    stmt.domain = NEST_NONE;
    stmt.access.tensor = NEST_NONE;
    stmt.access.index = NEST_NONE;
    return stmt;
}

static bool grow_slots(builder_t *b) {
    size_t n = b->n_slots ? b->n_slots * 2 : 64;
    uint32_t *slots = st_calloc(n, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < b->n_slots; i++) {
        if (!b->slots[i]) continue;
        size_t at = st_hash64(&b->stmts.data[b->slots[i] - 1], offsetof(nest_stmt_t, node), 0);
        while (slots[at & (n - 1)]) at++;
        slots[at & (n - 1)] = b->slots[i];
    }
    st_free(b->slots);
    b->slots = slots;
    b->n_slots = n;
    return true;
}

/* The statement, or an equal one that is there. */
static nest_value_t push(builder_t *b, const nest_stmt_t *stmt) {
    if (stopped(b)) return 0;
    if (b->stmts.n * 2 >= b->n_slots && !grow_slots(b)) {
        b->status = st_no_memory(b->n_slots * 2 * sizeof(uint32_t), "the statements of a nest");
        return 0;
    }
    size_t at = st_hash64(stmt, offsetof(nest_stmt_t, node), 0);
    for (; b->slots[at & (b->n_slots - 1)]; at++) {
        uint32_t other = b->slots[at & (b->n_slots - 1)] - 1;
        if (memcmp(&b->stmts.data[other], stmt, offsetof(nest_stmt_t, node)) == 0) return other;
    }
    b->status = ST_VEC_PUSH(&b->stmts, *stmt);
    if (b->status != ST_OK) return 0;
    b->slots[at & (b->n_slots - 1)] = (uint32_t)b->stmts.n;
    return (nest_value_t)(b->stmts.n - 1);
}

static nest_value_t constant(builder_t *b, ir_dtype_t dtype, double real, int64_t integer) {
    nest_stmt_t stmt = stmt_of(NEST_CONSTANT, IR_OP_CONSTANT, dtype);
    stmt.real = real;
    stmt.integer = integer;
    return push(b, &stmt);
}

static void depend(builder_t *b, nest_stmt_t *stmt, nest_value_t on) {
    const nest_stmt_t *arg = &b->stmts.data[on];
    stmt->mask |= arg->mask;
    if (arg->mask) stmt->domain = arg->domain;
}

static nest_value_t operation(builder_t *b, ir_op_t op, ir_dtype_t dtype, bool flag, uint32_t n,
                              const nest_value_t *args) {
    if (stopped(b)) return 0;
    nest_stmt_t stmt = stmt_of(NEST_OP, op, dtype);
    stmt.flag = flag;
    stmt.n_args = n;
    for (uint32_t i = 0; i < n; i++) {
        stmt.args[i] = args[i];
        depend(b, &stmt, args[i]);
    }
    return push(b, &stmt);
}

/* Sets the mask of a load, iota or random number from its strides. */
static void close_access(const builder_t *b, nest_stmt_t *stmt, uint32_t domain) {
    for (uint32_t i = 0; i < NEST_MAX_AXES; i++)
        if (stmt->access.stride[i]) stmt->mask |= 1u << i;
    if (stmt->mask) stmt->domain = domain;
    (void)b;
}

static uint32_t domain_of(builder_t *b, ir_value_t value) {
    uint32_t domain = NEST_NONE;
    (void)mask_of(b, nest_axes_all(&b->axes, value, type_of(b, value)->rank), &domain);
    return domain;
}

static nest_value_t load(builder_t *b, ir_value_t value, uint32_t tensor, const ir_attr_t *data) {
    const ir_type_t *type = type_of(b, value);
    nest_stmt_t stmt = stmt_of(NEST_LOAD, IR_OP_INPUT, type->dtype);
    uint32_t domain = domain_of(b, value);
    stmt.access.tensor = tensor;
    stmt.access.data = data ? data->data.p : NULL;
    stmt.access.data_bytes = data ? data->data.bytes : 0;
    stmt.access.dtype = type->dtype;
    dense_strides(b, value, type->rank, type->dims, &stmt.access);
    close_access(b, &stmt, domain);
    return push(b, &stmt);
}

static nest_value_t constant_node(builder_t *b, const ir_node_info_t *node) {
    const ir_type_t *type = type_of(b, node->first_output);
    const ir_attr_t *data = ir_node_attr(node, "data");
    if (data->data.bytes > ir_dtype_bytes(type->dtype))
        return load(b, node->first_output, NEST_NONE, data);
    if (data->data.bytes == 0) return constant(b, type->dtype, 0, 0); /* no element */
    return constant(b, type->dtype, ir_element_load(type->dtype, data->data.p, 0),
                    ir_element_load_i64(type->dtype, data->data.p, 0));
}

/* start + step * index, counted in integers where both are. */
static nest_value_t iota(builder_t *b, const ir_node_info_t *node) {
    ir_dtype_t dtype = type_of(b, node->first_output)->dtype;
    const double start = ir_attr_float(node, "start"), step = ir_attr_float(node, "step");
    const double limit = 0x1p52;
    bool whole = start > -limit && start < limit && step > -limit && step < limit &&
                 start == (double)(int64_t)start && step == (double)(int64_t)step;
    nest_stmt_t stmt = stmt_of(NEST_IOTA, IR_OP_IOTA, IR_I64);
    uint32_t domain = domain_of(b, node->first_output);
    stmt.access.offset = whole ? (int64_t)start : 0;
    set_strides(b, node->first_output, (int32_t)ir_attr_int(node, "axis"),
                whole ? (int64_t)step : 1, &stmt.access);
    close_access(b, &stmt, domain);
    nest_value_t v = push(b, &stmt);
    ir_dtype_t real = whole || ir_dtype_is_float(dtype) ? dtype : IR_F64;
    v = operation(b, IR_OP_CAST, real, false, 1, &v);
    if (whole) return v;
    nest_value_t scaled[2] = {v, constant(b, real, step, 0)};
    v = operation(b, IR_OP_MUL, real, false, 2, scaled);
    nest_value_t moved[2] = {v, constant(b, real, start, 0)};
    v = operation(b, IR_OP_ADD, real, false, 2, moved);
    return real == dtype ? v : operation(b, IR_OP_CAST, dtype, false, 1, &v);
}

/* `first` is the input that holds the seed; step and part follow. */
static nest_value_t random_number(builder_t *b, const ir_node_info_t *node, uint32_t first) {
    const ir_type_t *type = type_of(b, node->first_output);
    const ir_attr_t *begin = ir_node_attr(node, "begin"), *global = ir_node_attr(node, "global");
    nest_stmt_t stmt = stmt_of(NEST_RANDOM, IR_OP_RANDOM_UNIFORM, type->dtype);
    uint32_t domain = domain_of(b, node->first_output);
    const int64_t *dims = global->ints.n ? global->ints.v : type->dims;
    dense_strides(b, node->first_output, type->rank, dims, &stmt.access);
    int64_t stride = 1;
    for (int32_t d = type->rank - 1; d >= 0; d--) {
        if (begin->ints.n) stmt.access.offset += begin->ints.v[d] * stride;
        stride *= dims[d];
    }
    stmt.access.index_stride = stride; /* elements of the whole tensor */
    stmt.integer = ir_attr_int(node, "id");
    stmt.n_args = node->n_inputs - first;
    for (uint32_t i = 0; i < stmt.n_args; i++) {
        stmt.args[i] = b->value[node->inputs[first + i]];
        depend(b, &stmt, stmt.args[i]);
    }
    close_access(b, &stmt, domain);
    return push(b, &stmt);
}

/* u < p ? 0 : x / (1 - p) */
static nest_value_t dropout(builder_t *b, const ir_node_info_t *node) {
    ir_dtype_t dtype = type_of(b, node->first_output)->dtype;
    const double p = ir_attr_float(node, "p");
    nest_value_t x = b->value[node->inputs[0]];
    if (!ir_attr_int(node, "train") || p == 0) return x;
    nest_value_t compared[2] = {random_number(b, node, 1), constant(b, IR_F64, p, 0)};
    nest_value_t dropped = operation(b, IR_OP_LT, IR_BOOL, false, 2, compared);
    nest_value_t scaled[2] = {x, constant(b, dtype, 1 - p, 0)};
    nest_value_t kept = operation(b, IR_OP_DIV, dtype, false, 2, scaled);
    nest_value_t chosen[3] = {dropped, constant(b, dtype, 0, 0), kept};
    return operation(b, IR_OP_SELECT, dtype, false, 3, chosen);
}

static nest_value_t reduce(builder_t *b, const ir_node_info_t *node) {
    const ir_attr_t *axes = ir_node_attr(node, "axes");
    const ir_value_t x = node->inputs[0];
    nest_stmt_t stmt = stmt_of(NEST_REDUCE, node->op, type_of(b, x)->dtype);
    uint32_t domain = NEST_NONE;
    for (uint32_t i = 0; i < axes->ints.n; i++)
        stmt.over |= mask_of(b, nest_axes_dim(&b->axes, x, (int32_t)axes->ints.v[i]), &domain);
    if (stopped(b) || stmt.over == 0) return b->value[x];
    stmt.n_args = 1;
    stmt.args[0] = b->value[x];
    depend(b, &stmt, stmt.args[0]);
    stmt.mask &= ~stmt.over;
    stmt.domain = domain;
    return push(b, &stmt);
}

/* The load that `value` is; NULL and a reason if it is none, or chosen by an index already. */
static const nest_stmt_t *loaded(builder_t *b, ir_value_t value, const char *reason) {
    if (stopped(b)) return NULL;
    const nest_stmt_t *stmt = &b->stmts.data[b->value[value]];
    if (stmt->kind == NEST_LOAD && stmt->access.index == NEST_NONE) return stmt;
    b->reason = reason;
    return NULL;
}

/* Stride of a whole dim of a loaded value: that of its innermost axis. */
static int64_t dim_stride(builder_t *b, const nest_stmt_t *stmt, ir_value_t value, int32_t dim,
                          bool *out_linear) {
    nest_row_t row = nest_axes_dim(&b->axes, value, dim);
    int64_t expected = 0, first = 0;
    *out_linear = true;
    for (uint32_t i = row.n; i-- > 0 && !stopped(b);) {
        uint32_t axis = 0;
        (void)place_axis(b, row.axis[i], &axis);
        int64_t stride = stmt->access.stride[axis];
        if (i + 1 == row.n)
            first = stride;
        else if (stride != expected)
            *out_linear = false;
        expected = stride * b->axes.classes.data[row.axis[i]].extent;
    }
    return first;
}

/* Copies the strides of dim `dim` of `value`, whose load is `from`. */
static void keep_strides(builder_t *b, const nest_stmt_t *from, ir_value_t value, int32_t dim,
                         nest_access_t *to) {
    nest_row_t row = nest_axes_dim(&b->axes, value, dim);
    for (uint32_t i = 0; i < row.n && !stopped(b); i++) {
        uint32_t axis = 0;
        (void)place_axis(b, row.axis[i], &axis);
        to->stride[axis] = from->access.stride[axis];
    }
}

static const char *const sliced_value =
    "a slice, flip or gather takes a value computed in the body";
static const char *const sliced_reshape = "a reshape of a slice has no strides";

static nest_stmt_t view_of(const nest_stmt_t *from) {
    nest_stmt_t stmt = stmt_of(NEST_LOAD, IR_OP_INPUT, from->dtype);
    stmt.access = from->access;
    memset(stmt.access.stride, 0, sizeof stmt.access.stride);
    return stmt;
}

static nest_value_t slice(builder_t *b, const ir_node_info_t *node) {
    const ir_value_t x = node->inputs[0], y = node->first_output;
    const ir_type_t *type = type_of(b, x);
    const ir_attr_t *flipped = node->op == IR_OP_FLIP ? ir_node_attr(node, "axes") : NULL;
    uint32_t domain = domain_of(b, y);
    if (stopped(b)) return 0;
    if (ir_type_elements(type_of(b, y)) == 0) return constant(b, type->dtype, 0, 0);
    const nest_stmt_t *found = loaded(b, x, sliced_value);
    if (!found) return 0;
    const nest_stmt_t from = *found;
    nest_stmt_t stmt = view_of(&from);
    for (int32_t d = 0; d < type->rank && !stopped(b); d++) {
        int64_t begin = 0, step = 1;
        if (flipped) {
            for (uint32_t i = 0; i < flipped->ints.n; i++)
                if (flipped->ints.v[i] == d) begin = type->dims[d] - 1, step = -1;
        } else {
            begin = ir_node_attr(node, "begin")->ints.v[d];
            step = ir_node_attr(node, "step")->ints.v[d];
        }
        bool linear,
            whole = flipped ? step == 1 : begin == 0 && type_of(b, y)->dims[d] == type->dims[d];
        if (whole) {
            keep_strides(b, &from, x, d, &stmt.access);
            continue;
        }
        int64_t stride = dim_stride(b, &from, x, d, &linear);
        if (!linear) b->reason = sliced_reshape;
        stmt.access.offset += begin * stride;
        set_strides(b, y, d, stride * step, &stmt.access);
    }
    close_access(b, &stmt, domain);
    return push(b, &stmt);
}

/* gather and gather_along: dim `axis` of x is chosen by the index. */
static nest_value_t gather(builder_t *b, const ir_node_info_t *node) {
    const int32_t axis = (int32_t)ir_attr_int(node, "axis");
    const ir_value_t x = node->inputs[0];
    const ir_type_t *type = type_of(b, x);
    uint32_t domain = domain_of(b, node->first_output);
    if (stopped(b)) return 0;
    if (ir_type_elements(type_of(b, node->first_output)) == 0)
        return constant(b, type->dtype, 0, 0);
    const nest_stmt_t *found = loaded(b, x, sliced_value);
    if (!found) return 0;
    const nest_stmt_t from = *found;
    nest_stmt_t stmt = view_of(&from);
    for (int32_t d = 0; d < type->rank && !stopped(b); d++)
        if (d != axis) keep_strides(b, &from, x, d, &stmt.access);
    bool linear;
    stmt.access.index_stride = dim_stride(b, &from, x, axis, &linear);
    if (!linear) b->reason = sliced_reshape;
    stmt.access.index = b->value[node->inputs[1]];
    stmt.access.index_extent = type->dims[axis];
    stmt.access.index_dim = axis;
    close_access(b, &stmt, domain);
    if (!stopped(b)) depend(b, &stmt, stmt.access.index);
    return push(b, &stmt);
}

static nest_value_t cast(builder_t *b, const ir_node_info_t *node) {
    ir_dtype_t from = type_of(b, node->inputs[0])->dtype;
    ir_dtype_t to = type_of(b, node->first_output)->dtype;
    nest_value_t x = b->value[node->inputs[0]];
    if (from == to || (ir_dtype_is_float(from) && ir_dtype_is_float(to))) return x;
    return operation(b, IR_OP_CAST, to, false, 1, &x);
}

/* The value as memory would hold it: a cast between floats, which rounds. Of f32 only what may be
 * computed in f64 needs one: values without axes, and those beside f64. */
static nest_value_t rounded(builder_t *b, ir_dtype_t dtype, nest_value_t v) {
    if (stopped(b)) return v;
    const nest_stmt_t *s = &b->stmts.data[v];
    const bool uniform = s->mask == 0 && s->kind != NEST_LOAD && s->kind != NEST_CONSTANT;
    if (dtype != IR_BF16 && dtype != IR_F16 && !(dtype == IR_F32 && (uniform || b->wide))) return v;
    if (nest_is_of_type(b->stmts.data, v, dtype)) return v;
    return operation(b, IR_OP_CAST, dtype, false, 1, &v);
}

static nest_value_t elementwise(builder_t *b, const ir_node_info_t *node) {
    nest_value_t args[NEST_MAX_ARGS];
    bool flag = false;
    if (node->n_inputs > NEST_MAX_ARGS) {
        b->reason = "an elementwise op has more operands than a nest's";
        return 0;
    }
    for (uint32_t i = 0; i < node->n_inputs; i++) args[i] = b->value[node->inputs[i]];
    if (node->op == IR_OP_GELU || node->op == IR_OP_GELU_GRAD) flag = ir_attr_int(node, "tanh");
    return operation(b, node->op, type_of(b, node->first_output)->dtype, flag, node->n_inputs,
                     args);
}

static nest_value_t make(builder_t *b, const ir_node_info_t *node) {
    switch (node->op) {
        case IR_OP_CONSTANT:
            return constant_node(b, node);
        case IR_OP_IOTA:
            return iota(b, node);
        case IR_OP_RANDOM_UNIFORM:
            return random_number(b, node, 0);
        case IR_OP_DROPOUT:
            return dropout(b, node);
        case IR_OP_BROADCAST:
        case IR_OP_RESHAPE:
        case IR_OP_TRANSPOSE:
            return b->value[node->inputs[0]];
        case IR_OP_REDUCE_SUM:
        case IR_OP_REDUCE_MAX:
        case IR_OP_REDUCE_MIN:
        case IR_OP_REDUCE_PROD:
            return reduce(b, node);
        case IR_OP_SLICE:
        case IR_OP_FLIP:
            return slice(b, node);
        case IR_OP_GATHER:
        case IR_OP_GATHER_ALONG:
            return gather(b, node);
        case IR_OP_CAST:
            return cast(b, node);
        default:
            return elementwise(b, node);
    }
}

static void statements(builder_t *b) {
    for (ir_value_t v = 0; v < b->body->values.n; v++) b->wide |= type_of(b, v)->dtype == IR_F64;
    for (ir_node_t i = 0; i < b->body->nodes.n && !stopped(b); i++) {
        const ir_node_info_t *node = ir_node(b->body, i);
        bool input = node->op == IR_OP_INPUT;
        uint32_t operand = b->operand;
        if (input) b->operand++;
        if (!b->live[i]) continue;
        size_t before = b->stmts.n;
        nest_value_t value = input ? load(b, node->first_output, operand, NULL) : make(b, node);
        if (node->origin) value = rounded(b, type_of(b, node->first_output)->dtype, value);
        b->value[node->first_output] = value;
        for (size_t k = before; k < b->stmts.n; k++) b->stmts.data[k].node = i;
    }
    for (uint32_t k = 0; k < b->body->outputs.n && !stopped(b); k++) {
        ir_value_t value = b->body->outputs.data[k].value;
        const ir_type_t *type = type_of(b, value);
        nest_store_t store = {.value = nest_stored(b->stmts.data, b->value[value], type->dtype),
                              .domain = NEST_NONE};
        store.mask = mask_of(b, nest_axes_all(&b->axes, value, type->rank), &store.domain);
        store.access.tensor = k;
        store.access.dtype = type->dtype;
        store.access.index = NEST_NONE;
        dense_strides(b, value, type->rank, type->dims, &store.access);
        if (b->status == ST_OK) b->status = ST_VEC_PUSH(&b->stores, store);
    }
}

/* ---- coalescing ---- */

/* Statements and stores by domain, for one walk a domain: heads and next, NEST_NONE ends. */
typedef struct members {
    uint32_t *stmt_head, *stmt_next, *store_head, *store_next;
} members_t;

static bool goes_with(uint32_t mask, uint32_t a, uint32_t b) {
    return (mask >> a & 1) == (mask >> b & 1);
}

/* May axis `inner` follow `outer` as one axis? */
static bool can_merge(const builder_t *b, const members_t *m, uint32_t domain, uint32_t outer,
                      uint32_t inner) {
    int64_t extent = b->domains.data[domain].axes[inner].extent;
    for (uint32_t i = m->stmt_head[domain]; i != NEST_NONE; i = m->stmt_next[i]) {
        const nest_stmt_t *s = &b->stmts.data[i];
        if (!goes_with(s->mask, outer, inner) || !goes_with(s->over, outer, inner) ||
            s->access.stride[outer] != s->access.stride[inner] * extent)
            return false;
    }
    for (uint32_t i = m->store_head[domain]; i != NEST_NONE; i = m->store_next[i]) {
        const nest_store_t *s = &b->stores.data[i];
        if (!goes_with(s->mask, outer, inner) ||
            s->access.stride[outer] != s->access.stride[inner] * extent)
            return false;
    }
    return true;
}

static uint32_t without_bit(uint32_t mask, uint32_t bit) {
    return (mask & ((1u << bit) - 1)) | (mask >> (bit + 1) << bit);
}
static void drop_stride(nest_access_t *access, uint32_t axis) {
    memmove(access->stride + axis, access->stride + axis + 1,
            (NEST_MAX_AXES - 1 - axis) * sizeof *access->stride);
    access->stride[NEST_MAX_AXES - 1] = 0;
}

static void remove_axis(builder_t *b, const members_t *m, uint32_t domain, uint32_t axis) {
    nest_domain_t *d = &b->domains.data[domain];
    for (uint32_t i = axis; i + 1 < d->n_axes; i++) d->axes[i] = d->axes[i + 1];
    d->n_axes--;
    for (uint32_t i = m->stmt_head[domain]; i != NEST_NONE; i = m->stmt_next[i]) {
        nest_stmt_t *s = &b->stmts.data[i];
        s->mask = without_bit(s->mask, axis);
        s->over = without_bit(s->over, axis);
        drop_stride(&s->access, axis);
    }
    for (uint32_t i = m->store_head[domain]; i != NEST_NONE; i = m->store_next[i]) {
        nest_store_t *s = &b->stores.data[i];
        s->mask = without_bit(s->mask, axis);
        drop_stride(&s->access, axis);
    }
}

static bool axis_used(const builder_t *b, const members_t *m, uint32_t domain, uint32_t axis) {
    for (uint32_t i = m->stmt_head[domain]; i != NEST_NONE; i = m->stmt_next[i])
        if ((b->stmts.data[i].mask | b->stmts.data[i].over) >> axis & 1) return true;
    for (uint32_t i = m->store_head[domain]; i != NEST_NONE; i = m->store_next[i])
        if (b->stores.data[i].mask >> axis & 1) return true;
    return false;
}

static void coalesce_domain(builder_t *b, const members_t *m, uint32_t domain) {
    nest_domain_t *d = &b->domains.data[domain];
    for (uint32_t i = d->n_axes; i-- > 0;)
        if (!axis_used(b, m, domain, i)) remove_axis(b, m, domain, i);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t outer = 0; outer < d->n_axes && !changed; outer++)
            for (uint32_t inner = 0; inner < d->n_axes && !changed; inner++) {
                if (outer == inner || !can_merge(b, m, domain, outer, inner)) continue;
                d->axes[inner].extent *= d->axes[outer].extent;
                remove_axis(b, m, domain, outer);
                changed = true;
            }
    }
}

/* Drops the statements that no store needs; what stays keeps its order. */
static void drop_unused(builder_t *b) {
    uint32_t n = (uint32_t)b->stmts.n;
    uint32_t *to = b->slots; /* at least twice as long, and not needed any more */
    memset(to, 0, n * sizeof *to);
    for (size_t i = 0; i < b->stores.n; i++) to[b->stores.data[i].value] = 1;
    for (uint32_t i = n; i-- > 0;) {
        const nest_stmt_t *s = &b->stmts.data[i];
        if (!to[i]) continue;
        for (uint32_t k = 0; k < s->n_args; k++) to[s->args[k]] = 1;
        if (s->access.index != NEST_NONE) to[s->access.index] = 1;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!to[i]) continue;
        nest_stmt_t s = b->stmts.data[i];
        for (uint32_t k = 0; k < s.n_args; k++) s.args[k] = to[s.args[k]];
        if (s.access.index != NEST_NONE) s.access.index = to[s.access.index];
        to[i] = kept;
        b->stmts.data[kept++] = s;
    }
    b->stmts.n = kept;
    for (size_t i = 0; i < b->stores.n; i++) b->stores.data[i].value = to[b->stores.data[i].value];
}

static void coalesce(builder_t *b) {
    if (b->slots) drop_unused(b);
    size_t n = b->domains.n;
    uint32_t *memory = st_malloc((2 * n + b->stmts.n + b->stores.n + 1) * sizeof *memory);
    if (!memory) {
        b->status = st_no_memory(b->stmts.n * sizeof *memory, "the statements of a nest");
        return;
    }
    members_t m = {memory, memory + n, memory + n + b->stmts.n, memory + 2 * n + b->stmts.n};
    for (size_t i = 0; i < n; i++) m.stmt_head[i] = m.store_head[i] = NEST_NONE;
    for (uint32_t i = (uint32_t)b->stmts.n; i-- > 0;) {
        uint32_t d = b->stmts.data[i].domain;
        if (d == NEST_NONE) continue;
        m.stmt_next[i] = m.stmt_head[d];
        m.stmt_head[d] = i;
    }
    for (uint32_t i = (uint32_t)b->stores.n; i-- > 0;) {
        uint32_t d = b->stores.data[i].domain;
        if (d == NEST_NONE) continue;
        m.store_next[i] = m.store_head[d];
        m.store_head[d] = i;
    }
    for (uint32_t d = 0; d < n; d++) coalesce_domain(b, &m, d);
    st_free(memory);
}

/* ---- the whole ---- */

/* Nodes that an output needs, and all inputs that one of those reads. */
static void mark_live(const ir_graph_t *body, bool *live) {
    for (size_t k = 0; k < body->outputs.n; k++)
        live[body->values.data[body->outputs.data[k].value].producer] = true;
    for (ir_node_t i = (ir_node_t)body->nodes.n; i-- > 0;)
        if (live[i])
            for (uint32_t j = 0; j < ir_node(body, i)->n_inputs; j++)
                live[body->values.data[ir_node(body, i)->inputs[j]].producer] = true;
}

/* Domains with an f64 tensor or value are computed in f64. */
static void widen(builder_t *b) {
    for (size_t i = 0; i < b->stmts.n; i++) {
        const nest_stmt_t *s = &b->stmts.data[i];
        if ((s->mask | s->over) && s->dtype == IR_F64) b->domains.data[s->domain].wide = true;
    }
    for (size_t i = 0; i < b->stores.n; i++) {
        const nest_store_t *s = &b->stores.data[i];
        if (s->mask && s->access.dtype == IR_F64) b->domains.data[s->domain].wide = true;
    }
}

static void finish(builder_t *b) {
    nest_t *nest = b->nest;
    widen(b);
    nest->n_stmts = (uint32_t)b->stmts.n;
    nest->n_stores = (uint32_t)b->stores.n;
    nest->n_domains = (uint32_t)b->domains.n;
    nest->n_operands = b->operand;
    nest->n_results = (uint32_t)b->body->outputs.n;
    nest->stmts = st_arena_array(&nest->arena, b->stmts.n + 1, sizeof *nest->stmts);
    nest->stores = st_arena_array(&nest->arena, b->stores.n + 1, sizeof *nest->stores);
    nest->domains = st_arena_array(&nest->arena, b->domains.n + 1, sizeof *nest->domains);
    if (!nest->stmts || !nest->stores || !nest->domains) {
        b->status = st_no_memory(b->stmts.n * sizeof *nest->stmts, "a nest");
        return;
    }
    if (b->stmts.n) memcpy(nest->stmts, b->stmts.data, b->stmts.n * sizeof *nest->stmts);
    if (b->stores.n) memcpy(nest->stores, b->stores.data, b->stores.n * sizeof *nest->stores);
    if (b->domains.n) memcpy(nest->domains, b->domains.data, b->domains.n * sizeof *nest->domains);
    for (uint32_t i = 0; i < nest->n_stmts && b->status == ST_OK; i++) {
        nest_access_t *access = &nest->stmts[i].access; /* the expanded body goes */
        if (!access->data) continue;
        access->data = st_arena_copy(&nest->arena, access->data, access->data_bytes);
        if (!access->data) b->status = st_no_memory(access->data_bytes, "a nest's constant");
    }
}

static st_status_t build(builder_t *b) {
    size_t n_nodes = b->body->nodes.n, n_values = b->body->values.n;
    b->live = st_calloc(n_nodes + 1, sizeof *b->live);
    b->value = st_calloc(n_values + 1, sizeof *b->value);
    if (!b->live || !b->value) return st_no_memory(n_values * sizeof *b->value, "a nest");
    mark_live(b->body, b->live);
    TRY(nest_axes_build(&b->axes, b->body, b->live));
    b->reason = b->axes.reason;
    b->domain = st_calloc(b->axes.classes.n, sizeof *b->domain);
    b->axis = st_calloc(b->axes.classes.n, sizeof *b->axis);
    if (!b->domain || !b->axis) return st_no_memory(b->axes.classes.n * 8, "the axes of a nest");
    if (!stopped(b)) number_axes(b);
    if (!stopped(b)) statements(b);
    if (!stopped(b)) coalesce(b);
    if (!stopped(b)) finish(b);
    if (!stopped(b)) b->status = nest_order_build(b->nest);
    return b->status;
}

st_status_t nest_build(const ir_graph_t *body, nest_t **out_nest, const char **out_reason) {
    *out_nest = NULL;
    *out_reason = NULL;
    ir_graph_t *expanded = NULL;
    TRY(ir_expand_definitions(body, &expanded));
    builder_t b = {.body = expanded, .nest = st_calloc(1, sizeof(nest_t))};
    st_status_t status =
        b.nest ? nest_find_labels(b.nest, body, &b.reason) : st_no_memory(sizeof(nest_t), "a nest");
    if (status == ST_OK && !b.reason) status = build(&b);
    nest_axes_free(&b.axes);
    st_free(b.live);
    st_free(b.value);
    st_free(b.domain);
    st_free(b.axis);
    st_free(b.slots);
    ST_VEC_FREE(&b.stmts);
    ST_VEC_FREE(&b.stores);
    ST_VEC_FREE(&b.domains);
    ir_graph_destroy(expanded);
    if (status == ST_OK && !b.reason) {
        *out_nest = b.nest;
        return ST_OK;
    }
    nest_destroy(b.nest);
    *out_reason = b.reason;
    return status;
}

bool nest_has_sums(const nest_t *nest) {
    for (uint32_t i = 0; i < nest->n_stmts; i++)
        if (nest_is_sum(&nest->stmts[i])) return true;
    return false;
}

void nest_destroy(nest_t *nest) {
    if (!nest) return;
    st_arena_clear(&nest->arena);
    st_free(nest);
}

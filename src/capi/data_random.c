/* Random tensors to measure whole plans with: of what the inputs take, so that no step refuses
 * them. */
#include "base/hash.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "capi/capi.h"
#include "ir/convert.h"

typedef struct filling {
    const ir_type_t *type;
    uint64_t seed;
    int64_t limit; /* values are below, where the type is of whole numbers */
    void *data;
} filling_t;

enum { PART = 1 << 16 }; /* elements a thread fills in one go */

static st_status_t fill_part(void *context, size_t part) {
    const filling_t *f = context;
    const int64_t n = ir_type_elements(f->type), begin = (int64_t)part * PART;
    const int64_t end = n - begin < PART ? n : begin + PART;
    const ir_dtype_t dtype = f->type->dtype;
    for (int64_t i = begin; i < end; i++) {
        uint32_t words[4];
        st_philox(f->seed, (uint64_t)i, 0, words);
        if (ir_dtype_is_float(dtype))
            ir_element_store(dtype, f->data, (size_t)i, 2 * (double)st_uniform24(words[0]) - 1);
        else
            ir_element_store_i64(dtype, f->data, (size_t)i,
                                 dtype == IR_BOOL ? words[0] & 1 : words[0] % f->limit);
    }
    return ST_OK;
}

static st_status_t add_random(const stator_plan_t *plan, uint32_t i, uint64_t seed,
                              stator_tensors_t *tensors) {
    enum { SMALL = 100 }; /* numbers of which nothing is known */
    const plan_port_t *port = &plan->plan->inputs[i];
    const ir_graph_t *source = plan->plan->source;
    int64_t limit = SMALL, rows = capi_vocabulary(source, port->name);
    int64_t classes = capi_classes(source, port->name).n;
    if (rows < INT64_MAX) limit = rows;
    if (classes < limit || (rows == INT64_MAX && classes < INT64_MAX)) limit = classes;
    void *data = st_malloc(ir_type_bytes(&port->type));
    if (!data) return st_no_memory(ir_type_bytes(&port->type), "a random tensor");
    filling_t filling = {&port->type, seed ^ st_hash_string(port->name), limit > 0 ? limit : 1,
                         data};
    const size_t n = (size_t)ir_type_elements(&port->type);
    st_status_t status = st_parallel((n + PART - 1) / PART, fill_part, &filling);
    if (status == ST_OK) status = capi_tensors_put(tensors, port->name, &port->type, data);
    st_free(data);
    return status;
}

stator_status_t stator_tensors_random(const stator_plan_t *plan, uint64_t seed,
                                      stator_tensors_t **out_tensors) {
    CAPI_OUT(out_tensors);
    CAPI_REQUIRE(plan);
    stator_tensors_t *made = NULL;
    stator_status_t status = stator_tensors_create(&made);
    for (uint32_t i = 0; status == STATOR_OK && i < plan->plan->n_inputs; i++)
        status = capi_status(add_random(plan, i, seed, made));
    if (status == STATOR_OK)
        *out_tensors = made;
    else
        stator_tensors_destroy(made);
    return status;
}

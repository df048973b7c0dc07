/* cuDNN's planning without a GPU: what the CUDA module's kernels say that they can run, the library
 * has an engine for on an H200, of which it is given the description; within the planned scratch,
 * with the same bits every run. Nothing runs. Skipped where the module or cuDNN is missing. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/module.h"
#include "kernels/table.h"

/* As cuDNN 9.19 wrote it on the card. */
static const char h200[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":6,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":150109880320,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"cudaDeviceId\":0,\"deviceVer\":900,"
    "\"driverVer\":13000,\"deviceName\":\"NVIDIA H200\"}";

/* Engines whose code the library makes at run time count only where a driver's library is to be
 * had: the toolkit's empty one will do. */
static bool has_driver_library(void) {
    static const char *const names[] = {"libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (dlopen(names[i], RTLD_NOW | RTLD_GLOBAL)) return true;
    return false;
}

static ir_type_t type_of(ir_dtype_t dtype, const int64_t dims[4]) {
    return ir_type_make(dtype, 4, dims);
}

static void check(const char *kernel, const kern_problem_t *problem) {
    const kern_impl_t *impl = kern_find_on("cuda", problem->op, kernel);
    const char *reason = "";
    assert_non_null(impl);
    assert_non_null(impl->check);
    if (!impl->can_run(problem, &reason))
        fail_msg("%s, %s: %s", kernel, ir_op_def(problem->op)->name, reason);
    st_status_t status = impl->check(problem, h200);
    if (status == ST_NOT_FOUND) {
        print_message("skipped: %s\n", st_last_error());
        skip();
    }
    if (status != ST_OK)
        fail_msg("%s, %s, %s: %s", kernel, ir_op_def(problem->op)->name, problem->name,
                 st_last_error());
}

/* Attributes of an op at their defaults. */
static void defaults(ir_op_t op, ir_attr_t *attrs) {
    const ir_op_def_t *def = ir_op_def(op);
    for (uint32_t i = 0; i < ir_op_n_attrs(def); i++) {
        attrs[i] = (ir_attr_t){.kind = def->attrs[i].kind};
        if (attrs[i].kind == IR_ATTR_FLOAT)
            attrs[i].f = def->attrs[i].number;
        else
            attrs[i].i = (int64_t)def->attrs[i].number;
        if (attrs[i].kind == IR_ATTR_STRING) attrs[i].s = def->attrs[i].text;
    }
}

enum { MAX_ATTRS = 16 };

static void attention_at(ir_dtype_t dtype, bool rows_first, const int64_t q[4], const int64_t k[4],
                         bool causal, int64_t offset, int64_t window, const char *name) {
    ir_attr_t attrs[MAX_ATTRS];
    const int64_t rows[3] = {q[0], rows_first ? q[2] : q[1], rows_first ? q[1] : q[2]};
    ir_type_t tq = type_of(dtype, q), tk = type_of(dtype, k);
    ir_type_t lse = ir_type_make(IR_F32, 3, rows);
    const ir_type_t in[6] = {tq, tq, tk, tk, tq, lse}, out[3] = {tq, tk, tk};
    const ir_type_t forward_in[3] = {tq, tk, tk}, forward_out[2] = {tq, lse};
    static const ir_op_t ops[2] = {IR_OP_ATTENTION, IR_OP_ATTENTION_GRAD};
    for (int i = 0; i < 2; i++) {
        defaults(ops[i], attrs);
        ir_attr_of(ops[i], attrs, "causal")->i = causal;
        ir_attr_of(ops[i], attrs, "offset")->i = offset;
        ir_attr_of(ops[i], attrs, "window")->i = window;
        ir_attr_of(ops[i], attrs, "rows_first")->i = rows_first;
        kern_problem_t problem = {
            ops[i], i ? 6 : 3, i ? 3 : 2, i ? in : forward_in, i ? out : forward_out, attrs, name};
        check("cudnn.attention", &problem);
    }
}

static void attention(ir_dtype_t dtype, bool rows_first, const int64_t q[4], const int64_t k[4],
                      const char *name) {
    attention_at(dtype, rows_first, q, k, true, 0, 0, name);
}

static void attention_has_engines(void **state) {
    (void)state;
    if (!has_driver_library()) {
        print_message("skipped: there is no driver's library, not even an empty one\n");
        skip();
    }
    static const ir_dtype_t dtypes[2] = {IR_BF16, IR_F16};
    for (int t = 0; t < 2; t++) {
        attention(dtypes[t], true, (int64_t[]){4, 4096, 32, 64}, (int64_t[]){4, 4096, 8, 64},
                  "Llama 1b");
        attention(dtypes[t], false, (int64_t[]){1, 32, 2048, 128}, (int64_t[]){1, 8, 2048, 128},
                  "heads first, head dim 128");
        attention(dtypes[t], true, (int64_t[]){32, 1024, 12, 64}, (int64_t[]){32, 1024, 12, 64},
                  "Llama 160m");
    }
}

/* What ranks of a split sequence run: queries of a later part over all keys up to them, over
 * keys that all are before them, and such with a sliding window; and a window over a whole
 * sequence. */
static void attention_in_parts_has_engines(void **state) {
    (void)state;
    if (!has_driver_library()) {
        print_message("skipped: there is no driver's library, not even an empty one\n");
        skip();
    }
    static const int64_t q[4] = {1, 32, 2048, 64}, k[4] = {1, 8, 8192, 64},
                         part[4] = {1, 8, 2048, 64};
    static const int64_t rows[4] = {2, 1024, 16, 128}, all[4] = {2, 4096, 4, 128};
    static const int64_t odd[4] = {1, 1000, 8, 64}, odd_keys[4] = {1, 2999, 8, 64};
    static const ir_dtype_t dtypes[2] = {IR_BF16, IR_F16};
    for (int t = 0; t < 2; t++) {
        attention_at(dtypes[t], false, q, k, true, 6144, 0, "the last part of four");
        attention_at(dtypes[t], true, rows, all, true, 1024, 0, "the second part, rows first");
        attention_at(dtypes[t], true, odd, odd_keys, true, 1000, 0, "an odd number of keys");
        attention_at(dtypes[t], false, q, part, true, 2048, 0, "keys that all are before");
        attention_at(dtypes[t], true, rows, rows, true, 0, 256, "a sliding window");
        attention_at(dtypes[t], false, q, k, true, 4096, 1000, "a sliding window, the third part");
        attention_at(dtypes[t], true, odd, odd_keys, true, 1500, 700, "one that begins within");
    }
}

static void convolutions_have_engines(void **state) {
    static const int64_t one[2] = {1, 1};
    static const ir_dtype_t dtypes[2] = {IR_BF16, IR_F16};
    static const char *const keys[] = {"strides", "pads_low", "pads_high", "dilations"};
    static const ir_op_t ops[3] = {IR_OP_CONV, IR_OP_CONV_GRAD_INPUT, IR_OP_CONV_GRAD_WEIGHT};
    (void)state;
    if (!has_driver_library()) {
        print_message("skipped: there is no driver's library, not even an empty one\n");
        skip();
    }
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 3; i++) {
            const ir_type_t x = type_of(dtypes[t], (int64_t[]){256, 64, 56, 56});
            const ir_type_t w = type_of(dtypes[t], (int64_t[]){64, 64, 3, 3});
            const ir_type_t in[3][2] = {{x, w}, {x, w}, {x, x}}, *out[3] = {&x, &x, &w};
            ir_attr_t attrs[MAX_ATTRS];
            defaults(ops[i], attrs);
            for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
                ir_attr_t *attr = ir_attr_of(ops[i], attrs, keys[k]);
                attr->ints.v = one;
                attr->ints.n = 2;
            }
            ir_attr_of(ops[i], attrs, "groups")->i = 1;
            kern_problem_t problem = {ops[i], 2, 1, in[i], out[i], attrs, "3 x 3, 64 channels"};
            check("cudnn.conv", &problem);
        }
}

/* The question is one that can be answered with no: a device of a generation without bf16. */
static void a_device_without_bf16_has_none(void **state) {
    const int64_t q[4] = {1, 4, 128, 64}, rows[3] = {1, 4, 128};
    const ir_type_t tq = type_of(IR_BF16, q), lse = ir_type_make(IR_F32, 3, rows);
    const ir_type_t in[3] = {tq, tq, tq}, out[2] = {tq, lse};
    ir_attr_t attrs[MAX_ATTRS];
    char old[sizeof h200];
    (void)state;
    if (!has_driver_library()) skip();
    memcpy(old, h200, sizeof old);
    char *generation = strstr(old, "\"deviceVer\":900");
    assert_non_null(generation);
    memcpy(generation, "\"deviceVer\":700", strlen("\"deviceVer\":700"));
    defaults(IR_OP_ATTENTION, attrs);
    kern_problem_t problem = {IR_OP_ATTENTION, 3, 2, in, out, attrs, "an old device"};
    const kern_impl_t *impl = kern_find_on("cuda", IR_OP_ATTENTION, "cudnn.attention");
    assert_non_null(impl);
    assert_int_equal(impl->check(&problem, h200), ST_OK);
    assert_int_equal(impl->check(&problem, old), ST_UNSUPPORTED);
}

static int open_module(void **state) {
    const dev_module_t *module;
    (void)state;
    if (dev_module_open("cuda", &module) == ST_OK) return 0;
    print_message("skipped: %s\n", st_last_error());
    exit(77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_has_engines),
        cmocka_unit_test(attention_in_parts_has_engines),
        cmocka_unit_test(convolutions_have_engines),
        cmocka_unit_test(a_device_without_bf16_has_none),
    };
    return cmocka_run_group_tests(tests, open_module, NULL);
}

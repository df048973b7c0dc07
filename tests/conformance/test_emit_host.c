/* CUDA C of nests, run on the host: the source is compiled by the C++ compiler with what of CUDA it
 * uses (cuda_on_host.h), a thread of a block a context of its own, and compared with the oracle. No
 * GPU is needed, and any C++ compiler does. Skipped where there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "conformance/host_code.h"
#include "kernels/emit/single.h"
#include "kernels/emit/source.h"
#include "support/scratch.h"

enum { GUARD = 256, GUARD_BYTE = 0xA5, MAX_POINTERS = 2 * CONF_MAX_OPERANDS + 3 };

typedef void (*run_t)(int number, unsigned kernel, unsigned blocks, unsigned threads,
                      const void *params);

/* What the host's compiler does not take as it stands. */
static const char *const replaced[][2] = {
    {"extern \"C\" ", ""},
    {"asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));",
     "y = a != a ? a : b != b ? b : a > b ? a : b;"},
    {"asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x * 1.44269504f));",
     "y = exp2(x * 1.44269504f);"},
    {"asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));",
     "y = a != a ? a : b != b ? b : a < b ? a : b;"},
    {"asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x.bits));", "y = host_from_f16(x.bits);"},
    {"asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"((float)x));",
     "y.bits = host_to_bf16((float)x);"},
    {"asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"((float)x));",
     "y.bits = host_to_f16((float)x);"},
};

static void put_replaced(FILE *file, const char *source) {
    for (const char *c = source; *c;) {
        size_t i = 0, n = sizeof replaced / sizeof replaced[0];
        while (i < n && strncmp(c, replaced[i][0], strlen(replaced[i][0])) != 0) i++;
        if (i == n) {
            fputc(*c++, file);
            continue;
        }
        fputs(replaced[i][1], file);
        c += strlen(replaced[i][0]);
    }
}

/* Is the case one whose source is compiled here? All types would take minutes. */
static bool is_taken(size_t c, ir_dtype_t *out_dtype) {
    int n_types;
    const ir_dtype_t *types = conf_types(&conf_cases[c], &n_types);
    const bool reduces = conf_cases[c].terms > 0;
    *out_dtype = types[reduces ? c % (size_t)n_types : 0];
    return reduces || conf_cases[c].op == IR_OP_FUSED || c % 5 == 0;
}

/* Writes the source of all cases taken; out_n: how many there are. */
static void write_source(FILE *file, int *out_n) {
    fputs("#include \"cuda_on_host.h\"\n", file);
    *out_n = 0;
    int n_pairs = 0; /* with squares and mean in one pass */
    char *table = NULL;
    size_t table_bytes = 0;
    FILE *rows = open_memstream(&table, &table_bytes);
    for (size_t c = 0; c < conf_n_cases; c++) {
        ir_dtype_t dtype;
        conf_built_t built;
        emit_problem_t made;
        const char *reason;
        if (!is_taken(c, &dtype)) continue;
        conf_build(&conf_cases[c], dtype, &built);
        if (emit_problem_create(&built.problem, &made, &reason) != ST_OK)
            fail_msg("%s: %s", built.name, st_last_error());
        if (made.schedule) {
            char *source;
            if (emit_source(made.schedule, &source) != ST_OK)
                fail_msg("%s: %s", built.name, st_last_error());
            fprintf(file, "#undef N_TENSORS\n#undef EACH\n#undef REAL\nnamespace c%zu {\n", c);
            n_pairs += strstr(source, "columns_of_block<V") || strstr(source, "= block_moments<");
            put_replaced(file, source);
            fputs("\n}\n", file);
            for (uint32_t k = 0; k < made.schedule->n_kernels;
                 k += 1 + emit_n_joined(made.schedule, k))
                fprintf(rows,
                        "case %zu * 64 + %u: c%zu::k%u(*(const c%zu::Params *)params); break;\n", c,
                        k, c, k, c);
            assert_true(made.schedule->n_kernels <= 64);
            st_free(source);
            (*out_n)++;
        }
        emit_problem_clear(&made);
        conf_release(&built);
    }
    fclose(rows);
    assert_true(n_pairs >= 2);
    fprintf(file, "void host_kernel(int kernel, const void *params) {\nswitch (kernel) {\n%s}\n}\n",
            table);
    free(table);
}

/* The compiled cases; NULL: there is no compiler. */
static run_t compile(void) {
    int n;
    const char *path = scratch("nests.cc");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    write_source(file, &n);
    fclose(file);
    print_message("%d nests\n", n);
    assert_true(n > 100);
    void *symbol = host_code(path, "-O0 -ffp-contract=off", "host_run");
    run_t run;
    memcpy(&run, &symbol, sizeof run);
    return run;
}

/* Memory between guard zones, all NaN. */
static char *zone(size_t bytes) {
    char *block = malloc(bytes + 2 * GUARD);
    assert_non_null(block);
    memset(block, GUARD_BYTE, bytes + 2 * GUARD);
    memset(block + GUARD, 0xFF, bytes);
    return block + GUARD;
}

static void zone_free(const conf_built_t *built, char *data, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        if ((unsigned char)data[-1 - (ptrdiff_t)i] != GUARD_BYTE ||
            (unsigned char)data[bytes + i] != GUARD_BYTE)
            fail_msg("%s: wrote outside its results or scratch", built->name);
    free(data - GUARD);
}

static void check(run_t run, int number, const conf_built_t *built,
                  const emit_schedule_t *schedule) {
    const kern_problem_t *p = &built->problem;
    void *params[MAX_POINTERS + 1] = {0};
    double *expected[CONF_MAX_OPERANDS];
    char *out[CONF_MAX_OPERANDS], *work = zone(schedule->workspace);
    uint64_t fault[5] = {0};
    for (uint32_t j = 0; j < p->n_in; j++) params[j] = built->in_data[j];
    for (uint32_t k = 0; k < p->n_out; k++) {
        params[p->n_in + k] = out[k] = zone(ir_type_bytes(&built->out[k]));
        expected[k] = calloc((size_t)ir_type_elements(&built->out[k]) + 1, sizeof(double));
    }
    params[p->n_in + p->n_out] = work;
    params[p->n_in + p->n_out + 1] = fault;
    if (!conf_oracle(built, expected)) fail_msg("%s: no oracle", built->name);
    for (uint32_t i = 0; i < schedule->n_kernels; i += 1 + emit_n_joined(schedule, i))
        run(number, i, (unsigned)emit_launch_blocks(schedule, i),
            emit_threads(&schedule->kernels[i]), params);
    for (uint32_t k = 0; k < p->n_out; k++) {
        conf_compare(built, "nest", k, out[k], expected[k]);
        zone_free(built, out[k], ir_type_bytes(&built->out[k]));
        free(expected[k]);
    }
    zone_free(built, work, schedule->workspace);
}

static void nests_are_right(void **state) {
    (void)state;
    run_t run = compile();
    if (!run) {
        print_message("skipped: no C++ compiler\n");
        skip();
    }
    for (size_t c = 0; c < conf_n_cases; c++) {
        ir_dtype_t dtype;
        conf_built_t built;
        emit_problem_t made;
        const char *reason;
        if (!is_taken(c, &dtype)) continue;
        conf_build(&conf_cases[c], dtype, &built);
        if (emit_problem_create(&built.problem, &made, &reason) != ST_OK)
            fail_msg("%s: %s", built.name, st_last_error());
        if (made.schedule) check(run, (int)c, &built, made.schedule);
        emit_problem_clear(&made);
        conf_release(&built);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nests_are_right)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

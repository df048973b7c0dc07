/* CUDA C of the nests of every case that is one, some compiled by NVRTC: no GPU and no driver is
 * needed. What is no nest is listed with its reason. Skipped where NVRTC is not installed. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "kernels/emit/single.h"
#include "kernels/emit/source.h"

typedef struct rtc {
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*destroy)(void **);
} rtc_t;

static bool open_rtc(rtc_t *rtc) {
    static const char *const files[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13"};
    static const char *const names[] = {"nvrtcCreateProgram", "nvrtcCompileProgram",
                                        "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                        "nvrtcDestroyProgram"};
    void *library = NULL;
    for (size_t i = 0; i < 2 && !library; i++) library = dlopen(files[i], RTLD_NOW);
    if (!library) return false;
    for (size_t i = 0; i < 5; i++) {
        void *symbol = dlsym(library, names[i]);
        if (!symbol) return false;
        memcpy((char *)rtc + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return true;
}

static void compile(const rtc_t *rtc, const char *name, const char *source) {
    static const char *const options[] = {"--gpu-architecture=sm_90", "--std=c++17",
                                          "-default-device"};
    void *program;
    size_t bytes = 0;
    assert_int_equal(rtc->create(&program, source, "nest.cu", 0, NULL, NULL), 0);
    if (rtc->compile(program, 3, options) != 0) {
        assert_int_equal(rtc->log_size(program, &bytes), 0);
        char *log = calloc(bytes + 1, 1);
        assert_int_equal(rtc->log(program, log), 0);
        fail_msg("%s: %s\n%s", name, log, strstr(source, "extern"));
    }
    rtc->destroy(&program);
}

/* Forms that few nests have: some of each are compiled whatever else is. */
static bool has_rare_form(const char *source) {
    enum { OF_EACH = 4 };
    static const char *const forms[] = {"uniform24((", "__longlong_as_double(0x", "owns[]",
                                        "<Chan, "};
    static int n_seen[sizeof forms / sizeof forms[0]];
    bool wanted = false;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strstr(source, forms[i])) wanted |= n_seen[i]++ < OF_EACH;
    return wanted;
}

static void nests_compile(void **state) {
    (void)state;
    rtc_t rtc;
    if (!open_rtc(&rtc)) {
        print_message("skipped: NVRTC 13 is not installed\n");
        skip();
    }
    size_t n_nests = 0, n_compiled = 0;
    for (size_t c = 0; c < conf_n_cases; c++) {
        int n_types;
        const ir_dtype_t *types = conf_types(&conf_cases[c], &n_types);
        ir_dtype_t last = types[n_types - 1];
        conf_built_t built;
        emit_problem_t made;
        const char *reason;
        char *source;
        conf_build(&conf_cases[c], last, &built);
        if (emit_problem_create(&built.problem, &made, &reason) != ST_OK)
            fail_msg("%s: %s", built.name, st_last_error());
        if (made.schedule) {
            st_status_t status = emit_source(made.schedule, &source);
            if (status != ST_OK) fail_msg("%s: %s", built.name, st_last_error());
            bool rare = has_rare_form(source);
            if (c % 13 == 0 || rare) { /* others are only written */
                compile(&rtc, built.name, source);
                n_compiled++;
            }
            st_free(source);
            n_nests++;
        } else {
            print_message("%s: no nest: %s\n", built.name, reason);
        }
        emit_problem_clear(&made);
        conf_release(&built);
    }
    print_message("%zu nests, %zu of them compiled\n", n_nests, n_compiled);
    assert_true(n_nests > 100 && n_compiled > 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nests_compile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Nests through NVRTC (compile_nests.h). Most of the time of a small program is what every program
 * takes, so several nests, each in a namespace of its own, are one. Programs are compiled on
 * several threads. */
#include "compile_nests.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/parallel.h"
#include "cases.h"
#include "kernels/emit/single.h"
#include "kernels/emit/source.h"

enum { OF_EACH_PROGRAM = 8, KEY_DIGITS = 16 };

typedef struct rtc {
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*destroy)(void **);
    int (*version)(int *, int *);
} rtc_t;

static const char *const options[] = {"--gpu-architecture=sm_90", "--std=c++17", "-default-device"};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

typedef struct text {
    char name[160]; /* of the first case that has it */
    char *source;
    uint64_t key;
    int rank; /* when its turn is */
} text_t;

typedef struct run {
    rtc_t rtc;
    text_t *texts;
    size_t n_texts, cap_texts;
    char noted[4096]; /* path of the file of what compiles, "" for none */
    double deadline;
    bool *compiled; /* [programs] */
} run_t;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool open_rtc(rtc_t *rtc) {
    static const char *const files[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13"};
    static const char *const names[] = {"nvrtcCreateProgram",     "nvrtcCompileProgram",
                                        "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                        "nvrtcDestroyProgram",    "nvrtcVersion"};
    void *library = NULL;
    for (size_t i = 0; i < 2 && !library; i++) library = dlopen(files[i], RTLD_NOW);
    for (size_t i = 0; library && i < sizeof names / sizeof names[0]; i++) {
        void *symbol = dlsym(library, names[i]);
        if (!symbol) return false;
        memcpy((char *)rtc + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return library != NULL;
}

/* ---- texts ---- */

/* Forms that few nests have: some of each come before all else. */
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

/* What compiles depends on the compiler and its options, too. */
static uint64_t key_of(const rtc_t *rtc, const char *source) {
    int version[2] = {0, 0};
    uint64_t seed = 0;
    if (rtc->version(&version[0], &version[1]) == 0)
        seed = (uint64_t)(version[0] * 100 + version[1]);
    for (int i = 0; i < N_OPTIONS; i++) seed = st_hash64(options[i], strlen(options[i]), seed);
    return st_hash64(source, strlen(source), seed);
}

/* Takes the source over. */
static void add_text(run_t *run, const char *name, char *source, size_t number) {
    const uint64_t key = key_of(&run->rtc, source);
    for (size_t i = 0; i < run->n_texts; i++)
        if (run->texts[i].key == key) {
            st_free(source);
            return;
        }
    if (run->n_texts == run->cap_texts) {
        run->cap_texts = 2 * run->cap_texts + 64;
        run->texts = realloc(run->texts, run->cap_texts * sizeof *run->texts);
        assert_non_null(run->texts);
    }
    text_t *text = &run->texts[run->n_texts++];
    *text = (text_t){.source = source, .key = key};
    text->rank = has_rare_form(source) ? -1 : (int)(number % 13);
    snprintf(text->name, sizeof text->name, "%s", name);
}

static size_t write_texts(run_t *run, bool all_types) {
    size_t n_nests = 0;
    for (size_t c = 0; c < conf_n_cases; c++) {
        int n_types;
        const ir_dtype_t *types = conf_types(&conf_cases[c], &n_types);
        for (int t = all_types ? 0 : n_types - 1; t < n_types; t++) {
            conf_built_t built;
            emit_problem_t made;
            const char *reason;
            conf_build(&conf_cases[c], types[t], &built);
            if (emit_problem_create(&built.problem, &made, &reason) != ST_OK)
                fail_msg("%s: %s", built.name, st_last_error());
            if (made.schedule) {
                char *source;
                if (emit_source(made.schedule, &source) != ST_OK)
                    fail_msg("%s: %s", built.name, st_last_error());
                add_text(run, built.name, source, c);
                n_nests++;
            } else {
                print_message("%s: no nest: %s\n", built.name, reason);
            }
            emit_problem_clear(&made);
            conf_release(&built);
        }
    }
    return n_nests;
}

static int by_turn(const void *a, const void *b) {
    const text_t *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* ---- what earlier runs have compiled ---- */

static void find_notes(run_t *run) {
    char path[sizeof run->noted - 16];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n > 0) snprintf(run->noted, sizeof run->noted, "%.*s.compiled", (int)n, path);
}

/* Leaves out what is noted; returns how many that were. */
static size_t drop_noted(run_t *run) {
    char line[KEY_DIGITS + 8];
    size_t n = 0;
    FILE *file = run->noted[0] ? fopen(run->noted, "r") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        const uint64_t key = strtoull(line, NULL, 16);
        for (size_t i = 0; i < run->n_texts; i++) {
            if (run->texts[i].key != key) continue;
            st_free(run->texts[i].source);
            run->texts[i] = run->texts[--run->n_texts];
            n++;
            break;
        }
    }
    if (file) fclose(file);
    return n;
}

static void note(const run_t *run, size_t first, size_t end) {
    char lines[OF_EACH_PROGRAM * (KEY_DIGITS + 1) + 1] = "";
    for (size_t i = first; i < end; i++)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%016llx\n",
                 (unsigned long long)run->texts[i].key);
    FILE *file = run->noted[0] ? fopen(run->noted, "a") : NULL;
    if (!file) return;
    fputs(lines, file); /* one write: runs at the same time do not mix */
    fclose(file);
}

/* ---- compiling ---- */

/* A nest in a namespace: its kernels keep their names, of which others have the same, and its
 * macros end. */
static void put_in_namespace(FILE *file, const char *source, size_t number) {
    static const char linkage[] = "extern \"C\" ";
    fprintf(file, "namespace n%zu {\n", number);
    for (const char *c = source; *c;) {
        if (strncmp(c, linkage, sizeof linkage - 1) == 0)
            c += sizeof linkage - 1;
        else
            fputc(*c++, file);
    }
    fputs("\n}\n", file);
    for (const char *c = source; (c = strstr(c, "#define ")) != NULL;) {
        c += strlen("#define ");
        fprintf(file, "#undef %.*s\n", (int)strcspn(c, " (\n"), c);
    }
}

static bool compiles(const run_t *run, const char *source, char **out_log) {
    const rtc_t *rtc = &run->rtc;
    void *program;
    size_t bytes = 0;
    *out_log = NULL;
    if (rtc->create(&program, source, "nest.cu", 0, NULL, NULL) != 0) return false;
    const bool fine = rtc->compile(program, N_OPTIONS, options) == 0;
    if (!fine && rtc->log_size(program, &bytes) == 0 && (*out_log = calloc(bytes + 1, 1)) != NULL)
        rtc->log(program, *out_log);
    rtc->destroy(&program);
    return fine;
}

/* Together nests may take more than a program can have (constant memory): the fault of one is one
 * that it has alone. */
static st_status_t compile_alone(const run_t *run, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        char *log;
        const bool fine = compiles(run, run->texts[i].source, &log);
        if (!fine)
            print_message("%s: %s\n%s\n", run->texts[i].name, log ? log : "no log",
                          strstr(run->texts[i].source, "extern"));
        free(log);
        if (!fine) return FAIL(ST_INVALID, "%s does not compile", run->texts[i].name);
    }
    return ST_OK;
}

static st_status_t compile_program(void *context, size_t p) {
    run_t *run = context;
    const size_t first = p * OF_EACH_PROGRAM;
    const size_t end =
        first + OF_EACH_PROGRAM < run->n_texts ? first + OF_EACH_PROGRAM : run->n_texts;
    char *source = NULL, *log = NULL;
    size_t bytes;
    if (now() > run->deadline) return ST_OK;
    FILE *file = open_memstream(&source, &bytes);
    if (!file) return FAIL(ST_NO_MEMORY, "no memory for a program");
    for (size_t i = first; i < end; i++) put_in_namespace(file, run->texts[i].source, i);
    fclose(file);
    const bool fine = compiles(run, source, &log);
    free(log);
    free(source);
    if (!fine) TRY(compile_alone(run, first, end));
    note(run, first, end);
    run->compiled[p] = true;
    return ST_OK;
}

void compile_nests(bool all_types, double seconds, bool keeps, compiled_nests_t *out) {
    run_t run = {.deadline = now() + seconds};
    *out = (compiled_nests_t){0};
    if (!open_rtc(&run.rtc)) {
        print_message("skipped: NVRTC 13 is not installed\n");
        skip();
    }
    out->n_nests = write_texts(&run, all_types);
    out->n_texts = run.n_texts;
    if (keeps) find_notes(&run);
    out->n_known = drop_noted(&run);
    if (run.n_texts) qsort(run.texts, run.n_texts, sizeof *run.texts, by_turn);
    const size_t n = (run.n_texts + OF_EACH_PROGRAM - 1) / OF_EACH_PROGRAM;
    run.compiled = calloc(n + 1, sizeof *run.compiled);
    assert_non_null(run.compiled);
    if (st_parallel(n, compile_program, &run) != ST_OK) fail_msg("%s", st_last_error());
    for (size_t p = 0; p < n; p++)
        if (run.compiled[p])
            out->n_compiled += p + 1 < n ? OF_EACH_PROGRAM : run.n_texts - p * OF_EACH_PROGRAM;
    for (size_t i = 0; i < run.n_texts; i++) st_free(run.texts[i].source);
    free(run.texts);
    free(run.compiled);
    print_message("%zu nests, %zu texts; compiled before: %zu, now: %zu\n", out->n_nests,
                  out->n_texts, out->n_known, out->n_compiled);
}

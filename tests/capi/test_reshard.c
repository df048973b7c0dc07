/* Checkpoints between meshes: ranks with sessions of their own, as processes have them, save in
 * parts and load any others' parts. Training that goes on elsewhere is the one that was not
 * interrupted. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory_limit.h"
#include "capi/capi.h"
#include "support/scratch.h"

enum { MAX_RANKS = 8, STEPS = 3, MAX_OUTPUTS = 64, MAX_STATES = 128 };
static const double TOLERANCE = 1e-9;

#define must(expr)                                                                           \
    do {                                                                                     \
        stator_status_t status_ = (expr);                                                    \
        if (status_ != STATOR_OK)                                                            \
            fail_msg("%s: %s: %s", #expr, stator_status_text(status_), stator_last_error()); \
    } while (0)

/* ---- ranks ---- */

typedef struct run {
    const char *mesh, *form;
    uint32_t n;
    stator_options_t *options;
    stator_plan_t *plan;
    stator_comm_t comms[MAX_RANKS];
    stator_session_t *sessions[MAX_RANKS];
    /* of the phase in progress */
    stator_status_t (*act)(struct run *run, uint32_t rank);
    stator_status_t statuses[MAX_RANKS];
    char messages[MAX_RANKS][1024];
    const char *dir;
    int seed;
    double outputs[MAX_OUTPUTS]; /* of rank 0 */
    size_t n_outputs;
    stator_tensors_t *exported; /* of rank 0 */
} run_t;

typedef struct member {
    run_t *run;
    uint32_t rank;
} member_t;

static void *act_as_rank(void *context) {
    const member_t *m = context;
    m->run->statuses[m->rank] = m->run->act(m->run, m->rank);
    snprintf(m->run->messages[m->rank], sizeof m->run->messages[0], "%s", stator_last_error());
    return NULL;
}

/* Rank 0's status, or that of the first that failed. */
static stator_status_t together(run_t *run, stator_status_t (*act)(run_t *, uint32_t)) {
    pthread_t threads[MAX_RANKS];
    member_t members[MAX_RANKS];
    run->act = act;
    for (uint32_t r = 0; r < run->n; r++) {
        members[r] = (member_t){run, r};
        assert_int_equal(pthread_create(&threads[r], NULL, act_as_rank, &members[r]), 0);
    }
    for (uint32_t r = 0; r < run->n; r++) pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < run->n; r++)
        if (run->statuses[r] != STATOR_OK) return run->statuses[r];
    return STATOR_OK;
}

static void must_all(run_t *run, const char *what, stator_status_t (*act)(run_t *, uint32_t)) {
    if (together(run, act) == STATOR_OK) return;
    for (uint32_t r = 0; r < run->n; r++)
        if (run->statuses[r] != STATOR_OK)
            fail_msg("%s %s, %s, rank %u: %s", run->mesh, run->form, what, r, run->messages[r]);
}

static stator_status_t create(run_t *run, uint32_t rank) {
    stator_status_t status = stator_session_create_on(
        run->plan, NULL, run->n > 1 ? &run->comms[rank] : NULL, &run->sessions[rank]);
    if (status != STATOR_OK) return status;
    return stator_session_initialize(run->sessions[rank], run->options);
}

static stator_status_t save(run_t *run, uint32_t rank) {
    const stator_progress_t progress = {.step = STEPS};
    return stator_session_save(run->sessions[rank], run->dir, &progress, 1, 0);
}

static stator_status_t resume(run_t *run, uint32_t rank) {
    stator_progress_t found = {0};
    stator_status_t status = stator_session_resume(run->sessions[rank], run->dir, &found);
    if (status != STATOR_OK) return status;
    return found.step == STEPS ? STATOR_OK : STATOR_INTERNAL;
}

static stator_status_t export(run_t *run, uint32_t rank) {
    stator_tensors_t *tensors;
    stator_status_t status = stator_session_export(run->sessions[rank], &tensors);
    if (rank == 0)
        run->exported = tensors;
    else
        stator_tensors_destroy(tensors);
    return status;
}

/* Tokens of step `seed`: the same for every rank of every mesh. */
static stator_status_t step(run_t *run, uint32_t rank) {
    stator_tensor_t feeds[4];
    stator_fetch_t fetches[4];
    double outputs[4];
    size_t n = stator_plan_count(run->plan, STATOR_INPUT), n_fetches = 0;
    uint32_t word = (uint32_t)run->seed * 2654435761u;
    for (size_t i = 0; i < n; i++) {
        feeds[i] = stator_plan_at(run->plan, STATOR_INPUT, i);
        int64_t *data = malloc(feeds[i].bytes);
        for (size_t e = 0; e < feeds[i].bytes / sizeof *data; e++) {
            word = word * 1664525u + 1013904223u;
            data[e] = (word >> 16) % 67;
        }
        feeds[i].data = data;
    }
    for (size_t o = 0; o < stator_plan_count(run->plan, STATOR_OUTPUT); o++) {
        stator_tensor_t port = stator_plan_at(run->plan, STATOR_OUTPUT, o);
        if (port.dtype != STATOR_DTYPE_F64 || port.rank || n_fetches == 4) continue;
        fetches[n_fetches] = (stator_fetch_t){port.name, &outputs[n_fetches], sizeof(double)};
        n_fetches++;
    }
    stator_status_t status = stator_session_step(run->sessions[rank], n, feeds, n_fetches, fetches);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)feeds[i].data);
    for (size_t i = 0; rank == 0 && i < n_fetches && run->n_outputs < MAX_OUTPUTS; i++)
        run->outputs[run->n_outputs++] = outputs[i];
    return status;
}

static void open_run(run_t *run, const char *config, const char *mesh, const char *form) {
    static const char *const options[] = {"batch",   "5",    "seq",     "7",   "optimizer", "adamw",
                                          "lr",      "2e-3", "clip",    "0.5", "dtype",     "f64",
                                          "threads", "1",    "timeout", "60",  NULL};
    stator_graph_t *graph, *training;
    *run = (run_t){.mesh = mesh, .form = form};
    must(stator_options_create(&run->options));
    for (int i = 0; options[i]; i += 2)
        must(stator_options_set(run->options, options[i], options[i + 1]));
    spill(scratch("config.json"), config, strlen(config));
    must(stator_options_set(run->options, "config", scratch("config.json")));
    must(stator_options_set(run->options, "mesh", mesh));
    must(stator_options_set(run->options, "shard", form));
    must(stator_graph_llama(run->options, 1, &graph));
    must(stator_graph_make_training(graph, run->options, &training));
    must(stator_plan_compile(training, run->options, NULL, &run->plan));
    run->n = run->plan->plan->n_ranks;
    assert_true(run->n <= MAX_RANKS);
    comm_t *worlds[MAX_RANKS];
    if (run->n > 1) assert_ok(comm_local_create((int)run->n, 60000, worlds));
    for (uint32_t r = 0; run->n > 1 && r < run->n; r++) run->comms[r].world = worlds[r];
    must_all(run, "opening", create);
    stator_graph_destroy(training);
    stator_graph_destroy(graph);
}

static stator_status_t destroy(run_t *run, uint32_t rank) {
    stator_session_destroy(run->sessions[rank]);
    return STATOR_OK;
}

static void close_run(run_t *run) {
    (void)together(run, destroy);
    for (uint32_t r = 0; run->n > 1 && r < run->n; r++) comm_destroy(run->comms[r].world);
    stator_tensors_destroy(run->exported);
    stator_plan_destroy(run->plan);
    stator_options_destroy(run->options);
}

static void train(run_t *run, int from) {
    run->n_outputs = 0;
    for (int i = 0; i < STEPS; i++) {
        run->seed = from + i;
        must_all(run, "training", step);
    }
}

/* ---- comparison ---- */

static void compare(const char *what, const char *name, size_t n, const double *wanted,
                    const double *given) {
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(wanted[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs(wanted[i] - given[i]) <= TOLERANCE * largest))
            fail_msg("%s: %s[%zu] is %.17g, not %.17g", what, name, i, given[i], wanted[i]);
}

static void compare_runs(const char *what, run_t *wanted, run_t *given) {
    assert_true(wanted->n_outputs >= 2 * STEPS && wanted->n_outputs == given->n_outputs);
    compare(what, "outputs", wanted->n_outputs, wanted->outputs, given->outputs);
    stator_tensors_destroy(given->exported);
    must_all(given, "exporting", export);
    const size_t n = stator_tensors_count(wanted->exported);
    assert_true(n > 8 && n == stator_tensors_count(given->exported));
    for (size_t i = 0; i < n; i++) {
        const stator_tensor_t a = stator_tensors_at(wanted->exported, i);
        const stator_tensor_t b = stator_tensors_at(given->exported, i);
        assert_string_equal(a.name, b.name);
        assert_int_equal(a.dtype, STATOR_DTYPE_F64);
        assert_int_equal(a.bytes, b.bytes);
        compare(what, a.name, a.bytes / sizeof(double), a.data, b.data);
    }
}

/* ---- tests ---- */

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 67, \"hidden_size\": 30,"
    " \"intermediate_size\": 53, \"num_hidden_layers\": 1, \"num_attention_heads\": 10,"
    " \"head_dim\": 6, \"num_key_value_heads\": 5, \"tie_word_embeddings\": true}";

static const char *const meshes[][2] = {{"data=1", "dp"},
                                        {"data=2", "dp"},
                                        {"data=3", "zero3"},
                                        {"tensor=2", "tp"},
                                        {"data=2,tensor=2", "zero3"},
                                        {"data=5", "zero1"}};
enum { N_MESHES = sizeof meshes / sizeof meshes[0] };

static const char *folder_of(size_t mesh) {
    static const char *const names[N_MESHES] = {"from0", "from1", "from2",
                                                "from3", "from4", "from5"};
    return scratch(names[mesh]);
}

static bool matches(const char *pattern) {
    char command[800];
    snprintf(command, sizeof command, "ls %s > /dev/null 2>&1", pattern);
    return system(command) == 0;
}

static void every_mesh_goes_on_from_every_other(void **state) {
    (void)state;
    static run_t runs[N_MESHES], whole;
    open_run(&whole, config, "data=1", "dp");
    train(&whole, 1);
    train(&whole, 1 + STEPS);
    must_all(&whole, "exporting", export);
    for (size_t i = 0; i < N_MESHES; i++) {
        open_run(&runs[i], config, meshes[i][0], meshes[i][1]);
        train(&runs[i], 1);
        runs[i].dir = folder_of(i);
        must_all(&runs[i], "saving", save);
    }
    for (size_t to = 0; to < N_MESHES; to++) {
        for (size_t from = 0; from < N_MESHES; from++) {
            char what[128];
            snprintf(what, sizeof what, "from %s %s to %s %s", meshes[from][0], meshes[from][1],
                     meshes[to][0], meshes[to][1]);
            runs[to].dir = folder_of(from);
            must_all(&runs[to], what, resume);
            train(&runs[to], 1 + STEPS);
            compare_runs(what, &whole, &runs[to]);
        }
    }
    for (size_t i = 0; i < N_MESHES; i++) close_run(&runs[i]);
    close_run(&whole);
}

/* One file where rank 0 has everything, else one of each rank; nothing passes for the whole
 * model. */
static void ranks_write_what_they_have(void **state) {
    (void)state;
    char pattern[600];
    for (size_t i = 0; i < N_MESHES; i++) {
        const bool in_parts = i >= 2;
        snprintf(pattern, sizeof pattern, "%s/model.safetensors", folder_of(i));
        assert_true(matches(pattern) == !in_parts);
        snprintf(pattern, sizeof pattern, "%s/set-*/model.safetensors", folder_of(i));
        assert_true(matches(pattern) == !in_parts);
        snprintf(pattern, sizeof pattern, "%s/set-*/optimizer-00001-of-0000?.safetensors",
                 folder_of(i));
        assert_true(matches(pattern) == in_parts);
    }
}

static void gathered_is_what_one_process_saves(void **state) {
    (void)state;
    static run_t one;
    open_run(&one, config, "data=1", "dp");
    for (size_t i = 1; i < N_MESHES; i++) {
        stator_progress_t progress;
        char *note;
        one.dir = folder_of(i);
        must_all(&one, "loading", resume);
        one.dir = scratch("one");
        must_all(&one, "saving", save);
        must(stator_checkpoint_gather(folder_of(i), scratch("gathered"), &progress, &note));
        assert_int_equal(progress.step, STEPS);
        assert_string_equal(note, "");
        stator_free(note);
        char command[1200];
        snprintf(command, sizeof command, "cmp '%s/model.safetensors' '%s'", scratch("one"),
                 scratch("gathered"));
        assert_int_equal(system(command), 0);
    }
    close_run(&one);
}

static void missing_and_damaged_parts_are_named(void **state) {
    (void)state;
    static run_t run;
    char command[1200];
    stator_progress_t progress;
    char *note;
    open_run(&run, config, "data=3", "zero3");
    /* a byte of the last tensor of rank 1 */
    snprintf(command, sizeof command,
             "rm -rf '%s' && cp -r '%s' '%s' && f=$(ls '%s'/set-*/model-00001-of-00003.safetensors)"
             " && printf x | dd of=$f bs=1 seek=$(($(wc -c < $f) - 3)) conv=notrunc 2> /dev/null",
             scratch("hurt"), folder_of(2), scratch("hurt"), scratch("hurt"));
    assert_int_equal(system(command), 0);
    run.dir = scratch("hurt");
    assert_int_equal(together(&run, resume), STATOR_PARSE);
    for (uint32_t r = 0; r < run.n; r++) {
        const char *message = run.messages[r];
        if (!strstr(message, "the part of rank 1") || !strstr(message, "model-00001-of-00003") ||
            !strstr(message, "tensor 'model.") || !strstr(message, "at byte "))
            fail_msg("rank %u says '%s'", r, message);
    }
    snprintf(command, sizeof command, "rm '%s'/set-*/optimizer-00002-of-00003.safetensors",
             scratch("hurt"));
    assert_int_equal(system(command), 0);
    assert_int_equal(stator_checkpoint_read(scratch("hurt"), &progress, &note), STATOR_PARSE);
    assert_non_null(strstr(stator_last_error(), "rank 1"));
    snprintf(command, sizeof command, "cp '%s'/set-*/model-00001-of-00003.safetensors '%s'/set-*/",
             folder_of(2), scratch("hurt"));
    assert_int_equal(system(command), 0);
    assert_int_equal(stator_checkpoint_read(scratch("hurt"), &progress, &note), STATOR_PARSE);
    if (!strstr(stator_last_error(), "the part of rank 2") ||
        !strstr(stator_last_error(), "optimizer-00002-of-00003"))
        fail_msg("it says '%s'", stator_last_error());
    run.dir = folder_of(2); /* what was refused has left the ranks as they were */
    must_all(&run, "loading", resume);
    close_run(&run);
}

static stator_status_t read_table(run_t *run, uint32_t rank) {
    const size_t bytes = (size_t)8192 * 64 * sizeof(double);
    void *data = malloc(bytes);
    stator_status_t status =
        stator_session_read(run->sessions[rank], "model.embed_tokens.weight", data, bytes);
    free(data);
    return status;
}

/* The table is 4 MiB, a rank's part of it one: nothing larger than two is allocated. */
static void no_rank_holds_a_whole_tensor(void **state) {
    (void)state;
    static const char large[] =
        "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"vocab_size\": 8192,"
        " \"hidden_size\": 64, \"intermediate_size\": 64, \"num_hidden_layers\": 1,"
        " \"num_attention_heads\": 2, \"num_key_value_heads\": 2}";
    static run_t run;
    open_run(&run, large, "data=4", "zero3");
    run.dir = scratch("large");
    st_memory_fail_above((size_t)2 << 20);
    stator_status_t saved = together(&run, save), resumed = STATOR_INTERNAL;
    if (saved == STATOR_OK) resumed = together(&run, resume);
    stator_status_t whole = together(&run, read_table);
    st_memory_fail_above(0);
    assert_int_equal(saved, STATOR_OK);
    assert_int_equal(resumed, STATOR_OK);
    assert_int_equal(whole, STATOR_NO_MEMORY); /* the limit works */
    close_run(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_goes_on_from_every_other),
        cmocka_unit_test(ranks_write_what_they_have),
        cmocka_unit_test(gathered_is_what_one_process_saves),
        cmocka_unit_test(missing_and_damaged_parts_are_named),
        cmocka_unit_test(no_rank_holds_a_whole_tensor),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

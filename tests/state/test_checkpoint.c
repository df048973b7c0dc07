/* Checkpoints: what is saved comes back, damage falls back to the older set, and a save that is cut
 * short at any byte loses nothing. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/vec.h"
#include "state/checkpoint.h"
#include "state/checkpoint_sets.h"
#include "support/scratch.h"

typedef struct model {
    float w[6], mean[3], moment[6];
    int64_t counter;
    checkpoint_tensor_t tensors[3], optimizer[1];
    state_alias_t alias;
    checkpoint_contents_t contents;
} model_t;

static char *data_of(model_t *model, const char *name) {
    if (strcmp(name, "w") == 0 || strcmp(name, "tied") == 0) return (char *)model->w;
    if (strcmp(name, "w.m") == 0) return (char *)model->moment;
    return strcmp(name, "counter") == 0 ? (char *)&model->counter : (char *)model->mean;
}

static st_status_t read_data(void *context, const char *name, size_t offset, size_t bytes,
                             void *out) {
    memcpy(out, data_of(context, name) + offset, bytes);
    return ST_OK;
}

static st_status_t write_data(void *context, const checkpoint_tensor_t *tensor, const ir_box_t *box,
                              const void *data) {
    assert_true(ir_box_is_whole(&tensor->type, box));
    memcpy(data_of(context, tensor->name), data, ir_type_bytes(&tensor->type));
    return ST_OK;
}

static checkpoint_tensor_t tensor(const char *name, ir_type_t type) {
    return (checkpoint_tensor_t){name, type, ir_box_whole(&type)};
}

static void make_model(model_t *model, int64_t step) {
    *model = (model_t){.counter = step};
    for (int i = 0; i < 6; i++) {
        model->w[i] = (float)(step * 100 + i);
        model->moment[i] = -model->w[i];
    }
    const int64_t dims[] = {2, 3}, three[] = {3};
    model->tensors[0] = tensor("w", ir_type_make(IR_F32, 2, dims));
    model->tensors[1] = tensor("running_mean", ir_type_make(IR_F32, 1, three));
    model->tensors[2] = tensor("counter", ir_type_scalar(IR_I64));
    model->optimizer[0] = tensor("w.m", ir_type_make(IR_F32, 2, dims));
    model->alias = (state_alias_t){"tied", "w"};
    model->contents = (checkpoint_contents_t){
        .model = model->tensors,
        .n_model = 3,
        .aliases = &model->alias,
        .n_aliases = 1,
        .optimizer = model->optimizer,
        .n_optimizer = 1,
        .source = {read_data, model},
        .progress = {.step = step,
                     .n_samples = 1115,
                     .epoch = 3,
                     .sample = 17,
                     .seed = UINT64_MAX - 1,
                     .has_best = true,
                     .best = 0.1},
    };
}

static void save(const char *dir, int64_t step, int32_t keep, bool is_best) {
    model_t model;
    make_model(&model, step);
    checkpoint_policy_t policy = {keep, is_best};
    assert_ok(checkpoint_save(dir, &model.contents, &policy, NULL));
}

static int64_t newest_step(const char *dir) {
    checkpoint_t *checkpoint;
    assert_ok(checkpoint_open(dir, NULL, &checkpoint));
    int64_t step = checkpoint_progress(checkpoint)->step;
    checkpoint_close(checkpoint);
    return step;
}

/* The file is whole and holds the weights of the step in its counter. */
static int64_t step_of_model(const char *path) {
    safetensors_t *file;
    assert_ok(safetensors_open(path, &file));
    int64_t step;
    float first;
    memcpy(&step, safetensors_find(file, "counter")->data, sizeof step);
    memcpy(&first, safetensors_find(file, "tied")->data, sizeof first);
    assert_true(first == (float)(step * 100));
    safetensors_close(file);
    return step;
}

static void round_trip(void **state) {
    (void)state;
    const char *dir = scratch("round/trip");
    save(dir, 5, 2, false);
    checkpoint_t *checkpoint;
    assert_ok(checkpoint_open(dir, NULL, &checkpoint));
    const checkpoint_progress_t *progress = checkpoint_progress(checkpoint);
    assert_int_equal(progress->step, 5);
    assert_int_equal(progress->epoch, 3);
    assert_int_equal(progress->sample, 17);
    assert_true(progress->seed == UINT64_MAX - 1);
    assert_true(progress->has_best && progress->best == 0.1);
    assert_int_equal(progress->n_samples, 1115);
    assert_string_equal(checkpoint_skipped(checkpoint), "");
    model_t expected, actual;
    make_model(&expected, 5);
    make_model(&actual, 0);
    assert_ok(checkpoint_load_model(checkpoint, actual.tensors, 3,
                                    &(checkpoint_sink_t){write_data, &actual}));
    assert_ok(checkpoint_load_optimizer(checkpoint, actual.optimizer, 1,
                                        &(checkpoint_sink_t){write_data, &actual}));
    assert_memory_equal(actual.w, expected.w, sizeof actual.w);
    assert_memory_equal(actual.moment, expected.moment, sizeof actual.moment);
    assert_int_equal(actual.counter, 5);
    actual.tensors[0].name = "tied";
    assert_ok(checkpoint_load_model(checkpoint, actual.tensors, 3,
                                    &(checkpoint_sink_t){write_data, &actual}));
    checkpoint_close(checkpoint);
    assert_int_equal(step_of_model(scratch("round/trip/model.safetensors")), 5);
}

static void mismatches_are_listed(void **state) {
    (void)state;
    const char *dir = scratch("mismatch");
    save(dir, 5, 1, false);
    checkpoint_t *checkpoint;
    assert_ok(checkpoint_open(dir, NULL, &checkpoint));
    model_t model;
    make_model(&model, 0);
    model.tensors[0].name = "v";
    model.tensors[1].type.dims[0] = 4;
    assert_fails(checkpoint_load_model(checkpoint, model.tensors, 3,
                                       &(checkpoint_sink_t){write_data, &model}),
                 ST_INVALID,
                 "1 missing from the file: v; 1 of another type: running_mean (f32[4] here, f32[3] "
                 "stored); 1 left over in the file: w");
    assert_fails(
        checkpoint_load_optimizer(checkpoint, NULL, 0, &(checkpoint_sink_t){write_data, &model}),
        ST_INVALID, "left over");
    make_model(&model, 0);
    model.tensors[0].type.dtype = IR_F64;
    assert_fails(checkpoint_load_model(checkpoint, model.tensors, 3,
                                       &(checkpoint_sink_t){write_data, &model}),
                 ST_INVALID, "f64[2,3] here");
    assert_int_equal(model.counter, 0);
    checkpoint_close(checkpoint);
}

static void keeps_the_newest_and_the_best(void **state) {
    (void)state;
    const char *dir = scratch("keep");
    save(dir, 10, 2, false);
    save(dir, 20, 2, true);
    for (int64_t step = 30; step <= 60; step += 10) save(dir, step, 2, false);
    assert_false(exists(scratch("keep/set-000001-step-10")));
    assert_true(exists(scratch("keep/set-000002-step-20")));
    assert_false(exists(scratch("keep/set-000004-step-40")));
    assert_true(exists(scratch("keep/set-000005-step-50")));
    assert_int_equal(newest_step(dir), 60);
    assert_int_equal(newest_step(scratch("keep/best")), 20);
    assert_int_equal(step_of_model(scratch("keep/best/model.safetensors")), 20);
    save(dir, 70, 1, true);
    assert_false(exists(scratch("keep/set-000002-step-20")));
    assert_int_equal(newest_step(scratch("keep/best")), 70);
    save(dir, 1, 2, false); /* a new run into the same folder: age counts, not the step */
    assert_int_equal(newest_step(dir), 1);
}

static void damage_falls_back(void **state) {
    (void)state;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                        "trainer.json", "manifest.json"};
    const char *dir = scratch("damage");
    for (int i = 0; i < 4; i++) {
        save(dir, 1, 2, false);
        save(dir, 2, 2, false);
        char name[128];
        snprintf(name, sizeof name, "damage/set-%06d-step-2/%s", 2 * i + 2, files[i]);
        size_t bytes;
        const char *path = scratch(name);
        uint8_t *data = slurp(path, &bytes);
        assert_non_null(data);
        if (i % 2 == 0) data[bytes / 2] ^= 4;
        unlink(path); /* the link in DIR keeps the whole contents */
        spill(path, data, i % 2 == 0 ? bytes : bytes - 1);
        free(data);
        checkpoint_t *checkpoint;
        assert_ok(checkpoint_open(dir, NULL, &checkpoint));
        assert_int_equal(checkpoint_progress(checkpoint)->step, 1);
        assert_non_null(strstr(checkpoint_skipped(checkpoint), files[i]));
        checkpoint_close(checkpoint);
        unlink(path);
        assert_int_equal(newest_step(dir), 1);
    }
    checkpoint_t *checkpoint;
    assert_int_equal(unlink(scratch("damage/set-000007-step-1/trainer.json")), 0);
    assert_fails(checkpoint_open(dir, NULL, &checkpoint), ST_PARSE, "no checkpoint in");
    assert_fails(checkpoint_open(scratch("nowhere"), NULL, &checkpoint), ST_NOT_FOUND,
                 "no checkpoint");
}

static void interrupted_saves_lose_nothing(void **state) {
    (void)state;
    const char *dir = scratch("cut");
    const char *model_path = scratch("cut/model.safetensors");
    save(dir, 1, 2, false);
    int64_t whole = 1, previous_link = 1;
    bool finished = false;
    for (int64_t budget = 0; !finished; budget++) {
        model_t model;
        int64_t step = budget + 2;
        make_model(&model, step);
        checkpoint_policy_t policy = {2, true};
        st_file_fail_after(budget);
        st_status_t status = checkpoint_save(dir, &model.contents, &policy, NULL);
        st_file_fail_after(-1);
        finished = status == ST_OK;
        int64_t newest = newest_step(dir);
        int64_t linked = step_of_model(model_path);
        if (finished) assert_true(newest == step && linked == step);
        assert_true(newest == step || newest == whole);
        assert_true(linked == step || linked == previous_link);
        whole = newest;
        previous_link = linked;
        assert_true(budget < 100000);
    }
    assert_true(whole > 1000);
    char command[700];
    snprintf(command, sizeof command, "ls -A '%s' | sort | tr '\\n' ' '", dir);
    char *listing = capture(command);
    assert_non_null(listing);
    assert_null(strstr(listing, "partial"));
    free(listing);
}

static void allocation_failures_lose_nothing(void **state) {
    (void)state;
    const char *dir = scratch("memory");
    save(dir, 1, 2, false);
    model_t model;
    checkpoint_policy_t policy = {2, true};
    make_model(&model, 2);
    st_status_t status = ST_NO_MEMORY;
    for (int64_t i = 0; status != ST_OK; i++) {
        st_memory_fail_after(i, false);
        status = checkpoint_save(dir, &model.contents, &policy, NULL);
        st_memory_fail_after(-1, false);
        assert_true(status == ST_OK || status == ST_NO_MEMORY);
        checkpoint_t *checkpoint;
        st_memory_fail_after(i, false);
        st_status_t opened = checkpoint_open(dir, NULL, &checkpoint);
        st_memory_fail_after(-1, false);
        assert_true(opened == ST_OK || opened == ST_NO_MEMORY);
        checkpoint_close(checkpoint);
        assert_true(newest_step(dir) >= 1);
    }
    assert_int_equal(newest_step(dir), 2);
}

static void refuses_senseless_contents(void **state) {
    (void)state;
    model_t model;
    checkpoint_policy_t policy = {0, false};
    make_model(&model, 1);
    assert_fails(checkpoint_save(scratch("senseless"), &model.contents, &policy, NULL), ST_INVALID,
                 "at least 1");
    policy.keep = 1;
    model.contents.progress.best = 0.0 / 0.0;
    assert_fails(checkpoint_save(scratch("senseless"), &model.contents, &policy, NULL), ST_INVALID,
                 "finite");
    model.contents.progress.has_best = false;
    assert_ok(checkpoint_save(scratch("senseless"), &model.contents, &policy, NULL));
    checkpoint_t *checkpoint;
    assert_ok(checkpoint_open(scratch("senseless"), NULL, &checkpoint));
    assert_false(checkpoint_progress(checkpoint)->has_best);
    checkpoint_close(checkpoint);
}

/* Waits for a child; true if it ended with 0. */
static bool ended_well(pid_t child) {
    int status = 1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void processes_take_turns(void **state) {
    (void)state;
    enum { N_PROCESSES = 3, N_SAVES = 20 };
    const char *dir = scratch("turns");
    pid_t children[N_PROCESSES];
    for (int c = 0; c < N_PROCESSES; c++) {
        children[c] = fork();
        assert_true(children[c] >= 0);
        if (children[c] > 0) continue;
        st_status_t status = ST_OK;
        for (int i = 0; i < N_SAVES && status == ST_OK; i++) {
            model_t model;
            make_model(&model, 100 * c + i);
            status =
                checkpoint_save(dir, &model.contents, &(checkpoint_policy_t){1000, false}, NULL);
        }
        _exit(status == ST_OK ? 0 : 1);
    }
    for (int c = 0; c < N_PROCESSES; c++) assert_true(ended_well(children[c]));
    checkpoint_sets_t sets;
    assert_ok(checkpoint_list(dir, &sets));
    assert_int_equal(sets.n, N_PROCESSES * N_SAVES);
    assert_int_equal(sets.data[0].serial, N_PROCESSES * N_SAVES);
    for (size_t i = 0; i < sets.n; i++) {
        char set[128];
        snprintf(set, sizeof set, "turns/%s", sets.data[i].name);
        checkpoint_t *checkpoint;
        assert_ok(checkpoint_open(scratch(set), NULL, &checkpoint));
        checkpoint_close(checkpoint);
    }
    ST_VEC_FREE(&sets);
}

static void a_held_folder_names_its_holder(void **state) {
    (void)state;
    const char *dir = scratch("held"), *path = scratch("held/.lock");
    save(dir, 1, 2, false);
    st_lock_t lock, second;
    assert_ok(st_lock_take(path, dir, 0, &lock));
    char holder[64];
    snprintf(holder, sizeof holder, "held' is in use by another process (pid %ld)", (long)getpid());
    assert_fails(st_lock_take(path, dir, 50, &second), ST_IO, holder);
    st_lock_release(&second);
    /* A save that finds the folder held waits for it. */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        model_t model;
        make_model(&model, 2);
        st_status_t status =
            checkpoint_save(dir, &model.contents, &(checkpoint_policy_t){2, false}, NULL);
        _exit(status == ST_OK ? 0 : 1);
    }
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    assert_int_equal(newest_step(dir), 1);
    st_lock_release(&lock);
    assert_true(ended_well(child));
    assert_int_equal(newest_step(dir), 2);
}

static void partials_of_running_processes_stay(void **state) {
    (void)state;
    const char *dir = scratch("partials");
    save(dir, 1, 2, false);
    pid_t gone = fork();
    if (gone == 0) _exit(0);
    assert_true(ended_well(gone));
    pid_t running = fork();
    if (running == 0) {
        pause();
        _exit(0);
    }
    assert_true(running > 0);
    const long processes[] = {running, gone, getpid()};
    for (int i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "partials/set-000009-step-1.partial-new-%ld", processes[i]);
        const char *folder = scratch(name);
        assert_ok(st_make_folder(folder));
        snprintf(name, sizeof name, "partials/model.safetensors.partial-%ld-3", processes[i]);
        const char *file = scratch(name);
        spill(file, "x", 1);
        save(dir, 2 + i, 2, false);
        assert_int_equal(exists(folder), i == 0);
        assert_int_equal(exists(file), i == 0);
    }
    kill(running, SIGKILL);
    waitpid(running, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(mismatches_are_listed),
        cmocka_unit_test(keeps_the_newest_and_the_best),
        cmocka_unit_test(damage_falls_back),
        cmocka_unit_test(interrupted_saves_lose_nothing),
        cmocka_unit_test(allocation_failures_lose_nothing),
        cmocka_unit_test(refuses_senseless_contents),
        cmocka_unit_test(processes_take_turns),
        cmocka_unit_test(a_held_folder_names_its_holder),
        cmocka_unit_test(partials_of_running_processes_stay),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

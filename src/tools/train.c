/* stator train: steps, evaluations, checkpoints, log. The loop is in train_loop; what it needs is
 * opened in open_run and released in close_run. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/progress.h"
#include "tools/tool.h"

enum { MAX_KEEP = 1000000, MAX_SKIPPED = 100 };

typedef struct train_run {
    const tool_t *tool;
    stator_graph_t *graph, *step_graph;
    stator_tensors_t *weights, *companion, *inputs;
    stator_plan_t *plan, *eval_plan;
    stator_session_t *session, *eval_session;
    stator_data_t *data, *eval_data;
    tool_feeder_t feeder;
    progress_t shown;
    stator_progress_t progress;
    int64_t n_steps;
    double eval_loss, accuracy;
    bool complete; /* resumed at or past its last step */
} train_run_t;

/* ---- opening ---- */

static stator_status_t open_evaluation(train_run_t *run) {
    const tool_t *tool = run->tool;
    if (!tool_text(tool, "eval-tokens-file")[0] && !tool_text(tool, "eval-images")[0])
        return STATOR_OK;
    TOOL_TRY(stator_options_set(tool->options, "mode", "eval"));
    stator_status_t status =
        stator_plan_compile(run->graph, tool->options, run->plan, &run->eval_plan);
    TOOL_TRY(stator_options_set(tool->options, "mode", "train"));
    TOOL_TRY(status);
    TOOL_TRY(tool_session(tool, run->eval_plan, run->session, &run->eval_session));
    return tool_open_data(tool, run->eval_plan, true, NULL, &run->eval_data);
}

static stator_status_t plan_steps(train_run_t *run) {
    int64_t steps = tool_int(run->tool, "steps"), an_epoch = stator_data_steps(run->data);
    if (steps < 0) return tool_fail(STATOR_INVALID, "option 'steps' is negative");
    if (steps == 0) {
        int64_t epochs = tool_int(run->tool, "epochs");
        if (epochs < 1) return tool_fail(STATOR_INVALID, "option 'epochs' must be at least 1");
        if (epochs > INT64_MAX / an_epoch)
            return tool_fail(STATOR_INVALID,
                             "option 'epochs' is %lld; with %lld steps an epoch the limit is %lld",
                             (long long)epochs, (long long)an_epoch,
                             (long long)(INT64_MAX / an_epoch));
        steps = an_epoch * epochs;
    }
    run->n_steps = steps;
    return STATOR_OK;
}

static stator_status_t compile_step(train_run_t *run) {
    const tool_t *tool = run->tool;
    TOOL_TRY(stator_graph_make_training(run->graph, tool->options, &run->step_graph));
    return stator_plan_compile(run->step_graph, tool->options, NULL, &run->plan);
}

/* A schedule needs the number of steps, which the data knows, and the data needs a plan. So where
 * the number is not given the step is compiled twice, at first without the schedule. */
static stator_status_t compile_first(train_run_t *run) {
    const tool_t *tool = run->tool;
    if (tool_int(tool, "steps") > 0) return compile_step(run);
    char schedule[32];
    snprintf(schedule, sizeof schedule, "%s", tool_text(tool, "schedule"));
    TOOL_TRY(stator_options_set(tool->options, "schedule", "constant"));
    stator_status_t status = compile_step(run);
    TOOL_TRY(stator_options_set(tool->options, "schedule", schedule));
    return status;
}

static stator_status_t settle_steps(train_run_t *run) {
    const tool_t *tool = run->tool;
    TOOL_TRY(plan_steps(run));
    if (!run->graph || tool_int(tool, "steps") == run->n_steps) return STATOR_OK;
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)run->n_steps);
    TOOL_TRY(stator_options_set(tool->options, "steps", text));
    stator_data_destroy(run->data);
    stator_plan_destroy(run->plan);
    stator_graph_destroy(run->step_graph);
    run->data = NULL;
    run->plan = NULL;
    run->step_graph = NULL;
    TOOL_TRY(compile_step(run));
    return tool_open_data(tool, run->plan, false, run->inputs, &run->data);
}

/* What each process does by itself, so that no step would show a difference. */
static stator_status_t agree(const tool_t *tool) {
    static const char *const options[] = {
        "seed", "init", "map", "save", "steps", "epochs", "save-every", "eval-every", "accumulate"};
    static const char *const files[] = {"weights", "input", "tokens-file", "images", "labels"};
    return tool_agree(tool, sizeof options / sizeof options[0], options,
                      sizeof files / sizeof files[0], files);
}

static stator_status_t check_options(const tool_t *tool) {
    int64_t keep = tool_int(tool, "keep");
    if (keep < 1 || keep > MAX_KEEP)
        return tool_fail(STATOR_INVALID, "option 'keep' is %lld; 1 to %d checkpoints can be kept",
                         (long long)keep, MAX_KEEP);
    if (tool_text(tool, "resume")[0] && tool_text(tool, "weights")[0])
        return tool_fail(STATOR_INVALID,
                         "--resume brings the weights of its checkpoint and --weights others: "
                         "give one of the two");
    return STATOR_OK;
}

/* The newest sets of a folder are kept and older ones go: a new run's would replace those of the
 * run that the folder belongs to. */
static stator_status_t check_unused(const train_run_t *run, const char *dir) {
    stator_progress_t there;
    char *note = NULL;
    if (tool_text(run->tool, "resume")[0]) return STATOR_OK;
    const stator_status_t status = stator_checkpoint_read(dir, &there, &note);
    stator_free(note);
    if (status == STATOR_NOT_FOUND) return STATOR_OK;
    if (status != STATOR_OK)
        return tool_fail(STATOR_INVALID,
                         "'%s' has the checkpoints of another run, which cannot be read (%s): give "
                         "--save another folder",
                         dir, stator_last_error());
    return tool_fail(STATOR_INVALID,
                     "'%s' has the checkpoints of another run, up to step %lld: go on from there "
                     "with --resume %s, or give --save another folder",
                     dir, (long long)there.step, dir);
}

/* A folder that cannot be written is better known before the first step than after the last. */
static stator_status_t check_save(const train_run_t *run) {
    const char *dir = tool_text(run->tool, "save");
    if (!dir[0] || !tool_leads(run->tool)) return STATOR_OK;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST && errno != ENOENT)
        return tool_fail(STATOR_IO, "cannot create folder '%s': %s", dir, strerror(errno));
    struct stat info;
    if (stat(dir, &info) != 0) return STATOR_OK; /* its parents are made when saving */
    if (!S_ISDIR(info.st_mode))
        return tool_fail(STATOR_IO, "cannot save into '%s': it is not a folder", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return tool_fail(STATOR_IO, "cannot save into '%s': %s", dir, strerror(errno));
    return check_unused(run, dir);
}

/* A run that goes on has the seed it began with: its data comes in that order. */
static stator_status_t read_checkpoint(train_run_t *run) {
    const tool_t *tool = run->tool;
    const char *resume = tool_text(tool, "resume");
    char *note = NULL, seed[32];
    if (!resume[0]) return STATOR_OK;
    TOOL_TRY(stator_checkpoint_read(resume, &run->progress, &note));
    stator_free(note); /* resuming tells it */
    if (stator_options_given(tool->options, "seed") &&
        (uint64_t)tool_int(tool, "seed") != run->progress.seed)
        return tool_fail(STATOR_INVALID, "%s was trained with --seed %llu; go on without --seed",
                         resume, (unsigned long long)run->progress.seed);
    snprintf(seed, sizeof seed, "%lld", (long long)run->progress.seed);
    return stator_options_set(tool->options, "seed", seed);
}

static stator_status_t go_on(train_run_t *run) {
    TOOL_TRY(stator_session_resume(run->session, tool_text(run->tool, "resume"), &run->progress));
    if (run->progress.step >= run->n_steps) {
        run->complete = true;
        if (!tool_leads(run->tool)) return STATOR_OK;
        fprintf(stderr, "nothing left to do: step %lld of %lld\n", (long long)run->progress.step,
                (long long)run->n_steps);
        return STATOR_OK;
    }
    TOOL_TRY(stator_data_resume(run->data, &run->progress));
    if (!tool_leads(run->tool)) return STATOR_OK;
    fprintf(stderr, "resumed at step %lld\n", (long long)run->progress.step);
    return STATOR_OK;
}

/* A graph is made into a training step here; a plan is one already, and nothing else. */
static stator_status_t open_step(train_run_t *run) {
    const tool_t *tool = run->tool;
    const char *path = tool->files[0];
    tool_kind_t kind;
    TOOL_TRY(tool_file_kind(path, &kind));
    if (kind != TOOL_PLAN) {
        TOOL_TRY(tool_load_graph(tool, path, &run->graph, &run->weights, &run->companion));
        return compile_first(run);
    }
    if (tool_text(tool, "eval-tokens-file")[0] || tool_text(tool, "eval-images")[0])
        return tool_fail(STATOR_INVALID, "%s is a plan, which has no evaluation: give the graph",
                         path);
    return tool_load_plan(tool, path, &run->plan, &run->weights);
}

static stator_status_t open_run(train_run_t *run) {
    const tool_t *tool = run->tool;
    const char *input = tool_text(tool, "input");
    TOOL_TRY(check_options(tool));
    TOOL_TRY(agree(tool));
    TOOL_TRY(read_checkpoint(run));
    TOOL_TRY(check_save(run));
    if (input[0]) TOOL_TRY(stator_tensors_load(input, &run->inputs));
    TOOL_TRY(open_step(run));
    TOOL_TRY(tool_open_data(tool, run->plan, false, run->inputs, &run->data));
    if (!run->data)
        return tool_fail(STATOR_INVALID,
                         "'train' needs data: --input, --tokens-file, or --images with --labels");
    TOOL_TRY(settle_steps(run));
    TOOL_TRY(tool_session(tool, run->plan, NULL, &run->session));
    TOOL_TRY(tool_fill_state(tool, run->session, run->companion, false, run->weights));
    TOOL_TRY(open_evaluation(run));
    run->progress.seed = (uint64_t)tool_int(tool, "seed");
    if (tool_text(tool, "resume")[0]) TOOL_TRY(go_on(run));
    if (run->complete) return STATOR_OK;
    tool_feeder_open(run->plan, run->session, run->data, false, &run->feeder);
    return progress_open(tool, run->plan, run->session, run->progress.step, run->n_steps,
                         &run->shown);
}

static void close_run(train_run_t *run) {
    progress_close(&run->shown);
    stator_data_destroy(run->eval_data);
    stator_data_destroy(run->data);
    stator_session_destroy(run->eval_session);
    stator_session_destroy(run->session);
    stator_plan_destroy(run->eval_plan);
    stator_plan_destroy(run->plan);
    stator_tensors_destroy(run->inputs);
    stator_tensors_destroy(run->companion);
    stator_tensors_destroy(run->weights);
    stator_graph_destroy(run->step_graph);
    stator_graph_destroy(run->graph);
}

/* ---- reporting ---- */

typedef struct step_result {
    tool_scalar_t loss, grad_norm, lr, skipped, loss_scale;
    stator_fetch_t fetches[5];
    size_t n_fetches;
    bool has_norm, has_lr, has_skipped, has_scale;
    int64_t n_skipped; /* in a row */
} step_result_t;

static stator_status_t tell_step(train_run_t *run, const step_result_t *result) {
    double norm = tool_scalar_value(&result->grad_norm), lr = tool_scalar_value(&result->lr);
    double scale = tool_scalar_value(&result->loss_scale);
    const progress_step_t step = {.step = run->progress.step,
                                  .loss = tool_scalar_value(&result->loss),
                                  .us = stator_session_info(run->session).step_us,
                                  .grad_norm = result->has_norm ? &norm : NULL,
                                  .lr = result->has_lr ? &lr : NULL,
                                  .loss_scale = result->has_scale ? &scale : NULL,
                                  .counts_skipped = result->has_skipped,
                                  .skipped = result->has_skipped && result->skipped.i64};
    return progress_step(&run->shown, &step);
}

/* ---- steps ---- */

static stator_status_t save(train_run_t *run, bool is_best) {
    const char *dir = tool_text(run->tool, "save");
    if (!dir[0]) return STATOR_OK;
    run->progress.epoch = run->feeder.epoch;
    run->progress.sample = run->feeder.sample;
    run->progress.n_samples = stator_data_samples(run->data);
    return stator_session_save(run->session, dir, &run->progress,
                               (int32_t)tool_int(run->tool, "keep"), is_best);
}

/* Evaluates, and marks and saves the best weights so far (by loss). */
static stator_status_t evaluate(train_run_t *run, bool final, bool *out_saved) {
    *out_saved = false;
    if (!run->eval_data) return STATOR_OK;
    TOOL_TRY(tool_evaluate(run->tool, run->eval_session, run->eval_plan, run->eval_data,
                           &run->eval_loss, &run->accuracy));
    if (tool_interrupted(run->tool)) return STATOR_OK; /* cut short: no result */
    TOOL_TRY(
        progress_evaluation(&run->shown, run->progress.step, run->eval_loss, run->accuracy, final));
    if (!isfinite(run->eval_loss)) return STATOR_OK;
    if (run->progress.has_best && run->eval_loss >= run->progress.best) return STATOR_OK;
    run->progress.has_best = 1;
    run->progress.best = run->eval_loss;
    *out_saved = true;
    return save(run, true);
}

static stator_status_t one_step(train_run_t *run, step_result_t *result) {
    const bool more = run->progress.step + 1 < run->n_steps;
    TOOL_TRY(tool_feeder_step(&run->feeder, more, result->n_fetches, result->fetches));
    run->progress.step++;
    TOOL_TRY(tell_step(run, result));
    result->n_skipped = result->has_skipped && result->skipped.i64 ? result->n_skipped + 1 : 0;
    if (result->n_skipped >= MAX_SKIPPED)
        return tool_fail(STATOR_NOT_FINITE,
                         "the gradients of %lld steps in a row, up to step %lld, are not finite; "
                         "earlier checkpoints are kept: go on from one with a lower --lr",
                         (long long)result->n_skipped, (long long)run->progress.step);
    if (result->n_skipped || isfinite(tool_scalar_value(&result->loss))) return STATOR_OK;
    return tool_fail(
        STATOR_NOT_FINITE,
        "the loss is not finite at step %lld; earlier checkpoints are kept: go on from "
        "one with a lower --lr, or clip the gradients (--clip)",
        (long long)run->progress.step);
}

static bool due(const tool_t *tool, const char *key, int64_t step) {
    int64_t every = tool_int(tool, key);
    return every > 0 && step % every == 0;
}

static stator_status_t prepare_fetches(const train_run_t *run, step_result_t *result) {
    const char *loss = tool_loss(run->tool);
    if (!tool_scalar_fetch(run->plan, loss, &result->loss, &result->fetches[0]))
        return tool_fail(STATOR_INVALID, "the graph has no scalar output '%s'", loss);
    result->n_fetches = 1;
    result->has_norm = tool_scalar_fetch(run->plan, "grad_norm", &result->grad_norm,
                                         &result->fetches[result->n_fetches]);
    result->n_fetches += result->has_norm;
    result->has_lr =
        tool_scalar_fetch(run->plan, "lr", &result->lr, &result->fetches[result->n_fetches]);
    result->n_fetches += result->has_lr;
    result->has_skipped = tool_scalar_fetch(run->plan, "skipped", &result->skipped,
                                            &result->fetches[result->n_fetches]);
    result->n_fetches += result->has_skipped;
    result->has_scale = tool_scalar_fetch(run->plan, "loss_scale", &result->loss_scale,
                                          &result->fetches[result->n_fetches]);
    result->n_fetches += result->has_scale;
    return STATOR_OK;
}

static stator_status_t train_loop(train_run_t *run) {
    const tool_t *tool = run->tool;
    step_result_t result = {0};
    TOOL_TRY(prepare_fetches(run, &result));
    tool_catch_interrupts();
    progress_begin(&run->shown);
    bool saved = false;
    while (run->progress.step < run->n_steps && !tool_interrupted(run->tool)) {
        TOOL_TRY(one_step(run, &result));
        saved = false;
        bool last = run->progress.step == run->n_steps;
        if (!last && due(tool, "eval-every", run->progress.step))
            TOOL_TRY(evaluate(run, false, &saved));
        if (!last && !saved && due(tool, "save-every", run->progress.step)) {
            TOOL_TRY(save(run, false));
            saved = true;
        }
    }
    if (!tool_interrupted(run->tool)) TOOL_TRY(evaluate(run, true, &saved));
    if (!saved) TOOL_TRY(save(run, false));
    if (!tool_interrupted(run->tool)) return STATOR_OK;
    return tool_fail(STATOR_INTERRUPTED, "interrupted after step %lld%s",
                     (long long)run->progress.step,
                     tool_text(tool, "save")[0] ? "; the state is saved, go on with --resume" : "");
}

stator_status_t tool_train(tool_t *tool) {
    train_run_t run = {.tool = tool};
    stator_status_t status = open_run(&run);
    if (status == STATOR_OK && !run.complete) status = train_loop(&run);
    if (status != STATOR_OK) tool_tell(tool);
    close_run(&run);
    return status;
}

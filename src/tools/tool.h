/* The `stator` command: built on the public API alone. One file a command, one row in main.c's
 * table. */
#ifndef STATOR_TOOLS_TOOL_H
#define STATOR_TOOLS_TOOL_H

#include <stdbool.h>
#include <stdio.h>

#include "stator/stator.h"

/* What a command gets: its file arguments and the options. */
typedef struct tool {
    const char *command;
    int n_files;
    char **files;
    stator_options_t *options;
    stator_comm_t *comm; /* NULL unless this process is one of several ranks */
    bool told;           /* the failure has been printed */
} tool_t;

/* Prints the failure at hand, once: before what then takes its time to be given back. */
void tool_tell(tool_t *tool);

typedef struct tool_command {
    const char *name;
    char letter;           /* in the option table's `commands` */
    const char *arguments; /* for --help */
    const char *help;
    int min_files, max_files;
    bool joins; /* its ranks may be processes */
    stator_status_t (*run)(tool_t *tool);
} tool_command_t;

#define TOOL_TRY(expr)                                      \
    do {                                                    \
        stator_status_t tool_status_ = (expr);              \
        if (tool_status_ != STATOR_OK) return tool_status_; \
    } while (0)
#define TOOL_TRY_GOTO(expr, label)           \
    do {                                     \
        status = (expr);                     \
        if (status != STATOR_OK) goto label; \
    } while (0)

stator_status_t tool_model(tool_t *tool);
stator_status_t tool_import(tool_t *tool);
stator_status_t tool_info(tool_t *tool);
stator_status_t tool_checkpoint(tool_t *tool);
stator_status_t tool_compile(tool_t *tool);
stator_status_t tool_plan(tool_t *tool);
stator_status_t tool_bench(tool_t *tool);
stator_status_t tool_trace(tool_t *tool);
stator_status_t tool_run(tool_t *tool);
stator_status_t tool_train(tool_t *tool);
stator_status_t tool_eval(tool_t *tool);
stator_status_t tool_generate(tool_t *tool);

/* ---- options (support.c) ---- */
const char *tool_text(const tool_t *tool, const char *key);
int64_t tool_int(const tool_t *tool, const char *key);
double tool_float(const tool_t *tool, const char *key);
bool tool_flag(const tool_t *tool, const char *key);
/* The one of several processes that writes files and notes; true where there is one. */
bool tool_leads(const tool_t *tool);
/* Ranks that are processes: FAILs naming the option and both values where they were given others,
 * or files of other content (agree.c). Every rank calls it. */
stator_status_t tool_agree(const tool_t *tool, size_t n_options, const char *const *options,
                           size_t n_files, const char *const *files);
stator_status_t tool_session(const tool_t *tool, const stator_plan_t *plan, stator_session_t *share,
                             stator_session_t **out_session);
/* Reports a failure of the command's own: printf text, shown by main. Returns `status`. */
stator_status_t tool_fail(stator_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *tool_failure(void); /* text of the last tool_fail, "" if none */
/* The option, or an error that says which one the command needs. */
stator_status_t tool_require(const tool_t *tool, const char *key, const char **out_text);

/* ---- shared steps (support.c) ---- */
/* What a file is, by its first bytes; NOT_FOUND or IO if it cannot be read. */
typedef enum tool_kind { TOOL_GRAPH, TOOL_PLAN, TOOL_TENSORS, TOOL_UNKNOWN } tool_kind_t;
stator_status_t tool_file_kind(const char *path, tool_kind_t *out_kind);
/* Reads a plan and the tensors of --weights (NULL without). INVALID: an option is given that counts
 * only when compiling. */
stator_status_t tool_load_plan(const tool_t *tool, const char *path, stator_plan_t **out_plan,
                               stator_tensors_t **out_weights);
/* The plan in the file, or that of the graph in it: of the training step, or with --mode eval of
 * evaluation. */
stator_status_t tool_compile_or_load(const tool_t *tool, stator_plan_t **out_plan);
/* "dir/g.stator" → "dir/g.safetensors"; freed by the caller. NULL when out of memory. */
char *tool_companion(const char *graph_path);
/* A graph file, with sizes for its open symbols by the option "bind". */
stator_status_t tool_load_bound(const tool_t *tool, const char *path, stator_graph_t **out_graph);
/* Reads a graph; with --weights, what an importer took for parameters but the weights do not name
 * becomes a constant. Prints the notes. *out_weights and *out_companion are NULL where there is no
 * such file. */
stator_status_t tool_load_graph(const tool_t *tool, const char *path, stator_graph_t **out_graph,
                                stator_tensors_t **out_weights, stator_tensors_t **out_companion);
/* Initial state: rules, then the companion's buffers (parameters too if `companion_parameters`),
 * then the weights. */
stator_status_t tool_fill_state(const tool_t *tool, stator_session_t *session,
                                const stator_tensors_t *companion, bool companion_parameters,
                                const stator_tensors_t *weights);
/* Source of batches from --input, --tokens-file or --images (or their eval- forms). *out_data is
 * NULL if none is given. */
stator_status_t tool_open_data(const tool_t *tool, const stator_plan_t *plan, bool evaluation,
                               const stator_tensors_t *inputs, stator_data_t **out_data);
/* A scalar output of a step as double. */
typedef struct tool_scalar {
    stator_dtype_t dtype;
    union {
        float f32;
        double f64;
        int64_t i64;
    };
} tool_scalar_t;
double tool_scalar_value(const tool_scalar_t *scalar);
/* Prepares a fetch of output `name`; false if the plan has no such scalar output. */
bool tool_scalar_fetch(const stator_plan_t *plan, const char *name, tool_scalar_t *scalar,
                       stator_fetch_t *out_fetch);
/* Name of the output to minimize: --loss, or "loss". */
const char *tool_loss(const tool_t *tool);
/* Steps with a source's batches in turn (feeder.c). Where the plan has room for the inputs of one
 * step more, those of the next step are copied while a step runs. Zeroed is closed. */
typedef struct tool_feeder {
    stator_session_t *session; /* the caller's, as is data; NULL: the plan has no inputs */
    stator_data_t *data;
    bool ahead, fed;
    bool stays;            /* the first batch stays on the device, for all steps */
    int64_t epoch, sample; /* the source's position after the batches that steps have taken */
    int64_t valid,
        next_valid; /* real samples in the batch of the last step, and in the one fed ahead */
} tool_feeder_t;
/* `stays` counts where the plan has such room only. The source stands at the first batch; where it
 * is sought to another one, a feeder is opened anew. */
void tool_feeder_open(const stator_plan_t *plan, stator_session_t *session, stator_data_t *data,
                      bool stays, tool_feeder_t *out);
/* One step; `more`: another one follows. */
stator_status_t tool_feeder_step(tool_feeder_t *feeder, bool more, size_t n_fetches,
                                 const stator_fetch_t *fetches);
/* A session whose steps only matter for how long they take (stepper.c): state by rules, inputs from
 * --input or random, the loss fetched as in training. Zeroed is closed. */
typedef struct tool_stepper {
    stator_plan_t *plan; /* the caller's */
    stator_session_t *session;
    stator_tensors_t *inputs;
    stator_data_t *data;
    tool_feeder_t feeder;
    double created_s, init_s; /* what creating the session took, and its initial state */
    bool has_loss;
    double loss; /* of the last step */
} tool_stepper_t;
stator_status_t tool_stepper_open(const tool_t *tool, stator_plan_t *plan, tool_stepper_t *out);
/* *out_wall: seconds as the caller sees it. */
stator_status_t tool_stepper_step(const tool_t *tool, tool_stepper_t *stepper, double *out_wall);
void tool_stepper_close(tool_stepper_t *stepper);
/* Runs an evaluation over a source, at most --eval-batches of it: weighted mean loss, share of
 * right answers (−1 without an output "correct"). */
stator_status_t tool_evaluate(const tool_t *tool, stator_session_t *session,
                              const stator_plan_t *plan, stator_data_t *data, double *out_loss,
                              double *out_accuracy);
/* What a step has so many of: tokens, samples. */
double tool_items(const stator_plan_t *plan, const char **out_unit);
/* Event files for TensorBoard (tfevents.c): one in `folder`, which is made. Each scalar is in the
 * file when the call returns. `events` NULL: nothing happens. */
typedef struct tool_events tool_events_t;
stator_status_t tool_events_create(const char *folder, tool_events_t **out_events);
stator_status_t tool_events_scalar(tool_events_t *events, int64_t step, const char *tag,
                                   double value);
void tool_events_destroy(tool_events_t *events); /* NULL is fine */
/* "12.3 MiB" */
const char *tool_bytes(uint64_t bytes, char buffer[32]);
/* What packing loses, in percent: of the work region above the most bytes alive at one time. */
double tool_packing_gap(const stator_plan_info_t *info);
/* A line on standard error for each kernel of last resort that takes more than a tenth of the
 * step. */
void tool_warn_of_last_resorts(const tool_t *tool, const stator_report_t *report);
double tool_seconds(void); /* monotonic */
/* Writes `text` as a JSON string, quotes included. */
void tool_json_string(FILE *file, const char *text);
/* Finite numbers with 17 digits, null for others (JSON has none). */
void tool_json_number(FILE *file, double value);
/* From here on the first interrupt only lets tool_interrupted say so, for a command that then
 * finishes its step and saves; the second ends the process as usual. */
void tool_catch_interrupts(void);
/* True after an interrupt signal, on whichever of several processes: all of them call it equally
 * often. */
bool tool_interrupted(const tool_t *tool);

/* stator launch (launch.c): has a command line of its own; returns the exit code. */
int tool_launch(int argc, char **argv);

#endif

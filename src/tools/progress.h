/* What training tells as it goes: the line on standard output (in place on a terminal), JSON lines
 * (--log) and event files for TensorBoard (--tensorboard). */
#ifndef STATOR_TOOLS_PROGRESS_H
#define STATOR_TOOLS_PROGRESS_H

#include "tools/tool.h"

typedef struct progress {
    int64_t first_step, n_steps; /* steps done before this process, and in all */
    double started, stepped;     /* when training began, and its first step was done */
    double items;                /* a step: tokens, samples */
    const char *unit;
    double useful_us; /* that the model's products take at the target's best rate */
    uint64_t bytes;   /* of a rank */
    FILE *log;
    const char *log_path;
    tool_events_t *events;
    bool live; /* standard output is a terminal */
} progress_t;

/* One step; NULL: the graph has no such output. */
typedef struct progress_step {
    int64_t step;
    double loss, us;
    const double *grad_norm, *lr, *loss_scale;
    bool counts_skipped, skipped;
} progress_step_t;

/* Opens what the options ask for; closed also after a failure. */
stator_status_t progress_open(const tool_t *tool, const stator_plan_t *plan,
                              const stator_session_t *session, int64_t first_step, int64_t n_steps,
                              progress_t *out);
void progress_begin(progress_t *p); /* the clock for rates and the time left */
void progress_close(progress_t *p); /* zeroed is fine */
stator_status_t progress_step(progress_t *p, const progress_step_t *step);
/* `accuracy` below 0: there is none. */
stator_status_t progress_evaluation(const progress_t *p, int64_t step, double loss, double accuracy,
                                    bool final);

#endif

/* stator checkpoint: what a folder of checkpoints holds, and its model as one file. */
#include <string.h>

#include "tools/tool.h"

/* What was done with the set at which step. */
static void print_done(const tool_t *tool, const char *done, const stator_progress_t *progress) {
    if (!tool_flag(tool, "json")) {
        printf("%s: step %lld, %s\n", tool->files[1], (long long)progress->step, done);
        return;
    }
    printf("{\"folder\":");
    tool_json_string(stdout, tool->files[1]);
    printf(",\"step\":%lld}\n", (long long)progress->step);
}

/* The newest set is not whole: who gathers is told which one it got, who checks gets that as the
 * answer. */
static stator_status_t passed_over(const tool_t *tool, bool gathers, const char *note,
                                   const stator_progress_t *progress) {
    const long long step = (long long)progress->step;
    if (!gathers)
        return tool_fail(STATOR_PARSE,
                         "%s: the newest set is not whole: %s; the newest that is is of "
                         "step %lld",
                         tool->files[1], note, step);
    fprintf(stderr,
            "%s: the newest set is not whole: %s; what is written is an older one, of step %lld\n",
            tool->files[1], note, step);
    return STATOR_OK;
}

stator_status_t tool_checkpoint(tool_t *tool) {
    const char *verb = tool->files[0], *dir = tool->files[1], *output = tool_text(tool, "output");
    const bool gathers = strcmp(verb, "gather") == 0;
    stator_progress_t progress;
    char *note = NULL;
    if (!gathers && strcmp(verb, "check") != 0)
        return tool_fail(STATOR_INVALID,
                         "'checkpoint %s' is not known; 'check DIR' and 'gather DIR -o FILE' are",
                         verb);
    if (!gathers && output[0])
        return tool_fail(STATOR_INVALID, "'checkpoint check' writes no file: leave out --output");
    if (gathers) TOOL_TRY(tool_require(tool, "output", &output));
    TOOL_TRY(gathers ? stator_checkpoint_gather(dir, output, &progress, &note)
                     : stator_checkpoint_read(dir, &progress, &note));
    stator_status_t status = note[0] ? passed_over(tool, gathers, note, &progress) : STATOR_OK;
    stator_free(note);
    if (status == STATOR_OK) print_done(tool, gathers ? "written" : "whole", &progress);
    return status;
}

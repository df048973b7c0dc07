/* Tests of the command: running it, judging its refusals, and a folder of small files to run it on.
 */
#ifndef TESTS_TOOLS_COMMAND_H
#define TESTS_TOOLS_COMMAND_H

#include <stddef.h>
#include <stdint.h>

typedef struct answer {
    int code;       /* −1: ended by a signal */
    double seconds; /* of processor time */
    char errors[8192];
} answer_t;

/* `line`: words that single spaces part. */
answer_t command_run(const char *line);
void must_run(const char *line);

/* A refusal: status 1 to 3 and exactly one line on standard error, within a second. Anything else
 * is printed and counted in n_findings. `what` describes the case, `name` has to be in the message
 * (NULL: anything). */
void must_refuse(const char *line, const char *what, const char *name);
/* A refusal or success. */
void must_survive(const char *line, const char *what);
extern int n_findings;

void write_bytes(const char *path, const void *data, size_t bytes);
unsigned char *read_bytes(const char *path, size_t *out_bytes); /* freed by the caller */
/* An IDX file of bytes 0 to 9 in turn. */
void write_idx(const char *path, unsigned char rank, const uint32_t *dims);

/* Group setup and teardown: enters a folder of its own with
 *   config.json, g.stator, g.plan    a Llama of nine symbols, batch 2, windows of 4
 *   config8.json, small.stator       the same with eight symbols
 *   text.txt, text.tokens, vocab.json   a text of nine characters
 *   r.stator, images, labels         ResNet-8 for 8 × 8 pixels, batch 2
 *   set/, points/                    checkpoints of g.stator after a step */
int command_make_files(void **state);
int command_remove_files(void **state);

#endif

/* See command.h. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/command.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double limit_s = 20;
#else
static const double limit_s = 1;
#endif
enum { MAX_ARGUMENTS = 24, HANGS_AFTER_S = 60 };

/* ---- running the command ---- */

static void read_errors(answer_t *answer) {
    FILE *file = fopen("errors.txt", "rb");
    assert_non_null(file);
    size_t n = fread(answer->errors, 1, sizeof answer->errors - 1, file);
    answer->errors[n] = '\0';
    fclose(file);
}

answer_t command_run(const char *line) {
    char copy[2048], *words[MAX_ARGUMENTS] = {STATOR_COMMAND};
    int n = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        assert_true(n < MAX_ARGUMENTS - 1);
        words[n++] = word;
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int errors = open("errors.txt", O_CREAT | O_TRUNC | O_WRONLY, 0600);
        int nothing = open("/dev/null", O_RDWR);
        if (errors < 0 || nothing < 0) _exit(99);
        dup2(nothing, STDIN_FILENO);
        dup2(nothing, STDOUT_FILENO);
        dup2(errors, STDERR_FILENO);
        alarm(HANGS_AFTER_S);
        execv(STATOR_COMMAND, words);
        _exit(99);
    }
    int status = 0;
    struct rusage used;
    assert_int_equal(wait4(child, &status, 0, &used), child);
    answer_t answer = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
    answer.seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    read_errors(&answer);
    return answer;
}

void must_run(const char *line) {
    answer_t answer = command_run(line);
    if (answer.code != 0) fail_msg("stator %s: status %d: %s", line, answer.code, answer.errors);
}

int n_findings;

static void finding(const char *line, const char *what, const char *is, const answer_t *a) {
    print_error("stator %s\n  %s: %s; status %d, %.2f s, message: %s\n", line, what, is, a->code,
                a->seconds, a->errors);
    n_findings++;
}

/* A finding unless the answer is a refusal as the head of this file says; `name` must be in the
 * message. */
static void check_refusal(const char *line, const char *what, const answer_t *a, const char *name) {
    const char *end = strchr(a->errors, '\n');
    if (a->code < 1 || a->code > 3)
        finding(line, what, "not refused", a);
    else if (!end || end[1] || strncmp(a->errors, "stator: ", 8) != 0)
        finding(line, what, "not one line of message", a);
    else if (name && !strstr(a->errors, name))
        finding(line, what, "a name is missing in the message", a);
    if (a->seconds > limit_s) finding(line, what, "too slow", a);
}

void must_refuse(const char *line, const char *what, const char *name) {
    answer_t answer = command_run(line);
    check_refusal(line, what, &answer, name);
}

void must_survive(const char *line, const char *what) {
    answer_t answer = command_run(line);
    if (answer.code == 0) {
        if (answer.seconds > limit_s) finding(line, what, "too slow", &answer);
    } else {
        check_refusal(line, what, &answer, NULL);
    }
}

/* ---- files ---- */

void write_bytes(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

unsigned char *read_bytes(const char *path, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info) != 0) {
        fail_msg("%s: %s", path, strerror(errno));
        return NULL;
    }
    unsigned char *data = malloc((size_t)info.st_size + 1);
    *out_bytes = fread(data, 1, (size_t)info.st_size, file);
    assert_int_equal(*out_bytes, info.st_size);
    fclose(file);
    return data;
}

void write_idx(const char *path, unsigned char rank, const uint32_t *dims) {
    unsigned char head[16] = {0, 0, 8, rank};
    size_t n = 4, elements = 1;
    for (unsigned char i = 0; i < rank; i++) {
        for (int shift = 24; shift >= 0; shift -= 8) head[n++] = (unsigned char)(dims[i] >> shift);
        elements *= dims[i];
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(head, 1, n, file);
    for (size_t i = 0; i < elements; i++) fputc((int)(i % 10), file);
    assert_int_equal(fclose(file), 0);
}

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 8, \"intermediate_size\": 12,"
    " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
    " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}\n";

int command_make_files(void **state) {
    (void)state;
    static char folder[] = "command.XXXXXX";
    if (!mkdtemp(folder) || chdir(folder) != 0) return -1;
    write_bytes("config.json", config, sizeof config - 1);
    FILE *text = fopen("text.txt", "wb");
    for (int i = 0; i < 64; i++) fprintf(text, "abc defg%c", i % 4 == 3 ? '\n' : 'a');
    fclose(text);
    write_idx("images", 3, (const uint32_t[]){8, 8, 8});
    write_idx("labels", 1, (const uint32_t[]){8});
    must_run("import text.txt --chars --vocab vocab.json -o text.tokens");
    must_run("model llama --config config.json --batch 2 --seq 4 -o small.stator");
    write_bytes("config8.json", config, sizeof config - 1);
    size_t n;
    unsigned char *json = read_bytes("config.json", &n);
    *strchr((char *)json, '8') = '9';
    write_bytes("config.json", json, n);
    free(json);
    must_run("model llama --config config.json --batch 2 --seq 4 -o g.stator");
    must_run("model resnet --depth 8 --classes 10 --image 8 --channels 1 --batch 2 -o r.stator");
    must_run("compile g.stator -o g.plan");
    must_run("train g.stator --tokens-file text.tokens --steps 1 --save set");
    must_run("train g.stator --tokens-file text.tokens --steps 1 --save points");
    must_run("train r.stator --images images --labels labels --steps 1");
    return 0;
}

int command_remove_files(void **state) {
    (void)state;
    char folder[4096];
    if (!getcwd(folder, sizeof folder) || chdir("..") != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(99);
    }
    return waitpid(child, NULL, 0) == child ? 0 : -1;
}

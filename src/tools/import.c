/* stator import: a .pt2 or ONNX model into a graph with its parameters beside it, or a text into
 * token shards (with --chars or --tokenizer). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/tool.h"

/* ---- models ---- */

static stator_status_t import_model(tool_t *tool, const char *output) {
    stator_graph_t *graph = NULL;
    stator_tensors_t *tensors = NULL;
    stator_status_t status;
    char *companion = tool_companion(output);
    if (!companion) return tool_fail(STATOR_NO_MEMORY, "out of memory");
    if (strcmp(companion, output) == 0) {
        free(companion);
        return tool_fail(STATOR_INVALID, "%s: the graph's own file cannot end in .safetensors",
                         output);
    }
    TOOL_TRY_GOTO(stator_graph_import(tool->files[0], tool->options, &graph, &tensors), done);
    fprintf(stderr, "%s", stator_graph_notes(graph));
    /* tensors first: a graph on disk always has its values beside it */
    TOOL_TRY_GOTO(stator_tensors_save(tensors, companion), done);
    TOOL_TRY_GOTO(stator_graph_save(graph, output), done);
    printf("%s: %zu nodes, %zu parameters, %zu buffers\n", output, stator_graph_node_count(graph),
           stator_graph_count(graph, STATOR_PARAMETER), stator_graph_count(graph, STATOR_BUFFER));
done:
    free(companion);
    stator_graph_destroy(graph);
    stator_tensors_destroy(tensors);
    return status;
}

/* ---- texts ---- */

static stator_status_t read_file(const char *path, char **out_text, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return tool_fail(STATOR_NOT_FOUND, "%s: %s", path, strerror(errno));
    struct stat info;
    if (fstat(fileno(file), &info) != 0 || (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))) {
        fclose(file);
        return tool_fail(STATOR_IO, "%s: neither a file nor a pipe; a text is needed", path);
    }
    size_t n = 0, capacity = 1 << 20;
    char *text = malloc(capacity);
    while (text) {
        n += fread(text + n, 1, capacity - n, file);
        if (n < capacity) break;
        char *grown = realloc(text, capacity *= 2);
        if (!grown) free(text);
        text = grown;
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    if (!text) return tool_fail(STATOR_NO_MEMORY, "%s: out of memory after %zu bytes", path, n);
    if (failed || n == 0) {
        free(text);
        return failed ? tool_fail(STATOR_IO, "%s: reading failed", path)
                      : tool_fail(STATOR_INVALID, "%s: the file is empty", path);
    }
    *out_text = text;
    *out_bytes = n;
    return STATOR_OK;
}

static stator_status_t write_shard(const stator_tokenizer_t *tokenizer, const char *path,
                                   const char *text, size_t bytes) {
    int64_t *tokens = NULL;
    size_t n = 0;
    TOOL_TRY(stator_tokenizer_encode(tokenizer, text, bytes, &tokens, &n));
    stator_status_t status =
        stator_tokens_save(path, tokens, n, stator_tokenizer_vocabulary(tokenizer));
    stator_free(tokens);
    if (status == STATOR_OK) printf("%s: %zu tokens\n", path, n);
    return status;
}

/* The held-out part goes to "<output>.held". It is cut at the start of a line, so that no UTF-8
 * sequence is. */
static stator_status_t import_text(tool_t *tool, const char *output) {
    char *text = NULL, *held = NULL;
    size_t bytes = 0;
    stator_tokenizer_t *tokenizer = NULL;
    stator_status_t status;
    const char *vocab = tool_text(tool, "vocab");
    double hold_out = tool_float(tool, "hold-out");
    if (hold_out < 0 || hold_out >= 1)
        return tool_fail(STATOR_INVALID, "option 'hold-out' is %g; 0 up to 1 is possible",
                         hold_out);
    TOOL_TRY(read_file(tool->files[0], &text, &bytes));
    size_t cut = bytes - (size_t)((double)bytes * hold_out);
    while (cut < bytes && cut > 0 && text[cut - 1] != '\n') cut++;
    if (tool_flag(tool, "chars"))
        TOOL_TRY_GOTO(stator_tokenizer_chars(text, bytes, &tokenizer), done);
    else
        TOOL_TRY_GOTO(stator_tokenizer_load(tool_text(tool, "tokenizer"), &tokenizer), done);
    if (vocab[0]) TOOL_TRY_GOTO(stator_tokenizer_save(tokenizer, vocab), done);
    TOOL_TRY_GOTO(write_shard(tokenizer, output, text, cut), done);
    if (cut < bytes) {
        size_t length = strlen(output) + sizeof ".held";
        held = malloc(length);
        if (!held) TOOL_TRY_GOTO(tool_fail(STATOR_NO_MEMORY, "out of memory"), done);
        snprintf(held, length, "%s.held", output);
        TOOL_TRY_GOTO(write_shard(tokenizer, held, text + cut, bytes - cut), done);
    }
    printf("vocabulary: %lld\n", (long long)stator_tokenizer_vocabulary(tokenizer));
done:
    free(held);
    free(text);
    stator_tokenizer_destroy(tokenizer);
    return status;
}

stator_status_t tool_import(tool_t *tool) {
    const char *output;
    TOOL_TRY(tool_require(tool, "output", &output));
    if (tool_flag(tool, "chars") || tool_text(tool, "tokenizer")[0])
        return import_text(tool, output);
    return import_model(tool, output);
}

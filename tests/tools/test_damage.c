/* Damaged files given to the command: missing, a folder, of another kind, cut short, with flipped
 * bits, with lengths beyond all bounds. Files that Stator writes itself carry checksums: there
 * every flipped bit and every shortening is refused. In files of others some bits mean nothing (a
 * byte of a float, a comment), so a damaged one may also be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/command.h"

/* ---- damage ---- */

typedef struct format {
    const char *label, *file; /* the whole file */
    const char *line;         /* command; reads "victim" */
    bool sealed;              /* a checksum covers every byte */
} format_t;

static const format_t own_formats[] = {
    {"graph", "g.stator", "info victim", true},
    {"graph to compile", "g.stator", "compile victim", true},
    {"plan", "g.plan", "info victim", true},
    {"weights", "set/model.safetensors",
     "train g.stator --weights victim --tokens-file text.tokens --steps 1", true},
    {"tokens", "text.tokens", "train g.stator --tokens-file victim --steps 1", true},
    {"vocabulary", "vocab.json", "import text.txt --tokenizer victim -o out.tokens", false},
    {"configuration", "config.json", "model llama --config victim --batch 2 --seq 4 -o out.stator",
     false},
    {"images", "images", "train r.stator --images victim --labels labels --steps 1", false},
    {"labels", "labels", "train r.stator --images images --labels victim --steps 1", false},
};

/* Files of other systems, from the shared cases. */
static const format_t shared_formats[] = {
    {"torch.export archive", STATOR_SHARED_DIR "/cases/resnet_tiny/model.pt2",
     "import victim -o out.stator", false},
    {"ONNX model", STATOR_SHARED_DIR "/cases/resnet_tiny/model.torchscript.onnx",
     "import victim -o out.stator", false},
    {"safetensors of others", STATOR_SHARED_DIR "/cases/resnet_tiny/weights.safetensors",
     "info victim", false},
    {"sentencepiece model", STATOR_SHARED_DIR "/data/tok512.model",
     "import text.txt --tokenizer victim -o out.tokens", false},
};

static void damage_shorten(const format_t *f, const unsigned char *data, size_t bytes) {
    static const size_t lengths[] = {0, 1, 4, 8, 9, 16, 31, 40, 64, 100};
    char what[64];
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0] + 8; i++) {
        size_t n = sizeof lengths / sizeof lengths[0];
        size_t length = i < n       ? lengths[i]
                        : i < n + 6 ? bytes / 7 * (i - n + 1)
                                    : bytes - (i - n - 5);
        if (length >= bytes) continue;
        snprintf(what, sizeof what, "%s of %zu bytes instead of %zu", f->label, length, bytes);
        write_bytes("victim", data, length);
        if (f->sealed || length < 4)
            must_refuse(f->line, what, "victim");
        else
            must_survive(f->line, what);
    }
}

static void damage_flip(const format_t *f, unsigned char *data, size_t bytes) {
    char what[64];
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < 24; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* half in the head, a quarter at the end, a quarter anywhere */
        size_t span = i % 4 < 2 ? 128 : i % 4 == 2 ? 64 : bytes;
        if (span > bytes) span = bytes;
        size_t at = (size_t)(random >> 8) % span;
        if (i % 4 == 2) at = bytes - 1 - at;
        unsigned char bit = (unsigned char)(1u << (random & 7));
        snprintf(what, sizeof what, "%s with bit %02x of byte %zu flipped", f->label, bit, at);
        data[at] ^= bit;
        write_bytes("victim", data, bytes);
        data[at] ^= bit;
        if (f->sealed)
            must_refuse(f->line, what, "victim");
        else
            must_survive(f->line, what);
    }
}

/* Eight bytes of ones: lengths and offsets beyond all bounds. */
static void damage_oversize(const format_t *f, unsigned char *data, size_t bytes) {
    char what[64];
    unsigned char kept[8];
    for (size_t at = 0; at + 8 <= bytes && at <= 96; at += 8) {
        memcpy(kept, data + at, 8);
        memset(data + at, 0xff, 8);
        snprintf(what, sizeof what, "%s with ones at byte %zu", f->label, at);
        write_bytes("victim", data, bytes);
        memcpy(data + at, kept, 8);
        if (f->sealed)
            must_refuse(f->line, what, "victim");
        else
            must_survive(f->line, what);
    }
}

static void damage_replace(const format_t *f) {
    must_refuse(f->line, "no file", "victim");
    assert_int_equal(mkdir("victim", 0700), 0);
    must_refuse(f->line, "a folder", "victim");
    assert_int_equal(rmdir("victim"), 0);
    static const char *const others[] = {"g.plan", "text.tokens",           "text.txt",
                                         "images", "set/model.safetensors", "config.json"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(others[i], f->file) == 0) continue;
        size_t n;
        unsigned char *data = read_bytes(others[i], &n);
        write_bytes("victim", data, n);
        free(data);
        /* info reads several kinds */
        if (strcmp(f->line, "info victim") == 0)
            must_survive(f->line, others[i]);
        else
            must_refuse(f->line, others[i], "victim");
    }
    unlink("victim");
}

static void damage(const format_t *formats, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        unsigned char *data = read_bytes(formats[i].file, &bytes);
        write_bytes("victim", data, bytes);
        must_run(formats[i].line);
        unlink("victim");
        damage_replace(&formats[i]);
        damage_shorten(&formats[i], data, bytes);
        damage_flip(&formats[i], data, bytes);
        damage_oversize(&formats[i], data, bytes);
        unlink("victim");
        free(data);
    }
}

static void damaged_own_files_are_refused(void **state) {
    (void)state;
    n_findings = 0;
    damage(own_formats, sizeof own_formats / sizeof own_formats[0]);
    assert_int_equal(n_findings, 0);
}

static void damaged_files_of_others_are_survived(void **state) {
    (void)state;
    n_findings = 0;
    if (access(STATOR_SHARED_DIR "/cases/README.md", R_OK) != 0) {
        print_message("skipped: %s is absent\n", STATOR_SHARED_DIR);
        skip();
    }
    damage(shared_formats, sizeof shared_formats / sizeof shared_formats[0]);
    assert_int_equal(n_findings, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_own_files_are_refused),
        cmocka_unit_test(damaged_files_of_others_are_survived),
    };
    return cmocka_run_group_tests(tests, command_make_files, command_remove_files);
}

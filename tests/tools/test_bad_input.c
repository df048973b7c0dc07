/* Bad input to the command: options, files that do not belong together, damaged checkpoints. Each
 * gets a status that is not 0 and exactly one line on standard error that names what is wrong. */
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

/* ---- checkpoints ---- */

static const char *const set_files[] = {"manifest.json", "model.safetensors",
                                        "optimizer.safetensors", "trainer.json"};

static const char resume[] = "train g.stator --tokens-file text.tokens --steps 2 --resume points";

/* One set alone: damage anywhere in it is refused. */
static void damaged_checkpoints_are_refused(void **state) {
    (void)state;
    n_findings = 0;
    must_run(resume);
    for (size_t i = 0; i < sizeof set_files / sizeof set_files[0]; i++) {
        char path[128], what[192];
        snprintf(path, sizeof path, "points/set-000001-step-1/%s", set_files[i]);
        size_t bytes;
        unsigned char *data = read_bytes(path, &bytes);
        const size_t places[] = {0, bytes / 3, bytes / 2, bytes - 2};
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
            data[places[k]] ^= 4;
            snprintf(what, sizeof what, "%s flipped at %zu", path, places[k]);
            write_bytes(path, data, bytes);
            data[places[k]] ^= 4;
            must_refuse(resume, what, "points");
            snprintf(what, sizeof what, "%s cut at %zu", path, places[k]);
            write_bytes(path, data, places[k]);
            must_refuse(resume, what, "points");
        }
        unlink(path);
        snprintf(what, sizeof what, "%s missing", path);
        must_refuse(resume, what, "points");
        write_bytes(path, data, bytes);
        free(data);
    }
    must_run(resume);
    must_refuse("train g.stator --tokens-file text.tokens --steps 2 --resume nowhere", "no folder",
                "nowhere");
    must_refuse("train g.stator --tokens-file text.tokens --steps 2 --resume text.txt", "a file",
                "text.txt");
    must_refuse("train r.stator --images images --labels labels --steps 2 --resume points",
                "another model's checkpoint", NULL);
    assert_int_equal(n_findings, 0);
}

/* ---- what does not belong together ---- */

static void mismatches_are_refused(void **state) {
    (void)state;
    n_findings = 0;
    must_refuse("train small.stator --tokens-file text.tokens --steps 1",
                "tokens beyond the model's vocabulary", "out of range");
    must_refuse("train g.stator --weights images --tokens-file text.tokens --steps 1",
                "images as weights", "images");
    must_refuse(
        "train r.stator --weights set/model.safetensors --images images --labels labels --steps 1",
        "a Llama's weights for a ResNet", "conv1.weight");
    must_refuse("train g.stator --images images --labels labels --steps 1", "images for a Llama",
                NULL);
    must_refuse("train r.stator --tokens-file text.tokens --steps 1", "tokens for a ResNet", NULL);
    must_refuse("train r.stator --images images --labels images --steps 1", "images as labels",
                "images");
    must_refuse("train r.stator --images labels --labels labels --steps 1", "labels as images",
                "labels");
    must_refuse("train r.stator --images images --steps 1", "no labels", "labels");
    write_idx("images9", 3, (const uint32_t[]){8, 9, 8});
    must_refuse("train r.stator --images images9 --labels labels --steps 1",
                "images of another size", "images9");
    write_idx("labels9", 1, (const uint32_t[]){9});
    must_refuse("train r.stator --images images --labels labels9 --steps 1", "a label too many",
                "labels9");
    must_refuse("run g.stator --input set/model.safetensors --map x=norm.weight,y=norm.weight",
                "inputs of another shape", NULL);
    must_refuse("run g.stator --input set/model.safetensors --map x=nothing,y=nothing",
                "a map to tensors that are not there", "nothing");
    must_refuse("run g.stator --input set/model.safetensors --map xy", "a malformed map", "xy");
    must_refuse("run g.stator", "no input", "--input");
    must_refuse("run g.plan", "a plan without its input", "--input");
    must_refuse(
        "generate --config config.json --weights set/model.safetensors --tokenizer text.txt",
        "a text for a tokenizer", "text.txt");
    must_refuse(
        "generate --config config.json --weights set/model.safetensors --tokenizer vocab.json",
        "no prompt and no beginning", "--prompt");
    must_refuse(
        "generate --config config8.json --weights set/model.safetensors --tokenizer vocab.json "
        "--prompt a",
        "weights of another vocabulary", NULL);
    must_refuse(
        "generate --config config.json --weights set/model.safetensors --tokenizer vocab.json "
        "--prompt Q",
        "a character outside the vocabulary", NULL);
    assert_int_equal(n_findings, 0);
}

static void bad_options_are_refused(void **state) {
    (void)state;
    n_findings = 0;
    static const char *const lines[][2] = {
        {"train g.stator --tokens-file text.tokens --steps -1", "steps"},
        {"train g.stator --tokens-file text.tokens --steps many", "many"},
        {"train g.stator --tokens-file text.tokens --steps", "--steps"},
        {"train g.stator --tokens-file text.tokens --steps 1 --ranks 0", "ranks"},
        {"train g.stator --tokens-file text.tokens --steps 1 --ranks -3", "ranks"},
        {"train g.stator --tokens-file text.tokens --steps 1 --ranks 1000000", "ranks"},
        {"train g.stator --tokens-file text.tokens --steps 1 --threads -1", "threads"},
        {"train g.stator --tokens-file text.tokens --steps 1 --lr -1", "lr"},
        {"train g.stator --tokens-file text.tokens --steps 1 --lr nan", "lr"},
        {"train g.stator --tokens-file text.tokens --steps 1 --betas 0.9", "betas"},
        {"train g.stator --tokens-file text.tokens --steps 1 --betas 0.9,1.5", "betas"},
        {"train g.stator --tokens-file text.tokens --steps 1 --eps -1", "eps"},
        {"train g.stator --tokens-file text.tokens --steps 1 --clip -1", "clip"},
        {"train g.stator --tokens-file text.tokens --steps 1 --weight-decay -2", "decay"},
        {"train g.stator --tokens-file text.tokens --steps 1 --optimizer adamx", "adamx"},
        {"train g.stator --tokens-file text.tokens --steps 1 --accumulate -2", "accumulate"},
        {"train g.stator --tokens-file text.tokens --steps 1 --accumulate 0", "accumulate"},
        {"train g.stator --tokens-file text.tokens --steps 1 --ema 2", "ema"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups x", "groups"},
        {"train g.stator --tokens-file text.tokens --steps 1 --init x", "init"},
        {"train g.stator --tokens-file text.tokens --steps 1 --loss nothing", "nothing"},
        {"train g.stator --tokens-file text.tokens --epochs 0", "epochs"},
        {"train g.stator --tokens-file text.tokens --epochs -1", "epochs"},
        {"train g.stator --tokens-file text.tokens --steps 1 --device gpu", "gpu"},
        {"train g.stator --tokens-file text.tokens --steps 1 --save text.txt", "text.txt"},
        {"train g.stator --tokens-file text.tokens --steps 1 --log nowhere/a.jsonl",
         "nowhere/a.jsonl"},
        {"train g.stator --steps 1", "--input"},
        {"eval g.stator", "--weights"},
        {"compile g.stator -o nowhere/p.plan", "nowhere/p.plan"},
        {"compile g.stator -o set", "set"},
        {"compile g.stator --timeout -1", "timeout"},
        {"compile g.stator --bucket-size -1", "bucket-size"},
        {"model llama --batch 1 --seq 1 -o out.stator", "config"},
        {"model llama --config config.json --seq 4 -o out.stator", "batch"},
        {"model llama --config config.json --batch 1 -o out.stator", "seq"},
        {"model llama --config config.json --batch 999999999 --seq 999999999 -o out.stator", NULL},
        {"model llama --config config.json --batch 1 --seq 4", "--output"},
        {"model resnet --depth 9 --batch 1 -o out.stator", "depth"},
        {"model resnet --classes 0 --batch 1 -o out.stator", "classes"},
        {"model resnet --image -4 --batch 1 -o out.stator", "image"},
        {"model bert -o out.stator", "bert"},
        {"model", "model"},
        {"import text.txt --chars --hold-out 2 -o out.tokens", "hold-out"},
        {"import text.txt --chars -o nowhere/t.tokens", "nowhere/t.tokens"},
        {"import text.txt --chars --vocab nowhere/v.json -o out.tokens", "nowhere/v.json"},
        {"import text.txt -o out.stator", "text.txt"},
        {"import text.txt", "--output"},
        {"info", "info"},
        {"info g.stator g.plan", "info"},
        {"info g.stator --stepz 3", "steps"},
        {"info g.stator --steps 3", "--steps"},
        {"info g.stator -x", "-x"},
        {"generate --greedy", "--config"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        must_refuse(lines[i][0], "", lines[i][1]);
    assert_int_equal(n_findings, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(mismatches_are_refused),
        cmocka_unit_test(damaged_checkpoints_are_refused),
    };
    return cmocka_run_group_tests(tests, command_make_files, command_remove_files);
}

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
                "tokens beyond the model's vocabulary", "has vocabulary 9, the model 8");
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
        "--prompt a --tokens 4",
        "weights of another vocabulary", "has 9 tokens, the model's vocabulary 8");
    write_bytes("text8.txt", "abc defg", 8);
    must_run("import text8.txt --chars --vocab vocab8.json -o text8.tokens");
    /* a model padded beyond its tokenizer is legal */
    must_run(
        "generate --config config.json --weights set/model.safetensors --tokenizer "
        "vocab8.json --prompt a --tokens 4");
    must_refuse(
        "generate --config config.json --weights set/model.safetensors --tokenizer "
        "vocab.json --prompt a --tokens 9223372036854775807",
        "more tokens than there are numbers", "max_position_embeddings 64");
    must_refuse(
        "generate --config config.json --weights set/model.safetensors --tokenizer "
        "vocab.json --prompt a --tokens 65",
        "more tokens than the model has positions", "max_position_embeddings 64");
    must_refuse(
        "generate --config config.json --weights set/model.safetensors --tokenizer vocab.json "
        "--prompt Q",
        "a character outside the vocabulary", NULL);
    assert_int_equal(n_findings, 0);
}

/* A message that names its node or file once. */
static void names_stand_once(void **state) {
    (void)state;
    static const char header[] =
        "{\"x\":{\"dtype\":\"I64\",\"shape\":[2,4],\"data_offsets\":[0,64]},"
        "\"y\":{\"dtype\":\"I64\",\"shape\":[2,4],\"data_offsets\":[64,128]}}";
    unsigned char file[8 + sizeof header - 1 + 128] = {(unsigned char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    file[8 + sizeof header - 1] = 200; /* x's first token, of 8 */
    write_bytes("beyond", file, sizeof file);
    answer_t answer = command_run("run small.stator --input beyond --map x=x,y=y --output o");
    const char *gather = strstr(answer.errors, "gather");
    assert_non_null(gather);
    assert_null(strstr(gather + 1, "gather"));
    assert_non_null(strstr(gather, "): index "));
    size_t bytes;
    unsigned char *data = read_bytes("images", &bytes);
    data[4] = 0x10; /* 2^28 images and 8 */
    write_bytes("huge", data, bytes);
    free(data);
    answer = command_run("train r.stator --images huge --labels labels --steps 1");
    const char *huge = strstr(answer.errors, "huge: claims");
    assert_non_null(huge);
    assert_ptr_equal(strstr(answer.errors, "huge"), huge);
}

/* The run is over: nothing is trained or saved again. */
static void complete_runs_are_left_alone(void **state) {
    (void)state;
    static const char *const lines[] = {
        "train g.stator --tokens-file text.tokens --steps 1 --resume points --save again --log l",
        "train g.stator --tokens-file text.tokens --steps 2 --resume later --save again --log l"};
    must_run("train g.stator --tokens-file text.tokens --steps 3 --save later");
    for (int i = 0; i < 2; i++) {
        answer_t answer = command_run(lines[i]);
        assert_int_equal(answer.code, 0);
        assert_string_equal(answer.errors, i == 0 ? "nothing left to do: step 1 of 1\n"
                                                  : "nothing left to do: step 3 of 2\n");
        assert_int_not_equal(access("again/model.safetensors", F_OK), 0);
        assert_int_not_equal(access("l", F_OK), 0);
    }
}

/* ---- configurations ---- */

static void configurations_are_refused(void **state) {
    (void)state;
    n_findings = 0;
    static const char head[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 8, "
        "\"intermediate_size\": 12, \"num_attention_heads\": 2, ";
    static const struct {
        const char *rest, *name;
    } rows[] = {
        {"\"num_hidden_layers\": 100000000}",
         "'num_hidden_layers' must be a whole number from 1 to 100000\n"},
        {"\"num_hidden_layers\": 1, \"head_dim\": 2147483646}", "the limit is 65536"},
        {"\"num_hidden_layers\": 1, \"rope_scaling\": {\"rope_type\": \"llama3\"}}", "'factor'"},
        {"\"num_hidden_layers\": 1, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}",
         "'low_freq_factor'"},
        {"\"num_hidden_layers\": 1, \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": "
         "8, "
         "\"low_freq_factor\": 1}}",
         "'high_freq_factor'"},
        {"\"num_hidden_layers\": 1, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, "
         "\"low_freq_factor\": 1, \"high_freq_factor\": 4}}",
         "'original_max_position_embeddings'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        int n = snprintf(text, sizeof text, "%s%s", head, rows[i].rest);
        write_bytes("bad.json", text, (size_t)n);
        must_refuse("model llama --config bad.json --batch 1 --seq 4 -o out.stator", rows[i].rest,
                    rows[i].name);
    }
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
        {"train g.stator --tokens-file text.tokens --epochs 0", "epochs' must be at least 1\n"},
        {"train g.stator --tokens-file text.tokens --epochs 9000000000000000000", "the limit is"},
        {"train g.stator --tokens-file text.tokens --steps 1 --keep 0", "1 to 1000000"},
        {"train g.stator --tokens-file text.tokens --steps 1 --keep 1000001", "1 to 1000000"},
        {"train g.stator --tokens-file text.tokens --steps 1 --keep 4294967297", "1 to 1000000"},
        {"train g.stator --tokens-file text.tokens --steps 2 --resume points --weights "
         "set/model.safetensors",
         "give one of the two"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=lr:nan", "'lr:nan'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=lr:inf", "'lr:inf'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=decay:nan", "'decay:nan'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=decay:inf", "'decay:inf'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=lr:-1", "'lr:-1'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=", "a setting is empty"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=lr:1,", "is empty"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=;*=frozen", "is empty"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=lr:1,lr:2",
         "'lr:2' sets again"},
        {"train g.stator --tokens-file text.tokens --steps 1 --groups *=frozen,frozen", "again"},
        {"train g.stator --tokens-file text.tokens --steps 1 --no-decay ,", "'no-decay'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --no-decay norms,", "'no-decay'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --no-decay norms,,*", "'no-decay'"},
        {"train g.stator --tokens-file text.tokens --steps 2 --warmup 2", "'warmup' is 2"},
        {"train g.stator --tokens-file text.tokens --epochs 1 --warmup 100000", "'warmup'"},
        {"train g.stator --tokens-file text.tokens --steps 2 --lr 0.1 --min-lr 0.2", "'min-lr'"},
        {"train g.stator --tokens-file text.tokens --steps 1 --eps 0", "'eps' is 0"},
        {"train g.stator --tokens-file text.tokens --steps 1 --eps inf", "eps"},
        {"train g.stator --tokens-file text.tokens --steps 1 --weight-decay nan", "weight-decay"},
        {"train g.stator --tokens-file text.tokens --steps 1 --optimizer sgd --nesterov",
         "'nesterov'"},
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
        cmocka_unit_test(configurations_are_refused),
        cmocka_unit_test(complete_runs_are_left_alone),
        cmocka_unit_test(names_stand_once),
        cmocka_unit_test(mismatches_are_refused),
        cmocka_unit_test(damaged_checkpoints_are_refused),
    };
    return cmocka_run_group_tests(tests, command_make_files, command_remove_files);
}

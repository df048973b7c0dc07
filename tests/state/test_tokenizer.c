/* Tokenizers: byte vocabularies, and SentencePiece models judged by SentencePiece's own programs.
 */
#include "state/tokenizer.h"

#include <unistd.h>

#include "state/safetensors.h"
#include "support/scratch.h"

static bool has_sentencepiece(void) {
    char *found = capture("command -v spm_train && command -v spm_encode && command -v spm_decode");
    if (found == NULL) print_message("skipped: spm_train is not there (package sentencepiece)\n");
    free(found);
    return found != NULL;
}

static void byte_vocabulary(void **state) {
    (void)state;
    tokenizer_t *tokenizer;
    assert_ok(tokenizer_from_text("cabbage\n", 8, &tokenizer));
    assert_int_equal(tokenizer_vocab(tokenizer), 6);
    assert_int_equal(tokenizer_bos(tokenizer), -1);
    assert_ok(tokenizer_save(tokenizer, scratch("vocabulary")));
    tokenizer_close(tokenizer);
    assert_ok(tokenizer_open(scratch("vocabulary"), &tokenizer));
    uint32_t *ids;
    size_t n;
    assert_ok(tokenizer_encode(tokenizer, "bag\n", 4, &ids, &n));
    const uint32_t expected[] = {2, 1, 5, 0}; /* \n a b c e g */
    assert_int_equal(n, 4);
    assert_memory_equal(ids, expected, sizeof expected);
    char *text;
    size_t bytes;
    assert_ok(tokenizer_decode(tokenizer, ids, n, &text, &bytes));
    assert_int_equal(bytes, 4);
    assert_string_equal(text, "bag\n");
    st_free(text);
    st_free(ids);
    assert_fails(tokenizer_encode(tokenizer, "bad", 3, &ids, &n), ST_INVALID, "byte 2");
    assert_null(ids);
    const uint32_t outside = 6;
    assert_fails(tokenizer_decode(tokenizer, &outside, 1, &text, &bytes), ST_INVALID, "is 6");
    assert_ok(tokenizer_encode(tokenizer, "", 0, &ids, &n));
    assert_int_equal(n, 0);
    assert_ok(tokenizer_decode(tokenizer, ids, 0, &text, &bytes));
    assert_string_equal(text, "");
    st_free(text);
    st_free(ids);
    tokenizer_close(tokenizer);
    assert_fails(tokenizer_from_text("", 0, &tokenizer), ST_INVALID, "empty");
}

static void malformed_vocabularies(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "0 bytes"},
        {"{", "malformed JSON"},
        {"{}", "\"format\" is missing"},
        {"{\"format\":\"x\",\"version\":1,\"bytes\":[1]}", "format 'x'"},
        {"{\"format\":\"stator-vocabulary\",\"version\":1,\"bytes\":[]}", "not an array"},
        {"{\"format\":\"stator-vocabulary\",\"version\":1,\"bytes\":[2,1]}", "\"bytes\"[1]"},
        {"{\"format\":\"stator-vocabulary\",\"version\":1,\"bytes\":[256]}", "\"bytes\"[0]"},
        {"{\"format\":\"stator-vocabulary\",\"version\":1,\"bytes\":[1.5]}", "\"bytes\"[0]"},
        {"garbage", "not a tokenizer model"},
        {"\x0a\x02\x0a\x00", "piece 0 is empty"},
        {"\x0a\x05\x0a\x01\x61\x18\x09", "unknown type 9"},
        {"\x0a\x05\x0a\x01\x61\x18\x01", "0 pieces for unknown text"},
        {"\x0a\x05\x0a\x01\x61\x18\x02\x0a\x03\x0a\x01\x61", "pieces 0 and 1 are equal"},
        {"\x0a\x05\x0a\x01\x61\x18\x02\x0a\x05\x0a\x01\x62\x18\x06", "byte piece 1"},
        {"\x0a\x05\x0a\x01\x61\x18\x02\x12\x02\x18\x03", "type 3"},
        {"\x0a\x05\x0a\x01\x61\x18\x02\x12\x03\x98\x02\x01", "0 byte pieces"},
        {"\x0a\x05\x0a\x01\x61\x18\x02\x1a\x05\x12\x03\x61\x61\x61", "character map"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* Lengths by hand where a text holds NULs: only the tenth does. */
        size_t bytes = i == 9 ? 4 : strlen(cases[i].text);
        tokenizer_t *tokenizer;
        st_clear_error();
        st_status_t status = tokenizer_open_memory(cases[i].text, bytes, &tokenizer);
        assert_true(status == ST_PARSE || status == ST_UNSUPPORTED);
        if (strstr(st_last_error(), cases[i].message) == NULL)
            fail_msg("%zu: %s", i, st_last_error());
        assert_null(tokenizer);
    }
}

/* Compares encoding and decoding of `text`, as one sequence a line, with SentencePiece's own. */
static void compare_lines(const tokenizer_t *tokenizer, const char *model, const char *text_path) {
    char command[2000];
    const char *ids_path = scratch("ids");
    snprintf(command, sizeof command, "spm_encode --model='%s' --output_format=id < '%s' > '%s'",
             model, text_path, ids_path);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "spm_decode --model='%s' --input_format=id < '%s'", model,
             ids_path);
    char *decoded = capture(command);
    size_t text_bytes, ids_bytes;
    char *text = (char *)slurp(text_path, &text_bytes),
         *ids_text = (char *)slurp(ids_path, &ids_bytes);
    assert_non_null(decoded);
    char *ids_line = ids_text, *decoded_line = decoded, *line = text;
    size_t n_lines = 0, n_tokens = 0;
    while (line < text + text_bytes) {
        char *end = memchr(line, '\n', text_bytes - (size_t)(line - text));
        assert_non_null(end);
        char *ids_end = strchr(ids_line, '\n'), *decoded_end = strchr(decoded_line, '\n');
        assert_non_null(ids_end);
        assert_non_null(decoded_end);
        *ids_end = *decoded_end = '\0';
        uint32_t *ids;
        size_t n, bytes;
        char *back;
        assert_ok(tokenizer_encode(tokenizer, line, (size_t)(end - line), &ids, &n));
        char *cursor = ids_line;
        for (size_t i = 0; i < n; i++) {
            unsigned long expected = strtoul(cursor, &cursor, 10);
            if (expected != ids[i]) {
                fail_msg("line %zu token %zu: %u, expected %lu: %.*s", n_lines, i, ids[i], expected,
                         (int)(end - line), line);
            }
        }
        while (*cursor == ' ') cursor++;
        assert_string_equal(cursor, "");
        assert_ok(tokenizer_decode(tokenizer, ids, n, &back, &bytes));
        assert_string_equal(back, decoded_line);
        st_free(back);
        st_free(ids);
        n_tokens += n;
        n_lines++;
        line = end + 1;
        ids_line = ids_end + 1;
        decoded_line = decoded_end + 1;
    }
    assert_true(n_lines > 20 && n_tokens > 200);
    free(text);
    free(ids_text);
    free(decoded);
}

/* A text with words, odd spaces, symbols outside the training text and malformed UTF-8. */
static void write_texts(const char *train_path, const char *odd_path) {
    static const char *const words[] = {
        "the",   "light",   "of",    "a",      "great",   "river",     "and", "moves", "under",
        "stone", "bridges", "while", "nobody", "watches", "Caf\u00e9", "42",  "don't", "stop"};
    static const char *const odd[] = {
        "",
        " ",
        "   ",
        "a",
        " a ",
        "  two  spaces  ",
        "tab\there",
        "\u65e5\u672c\u8a9e",
        "x\xffy",
        "\xc0\x80",
        "\xe2\x96\x81space",
        "\u00e9 e\u0301",
        "\ufb01ne \u2460 \uff21",
        "\u3000wide\u3000space\u3000",
        "emoji \U0001f600\U0001f601!",
        "<s>",
        "</s> the",
        "<unk>",
        "<0x41>",
        "[SEP] the [SEP]light",
        "the[SEP]  the",
        "\u2581",
        "\u00a0nbsp\u00a0",
        "A\u030a",
        "\xed\xa0\x80",
        "\xf4\x90\x80\x80",
        "zzzzqqqq",
        "\u4e2d the \u4e2d\u4e2d",
        "river\u200bzero",
        "stone\x01 bridges",
    };
    FILE *train = fopen(train_path, "wb"), *test = fopen(odd_path, "wb");
    assert_non_null(train);
    assert_non_null(test);
    uint32_t random = 5;
    for (int line = 0; line < 600; line++) {
        FILE *out = line < 400 ? train : test;
        for (int word = 0; word < 12; word++) {
            random = random * 1664525u + 1013904223u;
            uint32_t pick = (random >> 16) % (sizeof words / sizeof words[0]);
            fprintf(out, "%s%s%s", word > 0 ? " " : "", words[pick], random >> 31 ? "s" : "");
        }
        fputc('\n', out);
    }
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        for (size_t j = 0; j < 3; j++) {
            fprintf(test, "%s%s%s\n", odd[i],
                    j == 0 ? "" : odd[(i * 7 + j) % (sizeof odd / sizeof odd[0])],
                    j == 2 ? odd[(i * 5 + 3) % (sizeof odd / sizeof odd[0])] : "");
        }
    }
    fclose(train);
    fclose(test);
}

static void trained_models_agree(void **state) {
    (void)state;
    if (!has_sentencepiece()) skip();
    static const char *const options[] = {
        "--model_type=bpe --byte_fallback=true --normalization_rule_name=identity "
        "--remove_extra_whitespaces=false --vocab_size=400",
        "--model_type=bpe --vocab_size=120",
        "--model_type=bpe --vocab_size=120 --user_defined_symbols=[SEP],ght "
        "--add_dummy_prefix=false",
        "--model_type=unigram --vocab_size=90",
        "--model_type=unigram --vocab_size=350 --byte_fallback=true "
        "--user_defined_symbols=[SEP],ght",
        "--model_type=unigram --vocab_size=90 --treat_whitespace_as_suffix=true",
        "--model_type=unigram --vocab_size=90 --remove_extra_whitespaces=false "
        "--normalization_rule_name=nmt_nfkc_cf --add_dummy_prefix=false",
    };
    const char *train = scratch("train.txt"), *odd = scratch("odd.txt");
    write_texts(train, odd);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        char command[2000], model[700];
        snprintf(model, sizeof model, "%s-%zu.model", scratch("spm"), i);
        snprintf(command, sizeof command,
                 "spm_train --input='%s' --model_prefix='%.*s' --num_threads=1 "
                 "--hard_vocab_limit=false --minloglevel=2 %s >/dev/null 2>&1",
                 train, (int)(strlen(model) - 6), model, options[i]);
        assert_int_equal(system(command), 0);
        tokenizer_t *tokenizer;
        assert_ok(tokenizer_open(model, &tokenizer));
        print_message("%s: %u pieces\n", options[i], tokenizer_vocab(tokenizer));
        compare_lines(tokenizer, model, odd);
        tokenizer_close(tokenizer);
    }
}

/* Random sequences of ids, bytes and controls included, against spm_decode. */
static void random_ids_decode_alike(void **state) {
    (void)state;
    const char *shared = shared_file("data/tok512.model");
    if (shared == NULL || !has_sentencepiece()) skip();
    char model[1024], command[3000];
    snprintf(model, sizeof model, "%s", shared);
    tokenizer_t *tokenizer;
    assert_ok(tokenizer_open(model, &tokenizer));
    assert_int_equal(tokenizer_vocab(tokenizer), 512);
    assert_int_equal(tokenizer_bos(tokenizer), 1);
    assert_int_equal(tokenizer_eos(tokenizer), 2);
    enum { LINES = 400, LENGTH = 12 };
    uint32_t *ids = calloc(LINES * LENGTH, sizeof *ids);
    const char *path = scratch("random-ids");
    FILE *file = fopen(path, "wb");
    uint32_t random = 77;
    for (int i = 0; i < LINES * LENGTH; i++) {
        random = random * 1664525u + 1013904223u;
        /* No line feed in the output (byte 10 is piece 13): lines are what is compared. */
        ids[i] = (random >> 8) % (i % 3 == 0 ? 280 : 512);
        if (ids[i] == 13) ids[i] = 1;
        fprintf(file, "%u%c", ids[i], i % LENGTH == LENGTH - 1 ? '\n' : ' ');
    }
    fclose(file);
    snprintf(command, sizeof command, "spm_decode --model='%s' --input_format=id < '%s' > '%s'",
             model, path, scratch("random-text"));
    assert_int_equal(system(command), 0);
    size_t bytes;
    uint8_t *expected = slurp(scratch("random-text"), &bytes);
    size_t at = 0;
    for (int i = 0; i < LINES; i++) {
        char *text;
        size_t n;
        assert_ok(tokenizer_decode(tokenizer, ids + i * LENGTH, LENGTH, &text, &n));
        assert_true(at + n < bytes);
        assert_memory_equal(text, expected + at, n);
        assert_int_equal(expected[at + n], '\n');
        at += n + 1;
        st_free(text);
    }
    assert_int_equal(at, bytes);
    free(expected);
    free(ids);
    tokenizer_close(tokenizer);
}

static void reference_tokens(void **state) {
    (void)state;
    const char *path = shared_file("data/tok512.model");
    if (path == NULL) skip();
    tokenizer_t *tokenizer;
    safetensors_t *file;
    assert_ok(tokenizer_open(path, &tokenizer));
    path = shared_file("data/stories260K.reference.safetensors");
    assert_non_null(path);
    assert_ok(safetensors_open(path, &file));
    const safetensors_tensor_t *tokens = safetensors_find(file, "tokens");
    const safetensors_tensor_t *greedy = safetensors_find(file, "greedy");
    assert_true(tokens != NULL && greedy != NULL && tokens->dtype == SAFETENSORS_I32 &&
                greedy->dtype == SAFETENSORS_I32);
    size_t text_bytes;
    path = shared_file("data/tinyshakespeare.txt");
    assert_non_null(path);
    uint8_t *text = slurp(path, &text_bytes);
    uint32_t *ids;
    size_t n, bytes;
    assert_ok(tokenizer_encode(tokenizer, text, 4000, &ids, &n));
    size_t n_expected = tokens->bytes / 4;
    assert_true(n > n_expected);
    for (size_t i = 0; i < n_expected; i++) {
        int32_t expected;
        memcpy(&expected, (const uint8_t *)tokens->data + 4 * i, 4);
        assert_int_equal(expected, i == 0 ? tokenizer_bos(tokenizer) : (int64_t)ids[i - 1]);
    }
    st_free(ids);
    free(text);

    uint32_t story[101];
    assert_int_equal(greedy->bytes, sizeof story);
    memcpy(story, greedy->data, sizeof story);
    char *decoded;
    assert_ok(tokenizer_decode(tokenizer, story, 101, &decoded, &bytes));
    assert_string_equal(
        decoded,
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
        "park. One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
        "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know w");
    st_free(decoded);
    safetensors_close(file);
    tokenizer_close(tokenizer);
}

/* Truncations and flips of a real model never crash; what still loads still encodes. */
static void damaged_models(void **state) {
    (void)state;
    const char *path = shared_file("data/tok512.model");
    if (path == NULL) skip();
    size_t bytes;
    uint8_t *model = slurp(path, &bytes);
    uint32_t random = 3;
    for (int round = 0; round < 1500; round++) {
        random = random * 1664525u + 1013904223u;
        size_t n = round % 3 == 0 ? (random >> 4) % bytes : bytes;
        uint8_t *copy = malloc(n > 0 ? n : 1);
        memcpy(copy, model, n);
        if (n == bytes) copy[(random >> 4) % bytes] ^= (uint8_t)(1u << (round & 7));
        tokenizer_t *tokenizer;
        st_status_t status = tokenizer_open_memory(copy, n, &tokenizer);
        free(copy);
        if (status == ST_OK) {
            uint32_t *ids;
            size_t n_ids, n_text;
            char *text;
            assert_ok(tokenizer_encode(tokenizer, "Once upon a \u00e9 time\xff", 19, &ids, &n_ids));
            assert_ok(tokenizer_decode(tokenizer, ids, n_ids, &text, &n_text));
            st_free(text);
            st_free(ids);
        } else {
            assert_true(status == ST_PARSE || status == ST_UNSUPPORTED);
        }
        tokenizer_close(tokenizer);
    }
    for (int64_t i = 0;; i++) {
        tokenizer_t *tokenizer;
        st_memory_fail_after(i, false);
        st_status_t status = tokenizer_open_memory(model, bytes, &tokenizer);
        st_memory_fail_after(-1, false);
        if (status == ST_OK) {
            tokenizer_close(tokenizer);
            break;
        }
        assert_true(status == ST_NO_MEMORY || status == ST_PARSE);
    }
    free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_vocabulary),      cmocka_unit_test(malformed_vocabularies),
        cmocka_unit_test(trained_models_agree), cmocka_unit_test(random_ids_decode_alike),
        cmocka_unit_test(reference_tokens),     cmocka_unit_test(damaged_models),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

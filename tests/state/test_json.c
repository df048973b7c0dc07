/* Strict JSON: what json-c would let through is refused, exact numbers, bounded memory. */
#include "state/json.h"

#include "support/scratch.h"

static const state_json_limits_t limits = {.depth = 3, .array_length = 4};

static st_status_t parse(const char *text, json_object **out) {
    size_t n = strlen(text);
    char *copy = malloc(n > 0 ? n : 1); /* not terminated: overreads show under ASan */
    memcpy(copy, text, n);
    st_status_t status = state_json_parse(copy, n, limits, "sample", out);
    free(copy);
    return status;
}

static void members_are_exact(void **state) {
    (void)state;
    json_object *object;
    assert_ok(
        parse(" {\"a\": -9007199254740993, \"b\": 18446744073709551614, \"s\": \"x\\\\u0000\", "
              "\"d\": 1.0, \"big\": 99999999999999999999, \"n\": null}\n",
              &object));
    int64_t i;
    uint64_t u;
    const char *text;
    assert_ok(state_json_i64(object, "a", "sample", &i));
    assert_true(i == -9007199254740993);
    assert_ok(state_json_u64(object, "b", "sample", &u));
    assert_true(u == 18446744073709551614u);
    assert_ok(state_json_string(object, "s", "sample", &text));
    assert_string_equal(text, "x\\u0000");
    assert_fails(state_json_i64(object, "d", "sample", &i), ST_PARSE, "\"d\" is not an integer");
    assert_fails(state_json_i64(object, "big", "sample", &i), ST_PARSE, "too large");
    assert_fails(state_json_u64(object, "a", "sample", &u), ST_PARSE, "negative");
    assert_fails(state_json_i64(object, "x", "sample", &i), ST_PARSE, "sample: \"x\" is missing");
    assert_fails(state_json_string(object, "n", "sample", &text), ST_PARSE, "not a string");
    json_object_put(object);
}

static void malformed_texts_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "0 bytes"},
        {"   ", "not an object"},
        {"null", "not an object"},
        {"[1]", "not an object"},
        {"{\"a\":1", "unexpected end"},
        {"{\"a\":1}}", "unmatched"},
        {"{\"a\":1} {}", "malformed JSON"},
        {"{\"a\":1,\"a\":2}", "appears twice"},
        {"{\"a\":{\"b\":1,\"b\":2}}", "appears twice"},
        {"{\"a\":1,\"\\u0061\":2}", "appears twice"},
        {"{\"a\\u0000\":1}", "malformed JSON string"},
        {"{\"a\n\":1}", "malformed JSON string"},
        {"{\"a", "malformed JSON string"},
        {"{\"a\\", "malformed JSON string"},
        {"{\"a\":[[[1]]]}", "nested deeper than 3"},
        {"{\"a\":[1,2,3,4,5]}", "more than 4 items"},
        {"{\"a\":1/**/}", "stray byte"},
        {"{'a':1}", "stray byte"},
        {"{\"a\":\xff}", "stray byte"},
        {"{\"\xff\":1}", "malformed JSON"},
        {"{\"a\":1,}", "malformed JSON"},
        {"{\"a\":01}", "malformed JSON"},
        {"{\"a\":tru}", "malformed JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_object *object;
        assert_fails(parse(cases[i].text, &object), ST_PARSE, cases[i].message);
        assert_null(object);
    }
}

static void hexadecimal(void **state) {
    (void)state;
    char text[STATE_HEX_BYTES];
    uint64_t value;
    state_hex64(0x0123456789abcdefu, text);
    assert_string_equal(text, "0123456789abcdef");
    assert_ok(state_parse_hex64(text, "sum", &value));
    assert_true(value == 0x0123456789abcdefu);
    static const char *const bad[] = {"", "0123456789abcde", "0123456789abcdef0",
                                      "0123456789abcdeg", "0123456789ABCDEF"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_fails(state_parse_hex64(bad[i], "sum", &value), ST_PARSE, "sum: ");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_exact),
        cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(hexadecimal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

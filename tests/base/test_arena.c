/* Arena: objects are zeroed, aligned and apart; failure leaves it usable. */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#endif

static void objects_are_zeroed_aligned_and_apart(void **state) {
    (void)state;
    enum { N = 3000 };
    static unsigned char *objects[N];
    st_arena_t arena = {0};
    for (size_t i = 0; i < N; i++) {
        size_t bytes = i % 97;
        objects[i] = st_arena_alloc(&arena, bytes);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        for (size_t k = 0; k < bytes; k++) {
            assert_int_equal(objects[i][k], 0);
            objects[i][k] = (unsigned char)i;
        }
    }
    /* A later object that overlapped an earlier one would have overwritten its mark. */
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < i % 97; k++) assert_int_equal(objects[i][k], (unsigned char)i);
    }
    st_arena_clear(&arena);
}

static void object_larger_than_a_chunk_fits(void **state) {
    (void)state;
    st_arena_t arena = {0};
    const size_t bytes = 5u << 20;
    unsigned char *small = st_arena_alloc(&arena, 8);
    unsigned char *large = st_arena_alloc(&arena, bytes);
    assert_non_null(small);
    assert_non_null(large);
    memset(large, 1, bytes);
    assert_int_equal(small[0], 0);
    assert_true(arena.total_bytes >= bytes);
    st_arena_clear(&arena);
}

static void clear_gives_back_and_allows_reuse(void **state) {
    (void)state;
    st_arena_t arena = {0};
    st_arena_clear(&arena);
    for (int round = 0; round < 3; round++) {
        char *text = st_arena_strdup(&arena, "again");
        assert_string_equal(text, "again");
        st_arena_clear(&arena);
        assert_null(arena.head);
        assert_int_equal(arena.total_bytes, 0);
    }
}

static void copies_and_formats(void **state) {
    (void)state;
    st_arena_t arena = {0};
    const int numbers[3] = {1, 2, 3};
    int *copy = st_arena_copy(&arena, numbers, sizeof numbers);
    assert_non_null(copy);
    assert_memory_equal(copy, numbers, sizeof numbers);
    assert_non_null(st_arena_copy(&arena, NULL, 0));
    char *text = st_arena_printf(&arena, "%s has %d of %zu", "node", 7, (size_t)9);
    assert_string_equal(text, "node has 7 of 9");
    char *empty = st_arena_printf(&arena, "%s", "");
    assert_string_equal(empty, "");
    st_arena_clear(&arena);
}

static void overflow_is_out_of_memory(void **state) {
    (void)state;
    st_arena_t arena = {0};
    assert_null(st_arena_alloc(&arena, SIZE_MAX));
    assert_null(st_arena_alloc(&arena, SIZE_MAX - 16));
    assert_null(st_arena_alloc(&arena, SIZE_MAX - 64));
    assert_null(st_arena_array(&arena, SIZE_MAX / 2, 3));
    assert_null(st_arena_array(&arena, (size_t)1 << 32, (size_t)1 << 32));
    assert_non_null(st_arena_array(&arena, 0, SIZE_MAX));
    st_arena_clear(&arena);
}

static void failed_chunk_leaves_the_arena_usable(void **state) {
    (void)state;
    st_arena_t arena = {0};
    st_memory_fail_after(0, false);
    assert_null(st_arena_alloc(&arena, 32));
    char *kept = st_arena_strdup(&arena, "kept");
    assert_string_equal(kept, "kept");
    size_t before = arena.total_bytes;
    st_memory_fail_after(0, false);
    assert_null(st_arena_alloc(&arena, 1 << 20));
    st_memory_fail_after(-1, false);
    assert_int_equal(arena.total_bytes, before);
    assert_string_equal(kept, "kept");
    assert_non_null(st_arena_alloc(&arena, 1 << 20));
    st_arena_clear(&arena);
}

#ifdef HAVE_ASAN
static void gaps_are_poisoned(void **state) {
    (void)state;
    st_arena_t arena = {0};
    char *object = st_arena_alloc(&arena, 24);
    assert_false(__asan_address_is_poisoned(object));
    assert_false(__asan_address_is_poisoned(object + 23));
    for (int past = 24; past < 32 + 16; past++) {
        assert_true(__asan_address_is_poisoned(object + past));
    }
    st_arena_clear(&arena);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_zeroed_aligned_and_apart),
        cmocka_unit_test(object_larger_than_a_chunk_fits),
        cmocka_unit_test(clear_gives_back_and_allows_reuse),
        cmocka_unit_test(copies_and_formats),
        cmocka_unit_test(overflow_is_out_of_memory),
        cmocka_unit_test(failed_chunk_leaves_the_arena_usable),
#ifdef HAVE_ASAN
        cmocka_unit_test(gaps_are_poisoned),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

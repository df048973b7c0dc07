/* Heaps: items come out in order, whatever order they went in and came out in between. */
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"

enum { MOST = 300 };

typedef struct item {
    uint32_t key;
    char rest[20]; /* moves along */
} item_t;

static bool before(const void *a, const void *b) {
    return ((const item_t *)a)->key < ((const item_t *)b)->key;
}

static item_t make(uint32_t key) {
    item_t item = {.key = key};
    for (size_t i = 0; i < sizeof item.rest; i++) item.rest[i] = (char)(key + i);
    return item;
}

static uint32_t pop(item_t *items, size_t *n) {
    st_heap_drop(items, (*n)--, sizeof *items, before);
    item_t expected = make(items[*n].key);
    assert_memory_equal(&items[*n], &expected, sizeof expected);
    return items[*n].key;
}

/* Against a plain search for the least: random pushes and pops, few different keys. */
static void least_comes_first(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        static item_t items[MOST];
        uint32_t there[16] = {0};
        size_t n = 0, n_popped = 0;
        for (uint64_t step = 0; step < 2 * MOST || n; step++) {
            uint32_t words[4];
            st_philox(seed, step, 0, words);
            if (step < 2 * MOST && n < MOST && (n == 0 || words[0] % 3)) {
                items[n++] = make(words[1] % 16);
                there[words[1] % 16]++;
                st_heap_rise(items, n, sizeof *items, before);
                continue;
            }
            uint32_t least = 0;
            while (!there[least]) least++;
            assert_int_equal(pop(items, &n), least);
            there[least]--;
            n_popped++;
        }
        assert_true(n_popped > MOST / 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(least_comes_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

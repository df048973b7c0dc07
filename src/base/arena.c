#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
enum { GAP_BYTES = 16 };
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
enum { GAP_BYTES = 0 };
#endif

enum { ALIGNMENT = 16, FIRST_CHUNK_BYTES = 4096, LARGEST_STEP_BYTES = 1 << 20 };

struct st_arena_chunk {
    st_arena_chunk_t *next;
    size_t capacity, used;
    _Alignas(ALIGNMENT) unsigned char data[];
};

static st_arena_chunk_t *chunk_add(st_arena_t *arena, size_t at_least) {
    size_t capacity = arena->head ? arena->head->capacity * 2 : FIRST_CHUNK_BYTES;
    if (capacity > LARGEST_STEP_BYTES) capacity = LARGEST_STEP_BYTES;
    if (capacity < at_least) capacity = at_least;
    size_t bytes;
    if (!st_add_size(capacity, sizeof(st_arena_chunk_t), &bytes)) return NULL;
    st_arena_chunk_t *chunk = st_calloc(1, bytes);
    if (!chunk) return NULL;
    chunk->capacity = capacity;
    chunk->next = arena->head;
    arena->head = chunk;
    arena->total_bytes += bytes;
    POISON(chunk->data, capacity);
    return chunk;
}

void *st_arena_alloc(st_arena_t *arena, size_t bytes) {
    size_t want;
    if (!st_add_size(bytes, ALIGNMENT + GAP_BYTES, &want)) return NULL;
    want = st_align_up(bytes, ALIGNMENT) + GAP_BYTES;
    st_arena_chunk_t *chunk = arena->head;
    if (!chunk || chunk->capacity - chunk->used < want) chunk = chunk_add(arena, want);
    if (!chunk) return NULL;
    void *object = chunk->data + chunk->used;
    chunk->used += want;
    UNPOISON(object, bytes);
    return object;
}

void *st_arena_array(st_arena_t *arena, size_t count, size_t bytes) {
    size_t total;
    return st_mul_size(count, bytes, &total) ? st_arena_alloc(arena, total) : NULL;
}

void *st_arena_copy(st_arena_t *arena, const void *data, size_t bytes) {
    void *copy = st_arena_alloc(arena, bytes);
    if (copy && bytes) memcpy(copy, data, bytes);
    return copy;
}

char *st_arena_strdup(st_arena_t *arena, const char *text) {
    return st_arena_copy(arena, text, strlen(text) + 1);
}

char *st_arena_printf(st_arena_t *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return NULL;
    char *text = st_arena_alloc(arena, (size_t)length + 1);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void st_arena_clear(st_arena_t *arena) {
    for (st_arena_chunk_t *chunk = arena->head; chunk;) {
        st_arena_chunk_t *next = chunk->next;
        UNPOISON(chunk->data, chunk->capacity);
        st_free(chunk);
        chunk = next;
    }
    *arena = (st_arena_t){0};
}

/* Growable arrays: ST_VEC(int) v = {0}; TRY(ST_VEC_PUSH(&v, 3)); … ST_VEC_FREE(&v); */
#ifndef STATOR_BASE_VEC_H
#define STATOR_BASE_VEC_H

#include <stddef.h>

#include "base/memory.h"

#define ST_VEC(type)   \
    struct {           \
        type *data;    \
        size_t n, cap; \
    }

/* Makes room for at least `need` elements of `bytes` each. */
st_status_t st_vec_reserve(void **data, size_t *cap, size_t need, size_t bytes) ST_WARN_UNUSED;

#define ST_VEC_RESERVE(vec, need) \
    st_vec_reserve((void **)&(vec)->data, &(vec)->cap, (need), sizeof *(vec)->data)

/* Appends `value`; ST_OK or ST_NO_MEMORY (the vector is unchanged then). */
#define ST_VEC_PUSH(vec, value)                                                                \
    (ST_VEC_RESERVE((vec), (vec)->n + 1) == ST_OK ? ((vec)->data[(vec)->n++] = (value), ST_OK) \
                                                  : ST_NO_MEMORY)

#define ST_VEC_FREE(vec)           \
    do {                           \
        st_free((vec)->data);      \
        (vec)->data = NULL;        \
        (vec)->n = (vec)->cap = 0; \
    } while (0)

#endif

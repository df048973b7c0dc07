/* Words that people type: patterns, and the nearest of those that exist. */
#ifndef STATOR_BASE_WORDS_H
#define STATOR_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Nearest of `n` words to `word` by edit distance, NULL if none is near. */
const char *st_nearest(const char *word, size_t n, const char *const *words);
/* The whole of `text` matches `pattern`: * stands for any characters, dots and slashes too, ? for
 * one. There is no way to quote the two. */
bool st_glob(const char *pattern, const char *text);

#endif

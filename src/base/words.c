/* Words: see words.h. */
#include "base/words.h"

#include <string.h>

enum { LONGEST_WORD = 64 };

static size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), row[LONGEST_WORD + 1];
    if (n > LONGEST_WORD || m > LONGEST_WORD) return LONGEST_WORD;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *st_nearest(const char *word, size_t n, const char *const *words) {
    const char *best = NULL;
    size_t limit = strlen(word) / 3 + 2; /* farther than that is a guess, not a hint */
    for (size_t i = 0; i < n; i++) {
        size_t distance = edit_distance(word, words[i]);
        if (distance < limit) limit = distance, best = words[i];
    }
    return best;
}

bool st_glob(const char *pattern, const char *text) {
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*')
            star = pattern++, resume = text;
        else if (*pattern == '?' || *pattern == *text)
            pattern++, text++;
        else if (star)
            pattern = star + 1, text = ++resume;
        else
            return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

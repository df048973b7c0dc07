/* UTF-8 sequences, strictly: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef STATOR_STATE_UTF8_H
#define STATOR_STATE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the sequence at the start of `text`, 0 if it is malformed or `bytes` cuts it short. */
size_t state_utf8_length(const void *text, size_t bytes);
bool state_utf8_valid(const void *text, size_t bytes);

#endif

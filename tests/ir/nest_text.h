/* Nests as text: one line a domain, statement and store. */
#ifndef STATOR_TESTS_IR_NEST_TEXT_H
#define STATOR_TESTS_IR_NEST_TEXT_H

#include "ir/nest.h"

/* Writes at most `capacity` bytes with the NUL and returns the length of all of it. */
size_t nest_text(const nest_t *nest, char *buffer, size_t capacity);

#endif

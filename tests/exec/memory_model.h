/* A plan's memory, played through: each granule of each region holds the content that was written
 * there last. It shares no code and no idea of lifetimes with the planner or with the proof, and is
 * the judge of both. */
#ifndef TESTS_EXEC_MEMORY_MODEL_H
#define TESTS_EXEC_MEMORY_MODEL_H

#include "compile/plan.h"

/* Whether every step of the program finds what it reads, and the next step what it needs. */
bool memory_model_runs(const plan_program_t *program);

#endif

/* Time as tests that hold limits measure it. */
#ifndef STATOR_TESTS_SUPPORT_CLOCK_H
#define STATOR_TESTS_SUPPORT_CLOCK_H

/* Seconds of processor time that this thread has had. A limit on it holds the work itself: it goes
 * on neither while others have the processor nor while the thread waits. Others still slow it down
 * through caches and a core's other half: limits leave room for twice the time on a quiet
 * machine. */
double processor_seconds(void);

#endif

/* Initial values in host memory (draw_math.h has the numbers). */
#ifndef STATOR_BASE_DRAW_H
#define STATOR_BASE_DRAW_H

#include "base/draw_math.h"
#include "base/status.h"

/* Elements first … first + count - 1 of the whole tensor, one after the other. */
void st_draw_range(const st_draw_t *draw, int64_t first, int64_t count, void *out);
/* The box, dense row-major, by several threads: each element is a function of its own place. */
st_status_t st_draw_box(const st_draw_t *draw, void *out) ST_WARN_UNUSED;
/* Elements of the box. */
int64_t st_draw_count(const st_draw_t *draw);

#endif

/* What collectives take over the links of a machine.
 *
 * Ranks are numbered host by host, `inner` of a group to a host: within one they are joined by its
 * own links, between hosts by a slower one a rank. A group of n = inner · outer ranks, B bytes of
 * the whole value (what each rank gives to a sum, what each has after a gather):
 *
 *   gather, or sum into parts   inner - 1 steps within a host, for B (inner - 1) / inner bytes a
 *                               rank; outer - 1 steps between hosts, for B / inner · (outer - 1) /
 *                               outer
 *   sum                         both of them
 *   exchange (all-to-all)       a rank has B / n, of which inner - 1 parts stay in the host and the
 *                               rest do not
 *
 * With one host that is the ring. A group that does not fill its hosts evenly counts as one over
 * the slower links alone. */
#ifndef STATOR_IR_LINK_H
#define STATOR_IR_LINK_H

#include "ir/op.h"
#include "ir/target.h"

typedef enum ir_transfer {
    IR_TRANSFER_GATHER = 0,
    IR_TRANSFER_SCATTER, /* sum into parts */
    IR_TRANSFER_SUM,     /* sum, whole on every rank */
    IR_TRANSFER_EXCHANGE,
} ir_transfer_t;

typedef struct ir_links {
    uint32_t n, inner; /* ranks of the group, and of these in one host */
    double us, gbps;   /* a step, and 1e9 bytes a second, within a host */
    double outer_us, outer_gbps;
} ir_links_t;

/* Of groups of n ranks that lie `stride` apart, as those of an axis of a mesh do. */
ir_links_t ir_links_of(const ir_machine_t *machine, uint32_t n, uint32_t stride);
/* That of a collective's start. */
ir_transfer_t ir_transfer_of(ir_op_t start);
/* From one rank of the group to the next: over the slower links, if the group has any. */
double ir_link_pair_us(const ir_links_t *links, double bytes);
/* Of a start that gives or gets so many bytes on one rank, the more of both. */
double ir_start_us(const ir_links_t *links, ir_op_t start, double bytes);
double ir_link_us(const ir_links_t *links, ir_transfer_t transfer, double bytes);

#endif

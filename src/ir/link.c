/* Times of collectives (link.h). */
#include "ir/link.h"

ir_links_t ir_links_of(const ir_machine_t *machine, uint32_t n, uint32_t stride) {
    const uint32_t host = machine->host_ranks;
    ir_links_t links = {n, n, machine->link_us, machine->link_gbps, 0, 0};
    if (!host || (uint64_t)n * stride <= host) return links;
    links.outer_us = machine->host_link_us;
    links.outer_gbps = machine->host_link_gbps;
    links.inner =
        stride < host && host % stride == 0 && n % (host / stride) == 0 ? host / stride : 1;
    return links;
}

ir_transfer_t ir_transfer_of(ir_op_t start) {
    return start == IR_OP_ALL_REDUCE_START       ? IR_TRANSFER_SUM
           : start == IR_OP_REDUCE_SCATTER_START ? IR_TRANSFER_SCATTER
           : start == IR_OP_ALL_TO_ALL_START     ? IR_TRANSFER_EXCHANGE
                                                 : IR_TRANSFER_GATHER;
}

double ir_link_pair_us(const ir_links_t *links, double bytes) {
    if (links->n < 2) return 0;
    return links->inner < links->n ? links->outer_us + bytes / links->outer_gbps * 1e-3
                                   : links->us + bytes / links->gbps * 1e-3;
}

double ir_start_us(const ir_links_t *links, ir_op_t start, double bytes) {
    const ir_transfer_t transfer = ir_transfer_of(start);
    if (start == IR_OP_SEND_START || start == IR_OP_RECEIVE_START)
        return ir_link_pair_us(links, bytes);
    return ir_link_us(links, transfer, transfer == IR_TRANSFER_EXCHANGE ? bytes * links->n : bytes);
}

double ir_link_us(const ir_links_t *links, ir_transfer_t transfer, double bytes) {
    if (links->n < 2) return 0;
    const double n = links->n, inner = links->inner, outer = n / inner;
    double within = bytes * (inner - 1) / inner, between = bytes / inner * (outer - 1) / outer;
    if (transfer == IR_TRANSFER_EXCHANGE)
        within = bytes / n * (inner - 1) / n, between = bytes / n * (n - inner) / n;
    double us = 0;
    if (inner > 1) us += (inner - 1) * links->us + within / links->gbps * 1e-3;
    if (outer > 1) us += (outer - 1) * links->outer_us + between / links->outer_gbps * 1e-3;
    return transfer == IR_TRANSFER_SUM ? 2 * us : us;
}

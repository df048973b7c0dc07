/* Times of collectives, by hand. */
#include "ir/link.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const ir_machine_t machine = {.link_us = 2,
                                     .link_gbps = 10, /* 10,000 bytes a microsecond */
                                     .host_ranks = 4,
                                     .host_link_us = 5,
                                     .host_link_gbps = 1};

static void near(double got, double wanted) {
    if (fabs(got - wanted) > 1e-9 * wanted) fail_msg("%.12g, not %.12g", got, wanted);
}

static void one_host_is_a_ring(void **state) {
    (void)state;
    const ir_links_t links = ir_links_of(&machine, 4, 1);
    assert_int_equal(links.inner, 4);
    near(ir_link_us(&links, IR_TRANSFER_GATHER, 40000), 3 * 2 + 3);
    near(ir_link_us(&links, IR_TRANSFER_SCATTER, 40000), 3 * 2 + 3);
    near(ir_link_us(&links, IR_TRANSFER_SUM, 40000), 2 * (3 * 2 + 3));
    near(ir_link_us(&links, IR_TRANSFER_EXCHANGE, 160000), 3 * 2 + 3);
    const ir_links_t alone = ir_links_of(&machine, 1, 1);
    near(ir_link_us(&alone, IR_TRANSFER_SUM, 40000) + 1, 1);
}

/* 12 ranks, four to a host: parts of a quarter go between hosts, in two steps of a third each. */
static void hosts_exchange_parts_over_the_slower_links(void **state) {
    (void)state;
    const ir_links_t links = ir_links_of(&machine, 12, 1);
    assert_int_equal(links.inner, 4);
    near(ir_link_us(&links, IR_TRANSFER_GATHER, 120000), 3 * 2 + 9 + 2 * 5 + 20);
    near(ir_link_us(&links, IR_TRANSFER_SUM, 120000), 2 * (3 * 2 + 9 + 2 * 5 + 20));
    /* each rank has 12,000 bytes: 3 of 12 parts stay, 8 leave, its own one stays where it is */
    near(ir_link_us(&links, IR_TRANSFER_EXCHANGE, 144000), 3 * 2 + 0.3 + 2 * 5 + 8);
}

/* An axis whose neighbours lie apart has fewer of them, or none, in a host. */
static void stride_says_how_many_share_a_host(void **state) {
    (void)state;
    assert_int_equal(ir_links_of(&machine, 2, 2).inner, 2); /* ranks 0 and 2: one host */
    assert_int_equal(ir_links_of(&machine, 4, 2).inner, 2); /* 0, 2 and 4, 6 */
    assert_int_equal(ir_links_of(&machine, 3, 4).inner, 1);
    assert_int_equal(ir_links_of(&machine, 3, 8).inner, 1);
    assert_int_equal(ir_links_of(&machine, 6, 1).inner, 1); /* fills no whole number of hosts */
    ir_machine_t flat = machine;
    flat.host_ranks = 0;
    assert_int_equal(ir_links_of(&flat, 1024, 1).inner, 1024);
    const ir_links_t apart = ir_links_of(&machine, 3, 4);
    near(ir_link_us(&apart, IR_TRANSFER_GATHER, 3000), 2 * 5 + 2);
}

static void starts_say_how_they_are_sent(void **state) {
    (void)state;
    assert_int_equal(ir_transfer_of(IR_OP_ALL_GATHER_START), IR_TRANSFER_GATHER);
    assert_int_equal(ir_transfer_of(IR_OP_REDUCE_SCATTER_START), IR_TRANSFER_SCATTER);
    assert_int_equal(ir_transfer_of(IR_OP_ALL_REDUCE_START), IR_TRANSFER_SUM);
    assert_int_equal(ir_transfer_of(IR_OP_ALL_TO_ALL_START), IR_TRANSFER_EXCHANGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host_is_a_ring),
        cmocka_unit_test(hosts_exchange_parts_over_the_slower_links),
        cmocka_unit_test(starts_say_how_they_are_sent),
        cmocka_unit_test(stride_says_how_many_share_a_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

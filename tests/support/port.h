/* A port of the loopback interface that nobody listens at now; fails the test where there is
 * none. */
#ifndef TESTS_SUPPORT_PORT_H
#define TESTS_SUPPORT_PORT_H

int free_port(void);

#endif

/* Asks the system for a port and gives it back (port.h). */
#include "support/port.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int made = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(made, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(made, (struct sockaddr *)&at, &bytes), 0);
    close(made);
    return ntohs(at.sin_port);
}

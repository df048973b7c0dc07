#include "comm/process/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int64_t wire_now_ms(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

void wire_prepare(int socket) {
    int on = 1;
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void wire_close(int *socket) {
    if (*socket >= 0) close(*socket);
    *socket = -1;
}

/* What has not been read when a socket closes makes the system drop what was written. */
void wire_close_gently(int *socket, int ms) {
    char dropped[4096];
    int64_t deadline = wire_now_ms() + ms;
    if (*socket < 0) return;
    shutdown(*socket, SHUT_WR);
    for (int64_t left; (left = deadline - wire_now_ms()) > 0;) {
        struct pollfd wait = {*socket, POLLIN, 0};
        if (poll(&wait, 1, (int)left) <= 0) break;
        ssize_t n = read(*socket, dropped, sizeof dropped);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
    }
    wire_close(socket);
}

bool wire_is_loopback(const char *address) {
    return strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 ||
           strcmp(address, "::1") == 0;
}

static st_status_t resolve(const char *address, int port, struct addrinfo **out) {
    char service[16];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%d", port);
    int failed = getaddrinfo(address, service, &hints, out);
    if (failed)
        return FAIL(ST_IO, "the address '%s' is not known: %s", address, gai_strerror(failed));
    return ST_OK;
}

st_status_t wire_listen(const char *address, int port, int *out_socket, int *out_port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t bytes = sizeof at;
    int on = 1, made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *out_socket = -1;
    if (made < 0) return FAIL(ST_IO, "no socket: %s", strerror(errno));
    at.sin_addr.s_addr = htonl(wire_is_loopback(address) ? INADDR_LOOPBACK : INADDR_ANY);
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(made, (struct sockaddr *)&at, sizeof at) != 0 || listen(made, SOMAXCONN) != 0) {
        int cause = errno;
        close(made);
        if (cause == EADDRINUSE)
            return FAIL(ST_IO,
                        "port %d is in use: another program, or another process that takes itself "
                        "for rank 0, listens there; choose another MASTER_PORT",
                        port);
        return FAIL(ST_IO, "cannot listen on port %d: %s", port, strerror(cause));
    }
    getsockname(made, (struct sockaddr *)&at, &bytes);
    wire_prepare(made);
    *out_socket = made;
    *out_port = ntohs(at.sin_port);
    return ST_OK;
}

static int wait_for(int socket, short events, int64_t deadline) {
    for (;;) {
        int64_t left = deadline - wire_now_ms();
        if (left <= 0) return 0;
        struct pollfd wait = {socket, events, 0};
        int n = poll(&wait, 1, left > 1000000 ? 1000000 : (int)left);
        if (n < 0 && errno == EINTR) continue;
        return n;
    }
}

/* One try; -1 with errno. */
static int connect_once(const struct addrinfo *to, int64_t deadline) {
    int made = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return -1;
    int failed = connect(made, to->ai_addr, to->ai_addrlen) != 0 ? errno : 0;
    if (failed == EINPROGRESS) {
        socklen_t bytes = sizeof failed;
        failed = ETIMEDOUT;
        if (wait_for(made, POLLOUT, deadline) > 0)
            getsockopt(made, SOL_SOCKET, SO_ERROR, &failed, &bytes);
    }
    if (!failed) return made;
    close(made);
    errno = failed;
    return -1;
}

st_status_t wire_connect(const char *address, int port, int64_t deadline, int *out_socket) {
    enum { PAUSE_MS = 20 };
    struct addrinfo *found = NULL;
    int cause = ETIMEDOUT;
    *out_socket = -1;
    TRY(resolve(address, port, &found));
    do {
        for (struct addrinfo *to = found; to && *out_socket < 0; to = to->ai_next) {
            *out_socket = connect_once(to, deadline);
            if (*out_socket < 0) cause = errno;
        }
        if (*out_socket < 0) poll(NULL, 0, PAUSE_MS);
    } while (*out_socket < 0 && wire_now_ms() < deadline);
    freeaddrinfo(found);
    if (*out_socket < 0)
        return FAIL(ST_PEER_LOST, "nobody answers at %s:%d: %s", address, port, strerror(cause));
    wire_prepare(*out_socket);
    return ST_OK;
}

st_status_t wire_read(int socket, void *data, size_t bytes, int64_t deadline) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(socket, (char *)data + done, bytes - done);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n == 0) return FAIL(ST_PEER_LOST, "the other side has closed the connection");
        if (errno != EAGAIN && errno != EINTR)
            return FAIL(ST_PEER_LOST, "the connection broke: %s", strerror(errno));
        if (errno == EAGAIN && wait_for(socket, POLLIN, deadline) <= 0)
            return FAIL(ST_PEER_LOST, "the other side does not answer");
    }
    return ST_OK;
}

st_status_t wire_write(int socket, const void *data, size_t bytes, int64_t deadline) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = send(socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (n > 0) {
            done += (size_t)n;
            continue;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return FAIL(ST_PEER_LOST, "the connection broke: %s", strerror(errno));
        if (wait_for(socket, POLLOUT, deadline) <= 0)
            return FAIL(ST_PEER_LOST, "the other side does not read");
    }
    return ST_OK;
}

void wire_peer_address(int socket, char *out, size_t capacity) {
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    out[0] = '\0';
    if (getpeername(socket, (struct sockaddr *)&at, &bytes) == 0)
        getnameinfo((struct sockaddr *)&at, bytes, out, (socklen_t)capacity, NULL, 0,
                    NI_NUMERICHOST);
}

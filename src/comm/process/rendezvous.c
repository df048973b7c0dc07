/* Meeting of all ranks at rank 0.
 *
 *   rank k → rank 0   hello: version, rank, number of ranks, port for data
 *   rank 0 → rank k   answer: ok, or why all of them end
 *                     and, if ok, the table of all ranks
 *
 * Rank 0 answers when all have come, or as soon as something is wrong. Connections that do not
 * speak like this are dropped: anything may knock at a port. */
#include "comm/process/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/process/wire.h"

typedef struct hello {
    char magic[8], version[64], host[CONTROL_HOST_BYTES];
    int32_t rank, size, data_port, pid;
} hello_t;

typedef struct answer {
    char magic[8];
    int32_t status, unused;
    uint64_t token;
    char text[CONTROL_TEXT_BYTES];
} answer_t;

static const char magic[8] = {'S', 'T', 'A', 'T', 'O', 'R', 'W', '1'};

static hello_t make_hello(const control_config_t *config) {
    hello_t hello = {.rank = config->rank,
                     .size = config->size,
                     .data_port = config->data_port,
                     .pid = (int32_t)getpid()};
    memcpy(hello.magic, magic, sizeof magic);
    snprintf(hello.version, sizeof hello.version, "%s", config->version);
    if (gethostname(hello.host, sizeof hello.host - 1) != 0) hello.host[0] = '\0';
    return hello;
}

static void put_peer(control_peer_t *peer, const hello_t *hello, const char *address) {
    *peer = (control_peer_t){.data_port = hello->data_port, .pid = hello->pid};
    snprintf(peer->host, sizeof peer->host, "%s", hello->host);
    /* "" stands for the address by which rank 0 is known: the same host */
    if (!wire_is_loopback(address)) snprintf(peer->address, sizeof peer->address, "%s", address);
}

/* ---- rank 0 ---- */

enum { MAX_GUESTS = 4096 };

typedef struct guest {
    int socket;
    size_t bytes;
    hello_t hello;
} guest_t;

typedef struct host {
    const control_config_t *config;
    rendezvous_t *meeting;
    int listener, n_here, n_guests, cap_guests;
    guest_t *guests; /* those that have not said hello */
    struct pollfd *waits;
} host_t;

static st_status_t judge(const host_t *host, const hello_t *hello) {
    const control_config_t *config = host->config;
    if (strcmp(hello->version, config->version) != 0)
        return FAIL(ST_RANKS_DISAGREE, "rank 0 is of version %s, rank %d (pid %d on %s) of %s",
                    config->version, hello->rank, hello->pid, hello->host, hello->version);
    if (hello->size != config->size)
        return FAIL(ST_RANKS_DISAGREE, "rank 0 expects %d ranks, rank %d (pid %d on %s) expects %d",
                    config->size, hello->rank, hello->pid, hello->host, hello->size);
    if (hello->rank < 0 || hello->rank >= config->size)
        return FAIL(ST_RANKS_DISAGREE, "pid %d on %s takes itself for rank %d of %d", hello->pid,
                    hello->host, hello->rank, config->size);
    const control_peer_t *other = &host->meeting->peers[hello->rank];
    if (hello->rank == 0 || host->meeting->sockets[hello->rank] >= 0)
        return FAIL(ST_RANKS_DISAGREE, "two processes claim rank %d: pid %d on %s and pid %d on %s",
                    hello->rank, other->pid, other->host, hello->pid, hello->host);
    return ST_OK;
}

static void drop_guest(host_t *host, int g) {
    host->guests[g] = host->guests[--host->n_guests];
}

/* What guest g has said so far. Takes it in when it has said all; a failure is one of all ranks,
 * and the guest stays so that it is told. */
static st_status_t hear(host_t *host, int g) {
    guest_t *guest = &host->guests[g];
    ssize_t n = read(guest->socket, (char *)&guest->hello + guest->bytes,
                     sizeof guest->hello - guest->bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return ST_OK;
    if (n > 0) guest->bytes += (size_t)n;
    size_t known = guest->bytes < sizeof magic ? guest->bytes : sizeof magic;
    if (n <= 0 || memcmp(guest->hello.magic, magic, known) != 0) {
        wire_close(&guest->socket);
        drop_guest(host, g);
        return ST_OK;
    }
    if (guest->bytes < sizeof guest->hello) return ST_OK;
    guest->hello.version[sizeof guest->hello.version - 1] = '\0';
    guest->hello.host[sizeof guest->hello.host - 1] = '\0';
    TRY(judge(host, &guest->hello));
    char address[CONTROL_HOST_BYTES];
    wire_peer_address(guest->socket, address, sizeof address);
    put_peer(&host->meeting->peers[guest->hello.rank], &guest->hello, address);
    host->meeting->sockets[guest->hello.rank] = guest->socket;
    host->n_here++;
    drop_guest(host, g);
    return ST_OK;
}

static st_status_t grow_guests(host_t *host) {
    int cap = host->cap_guests ? 2 * host->cap_guests : 16;
    guest_t *guests = st_realloc(host->guests, (size_t)cap * sizeof *guests);
    if (guests) host->guests = guests;
    struct pollfd *waits =
        guests ? st_realloc(host->waits, ((size_t)cap + 1) * sizeof *waits) : NULL;
    if (!waits) return st_no_memory((size_t)cap * sizeof *guests, "the rendezvous");
    host->waits = waits;
    host->cap_guests = cap;
    return ST_OK;
}

static st_status_t take_guest(host_t *host) {
    if (host->n_guests == host->cap_guests) TRY(grow_guests(host));
    int socket = accept(host->listener, NULL, NULL);
    if (socket < 0) return ST_OK;
    if (host->n_guests == MAX_GUESTS) {
        close(socket);
        return ST_OK;
    }
    wire_prepare(socket);
    host->guests[host->n_guests++] = (guest_t){.socket = socket};
    return ST_OK;
}

static st_status_t missing(const host_t *host) {
    char list[400] = "";
    int used = 0, n = 0;
    for (int r = 1; r < host->config->size; r++) {
        if (host->meeting->sockets[r] >= 0) continue;
        if (used < (int)sizeof list - 20)
            used += snprintf(list + used, sizeof list - (size_t)used, "%s%d", n ? ", " : "", r);
        n++;
    }
    return FAIL(ST_PEER_LOST, "rank%s %s of %d did not come to %s:%d within %lld ms",
                n > 1 ? "s" : "", list, host->config->size, host->config->address,
                host->config->port, (long long)host->config->timeout_ms);
}

static st_status_t gather(host_t *host, int64_t deadline) {
    TRY(grow_guests(host));
    while (host->n_here < host->config->size) {
        int64_t left = deadline - wire_now_ms();
        if (left <= 0) return missing(host);
        int n = host->n_guests;
        for (int g = 0; g < n; g++)
            host->waits[g] = (struct pollfd){host->guests[g].socket, POLLIN, 0};
        host->waits[n] = (struct pollfd){host->listener, POLLIN, 0};
        if (poll(host->waits, (nfds_t)n + 1, left > 1000 ? 1000 : (int)left) <= 0) continue;
        bool knocks = host->waits[n].revents != 0;
        for (int g = n; g-- > 0;) /* downwards: dropping moves a later one here */
            if (host->waits[g].revents) TRY(hear(host, g));
        if (knocks) TRY(take_guest(host));
    }
    return ST_OK;
}

static void tell(int socket, const answer_t *answer) {
    enum { ANSWER_MS = 1000 };
    if (socket < 0) return;
    /* one that is gone meanwhile is found when it is missed */
    if (wire_write(socket, answer, sizeof *answer, wire_now_ms() + ANSWER_MS) != ST_OK)
        st_clear_error();
}

/* Answers all that are here, also those whose hello is what is wrong. */
static st_status_t answer_all(host_t *host, st_status_t status) {
    answer_t answer = {.status = (int32_t)status, .token = host->meeting->token};
    memcpy(answer.magic, magic, sizeof magic);
    if (status != ST_OK) snprintf(answer.text, sizeof answer.text, "%s", st_last_error());
    for (int r = 1; r < host->config->size; r++) tell(host->meeting->sockets[r], &answer);
    for (int g = 0; g < host->n_guests; g++) {
        if (status != ST_OK) tell(host->guests[g].socket, &answer);
        if (status != ST_OK) wire_close_gently(&host->guests[g].socket, 100);
        wire_close(&host->guests[g].socket);
    }
    if (status != ST_OK) return st_error_adopt(status, answer.text);
    size_t bytes = (size_t)host->config->size * sizeof *host->meeting->peers;
    for (int r = 1; r < host->config->size; r++)
        TRY(wire_write(host->meeting->sockets[r], host->meeting->peers, bytes,
                       wire_now_ms() + host->config->timeout_ms));
    return ST_OK;
}

static st_status_t receive_all(const control_config_t *config, rendezvous_t *meeting,
                               int64_t begin) {
    host_t host = {.config = config, .meeting = meeting, .listener = config->listener, .n_here = 1};
    hello_t own = make_hello(config);
    int port = config->port;
    put_peer(&meeting->peers[0], &own, "localhost");
    if (getrandom(&meeting->token, sizeof meeting->token, 0) != sizeof meeting->token)
        meeting->token = (uint64_t)wire_now_ms() ^ (uint64_t)own.pid << 32;
    st_status_t status = ST_OK;
    if (host.listener < 0) status = wire_listen(config->address, port, &host.listener, &port);
    /* rank 0 gives up first: it knows who is missing */
    if (status == ST_OK) status = gather(&host, begin + config->timeout_ms * 8 / 10);
    status = answer_all(&host, status);
    wire_close(&host.listener);
    st_free(host.guests);
    st_free(host.waits);
    return status;
}

/* ---- the others ---- */

/* One try: ST_IO where whoever listens is no rank 0. */
static st_status_t knock(const control_config_t *config, rendezvous_t *meeting, int64_t deadline) {
    int *socket = &meeting->sockets[0];
    hello_t hello = make_hello(config);
    answer_t answer;
    TRY(wire_connect(config->address, config->port, deadline, socket));
    st_status_t status = wire_write(*socket, &hello, sizeof hello, deadline);
    if (status == ST_OK) status = wire_read(*socket, &answer, sizeof answer, deadline);
    if (status != ST_OK)
        return st_error_context(status, "rank 0 at %s:%d", config->address, config->port);
    if (memcmp(answer.magic, magic, sizeof magic) != 0)
        return FAIL(ST_IO, "what listens at %s:%d is not rank 0 of this program", config->address,
                    config->port);
    answer.text[sizeof answer.text - 1] = '\0';
    if (answer.status != ST_OK) return st_error_adopt((st_status_t)answer.status, answer.text);
    meeting->token = answer.token;
    TRY(wire_read(*socket, meeting->peers, (size_t)config->size * sizeof *meeting->peers,
                  deadline));
    for (int r = 0; r < config->size; r++) {
        control_peer_t *peer = &meeting->peers[r];
        peer->address[sizeof peer->address - 1] = peer->host[sizeof peer->host - 1] = '\0';
        if (!peer->address[0]) snprintf(peer->address, sizeof peer->address, "%s", config->address);
    }
    return ST_OK;
}

st_status_t rendezvous_meet(const control_config_t *config, rendezvous_t *meeting) {
    int64_t begin = wire_now_ms();
    if (config->rank == 0) {
        TRY(receive_all(config, meeting, begin));
        return ST_OK;
    }
    return knock(config, meeting, begin + config->timeout_ms * 9 / 10);
}

/* Bytes between processes over TCP: one connection a pair of ranks.
 *
 * A connection carries frames: notes, which go first, and pieces of messages of up to FRAME_BYTES,
 * so that a note never waits long behind a large message. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/vec.h"
#include "comm/process/process.h"
#include "comm/process/wire.h"

enum { FRAME_BYTES = 1 << 18, TURN_BYTES = 1 << 21, REST_MS = 50, MAGIC = 0x53544654 };

typedef enum frame_type { FRAME_NOTE = 1, FRAME_DATA } frame_type_t;

typedef struct frame {
    uint32_t magic, type, slot, unused;
    uint64_t offset, bytes; /* bytes that follow */
} frame_t;

typedef struct message {
    uint32_t to, slot;
    const char *data;
    size_t bytes, done;
} message_t;

typedef struct peer {
    int socket; /* -1: own, or closed */
    /* out: what has begun is finished first */
    ST_VEC(process_note_t) notes;
    ST_VEC(message_t) messages;
    size_t next_note, next_message;
    frame_t out;
    process_note_t out_note;
    const char *out_data;
    size_t out_head, out_left; /* bytes of header and of data that are not sent */
    bool full;                 /* the system takes no more for now */
    /* in */
    frame_t in;
    process_note_t in_note;
    char *in_data;
    size_t in_head, in_left; /* bytes of the header that are there; of data that are missing */
} peer_t;

typedef struct incoming {
    int peer;
    char *data;
    size_t bytes, left;
} incoming_t;

typedef struct tcp {
    transport_t base;
    int rank, size, wake;
    peer_t *peers;
    struct pollfd *waits;
    ST_VEC(incoming_t) incoming; /* [slot] */
} tcp_t;

/* ---- out ---- */

static st_status_t tcp_note(transport_t *transport, int to, const process_note_t *note) {
    peer_t *peer = &((tcp_t *)transport)->peers[to];
    if (ST_VEC_PUSH(&peer->notes, *note) != ST_OK)
        return st_no_memory(sizeof *note, "notes to other ranks");
    return ST_OK;
}

static st_status_t tcp_send(transport_t *transport, int to, uint32_t remote, uint32_t slot,
                            const void *data, size_t bytes) {
    peer_t *peer = &((tcp_t *)transport)->peers[to];
    message_t message = {remote, slot, data, bytes, 0};
    if (ST_VEC_PUSH(&peer->messages, message) != ST_OK)
        return st_no_memory(sizeof message, "messages to other ranks");
    return ST_OK;
}

/* Makes the next frame ready; false when there is none. */
static bool next_frame(peer_t *peer) {
    if (peer->next_note < peer->notes.n) {
        peer->out_note = peer->notes.data[peer->next_note++];
        if (peer->next_note == peer->notes.n) peer->next_note = peer->notes.n = 0;
        peer->out = (frame_t){MAGIC, FRAME_NOTE, 0, 0, 0, sizeof peer->out_note};
        peer->out_data = (const char *)&peer->out_note;
    } else if (peer->next_message < peer->messages.n) {
        const message_t *message = &peer->messages.data[peer->next_message];
        size_t n = message->bytes - message->done;
        if (n > FRAME_BYTES) n = FRAME_BYTES;
        peer->out = (frame_t){MAGIC, FRAME_DATA, message->to, 0, message->done, n};
        peer->out_data = message->data + message->done;
    } else {
        return false;
    }
    peer->out_head = sizeof peer->out;
    peer->out_left = (size_t)peer->out.bytes;
    return true;
}

static st_status_t frame_done(peer_t *peer, const transport_events_t *events) {
    if (peer->out.type != FRAME_DATA) return ST_OK;
    message_t *message = &peer->messages.data[peer->next_message];
    message->done += (size_t)peer->out.bytes;
    if (message->done < message->bytes) return ST_OK;
    uint32_t slot = message->slot;
    if (++peer->next_message == peer->messages.n) peer->next_message = peer->messages.n = 0;
    return events->sent(events->context, slot);
}

/* Writes until the system is full or nothing is left; *moved says whether anything went. */
static st_status_t flush(peer_t *peer, const transport_events_t *events, bool *moved) {
    peer->full = false;
    while (peer->socket >= 0) {
        if (!peer->out_head && !peer->out_left && !next_frame(peer)) return ST_OK;
        struct iovec parts[2] = {
            {(char *)&peer->out + sizeof peer->out - peer->out_head, peer->out_head},
            {(void *)(uintptr_t)peer->out_data, peer->out_left}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n = sendmsg(peer->socket, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) { /* a broken connection shows when it is read */
            peer->full = true;
            return ST_OK;
        }
        *moved = true;
        size_t head = (size_t)n < peer->out_head ? (size_t)n : peer->out_head;
        peer->out_head -= head;
        peer->out_left -= (size_t)n - head;
        peer->out_data += (size_t)n - head;
        if (!peer->out_head && !peer->out_left) TRY(frame_done(peer, events));
    }
    return ST_OK;
}

/* ---- in ---- */

static st_status_t tcp_receive(transport_t *transport, int from, uint32_t slot, void *data,
                               size_t bytes) {
    tcp_t *tcp = (tcp_t *)transport;
    incoming_t none = {.peer = -1};
    while (tcp->incoming.n <= slot)
        if (ST_VEC_PUSH(&tcp->incoming, none) != ST_OK)
            return st_no_memory(sizeof none, "messages from other ranks");
    tcp->incoming.data[slot] = (incoming_t){from, data, bytes, bytes};
    return ST_OK;
}

/* The header is there: where the data goes. */
static st_status_t open_frame(tcp_t *tcp, int from) {
    peer_t *peer = &tcp->peers[from];
    const frame_t *in = &peer->in;
    peer->in_left = (size_t)in->bytes;
    if (in->magic == MAGIC && in->type == FRAME_NOTE && in->bytes == sizeof peer->in_note) {
        peer->in_data = (char *)&peer->in_note;
        return ST_OK;
    }
    const incoming_t *to = in->slot < tcp->incoming.n ? &tcp->incoming.data[in->slot] : NULL;
    if (in->magic != MAGIC || in->type != FRAME_DATA || !to || to->peer != from ||
        in->bytes > to->left || in->offset != to->bytes - to->left)
        return FAIL(ST_PEER_LOST, "rank %d sends what no rank of this version sends", from);
    peer->in_data = to->data + in->offset;
    return ST_OK;
}

static st_status_t close_frame(tcp_t *tcp, int from, const transport_events_t *events) {
    peer_t *peer = &tcp->peers[from];
    peer->in_head = 0;
    if (peer->in.type == FRAME_NOTE) return events->note(events->context, from, &peer->in_note);
    incoming_t *to = &tcp->incoming.data[peer->in.slot];
    to->left -= (size_t)peer->in.bytes;
    if (to->left) return ST_OK;
    to->peer = -1;
    return events->received(events->context, peer->in.slot);
}

static st_status_t read_some(tcp_t *tcp, int from, const transport_events_t *events) {
    peer_t *peer = &tcp->peers[from];
    for (size_t turn = 0; turn < TURN_BYTES && peer->socket >= 0;) {
        bool head = peer->in_head < sizeof peer->in;
        void *to = head ? (char *)&peer->in + peer->in_head : peer->in_data;
        size_t room = head ? sizeof peer->in - peer->in_head : peer->in_left;
        ssize_t n = read(peer->socket, to, room);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return ST_OK;
        if (n <= 0) {
            wire_close(&peer->socket);
            events->lost(events->context, from);
            return ST_OK;
        }
        turn += (size_t)n;
        if (head) {
            peer->in_head += (size_t)n;
            if (peer->in_head == sizeof peer->in) TRY(open_frame(tcp, from));
        } else {
            peer->in_left -= (size_t)n;
            peer->in_data += n;
        }
        if (peer->in_head == sizeof peer->in && !peer->in_left) TRY(close_frame(tcp, from, events));
    }
    return ST_OK;
}

/* ---- progress ---- */

static st_status_t tcp_progress(transport_t *transport, bool busy,
                                const transport_events_t *events) {
    (void)busy;
    tcp_t *tcp = (tcp_t *)transport;
    bool moved = false;
    for (int r = 0; r < tcp->size; r++)
        if (!tcp->peers[r].full) TRY(flush(&tcp->peers[r], events, &moved));
    for (int r = 0; r < tcp->size; r++)
        tcp->waits[r] = (struct pollfd){tcp->peers[r].socket,
                                        (short)(POLLIN | (tcp->peers[r].full ? POLLOUT : 0)), 0};
    tcp->waits[tcp->size] = (struct pollfd){tcp->wake, POLLIN, 0};
    if (poll(tcp->waits, (nfds_t)tcp->size + 1, moved ? 0 : REST_MS) < 0 && errno != EINTR)
        return FAIL(ST_IO, "waiting for other ranks failed: %s", strerror(errno));
    uint64_t count;
    if (tcp->waits[tcp->size].revents && read(tcp->wake, &count, sizeof count) < 0) count = 0;
    for (int r = 0; r < tcp->size; r++) {
        if (tcp->waits[r].revents & POLLOUT) tcp->peers[r].full = false;
        if (tcp->waits[r].revents & (POLLIN | POLLHUP | POLLERR)) TRY(read_some(tcp, r, events));
    }
    return ST_OK;
}

static void tcp_wake(transport_t *transport) {
    uint64_t one = 1;
    if (write(((tcp_t *)transport)->wake, &one, sizeof one) < 0) return; /* full: awake */
}

/* ---- life ---- */

static void tcp_close(transport_t *transport, bool orderly) {
    enum { GOODBYE_MS = 1000 };
    tcp_t *tcp = (tcp_t *)transport;
    int64_t until = wire_now_ms() + GOODBYE_MS;
    for (int r = 0; r < tcp->size && orderly; r++)
        if (tcp->peers[r].socket >= 0) shutdown(tcp->peers[r].socket, SHUT_WR);
    for (int r = 0; r < tcp->size; r++) {
        int64_t left = until - wire_now_ms();
        if (orderly && left > 0) wire_close_gently(&tcp->peers[r].socket, (int)left);
        wire_close(&tcp->peers[r].socket);
        ST_VEC_FREE(&tcp->peers[r].notes);
        ST_VEC_FREE(&tcp->peers[r].messages);
    }
    if (tcp->wake >= 0) close(tcp->wake);
    ST_VEC_FREE(&tcp->incoming);
    st_free(tcp->peers);
    st_free(tcp->waits);
    st_free(tcp);
}

static const transport_ops_t ops = {
    .name = "tcp",
    .note = tcp_note,
    .receive = tcp_receive,
    .send = tcp_send,
    .progress = tcp_progress,
    .wake = tcp_wake,
    .close = tcp_close,
};

typedef struct greeting {
    uint64_t token;
    int32_t rank, unused;
} greeting_t;

/* Connections of higher ranks; others that knock are dropped. */
static st_status_t accept_all(tcp_t *tcp, uint64_t token, int listener, int64_t deadline) {
    enum { GREETING_MS = 2000 };
    for (int n = 0; n < tcp->size - 1 - tcp->rank;) {
        struct pollfd wait = {listener, POLLIN, 0};
        int64_t left = deadline - wire_now_ms();
        if (left <= 0)
            return FAIL(ST_PEER_LOST, "rank %d: %d ranks did not connect to it", tcp->rank,
                        tcp->size - 1 - tcp->rank - n);
        if (poll(&wait, 1, left > 1000 ? 1000 : (int)left) <= 0) continue;
        int socket = accept(listener, NULL, NULL);
        if (socket < 0) continue;
        wire_prepare(socket);
        greeting_t greeting;
        int64_t until = wire_now_ms() + GREETING_MS;
        if (wire_read(socket, &greeting, sizeof greeting, until < deadline ? until : deadline) !=
                ST_OK ||
            greeting.token != token || greeting.rank <= tcp->rank || greeting.rank >= tcp->size ||
            tcp->peers[greeting.rank].socket >= 0) {
            close(socket);
            continue;
        }
        tcp->peers[greeting.rank].socket = socket;
        n++;
    }
    return ST_OK;
}

static st_status_t connect_all(tcp_t *tcp, const control_t *control, int64_t deadline) {
    const control_peer_t *peers = control_peers(control);
    greeting_t greeting = {.token = control_token(control), .rank = tcp->rank};
    for (int r = 0; r < tcp->rank; r++) {
        st_status_t status =
            wire_connect(peers[r].address, peers[r].data_port, deadline, &tcp->peers[r].socket);
        if (status == ST_OK)
            status = wire_write(tcp->peers[r].socket, &greeting, sizeof greeting, deadline);
        if (status != ST_OK)
            return st_error_context(status, "rank %d connects to rank %d", tcp->rank, r);
    }
    return ST_OK;
}

st_status_t process_tcp_open(int rank, int size, const control_t *control, int listener,
                             int64_t timeout_ms, transport_t **out_transport) {
    *out_transport = NULL;
    int64_t deadline = wire_now_ms() + timeout_ms;
    tcp_t *tcp = st_calloc(1, sizeof *tcp);
    if (!tcp) return st_no_memory(sizeof *tcp, "connections");
    size_t n = (size_t)size;
    *tcp = (tcp_t){.base = {&ops}, .rank = rank, .size = size, .wake = -1};
    tcp->peers = st_calloc(n, sizeof *tcp->peers);
    tcp->waits = st_calloc(n + 1, sizeof *tcp->waits);
    if (!tcp->peers) tcp->size = 0;
    for (int r = 0; r < tcp->size; r++) tcp->peers[r].socket = -1;
    st_status_t status = ST_OK;
    if (!tcp->peers || !tcp->waits) status = st_no_memory(n * sizeof *tcp->peers, "connections");
    if (status == ST_OK && (tcp->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        status = FAIL(ST_IO, "no event descriptor: %s", strerror(errno));
    if (status == ST_OK) status = connect_all(tcp, control, deadline);
    if (status == ST_OK) status = accept_all(tcp, control_token(control), listener, deadline);
    if (status != ST_OK) {
        tcp_close(&tcp->base, false);
        return status;
    }
    *out_transport = &tcp->base;
    return ST_OK;
}

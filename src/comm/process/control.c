/* See control.h. One thread a process reads and writes all of it, so that a beat does not wait for
 * sums; a failure is decided by rank 0, which alone sees everyone, unless rank 0 is what is
 * lost. */
#include "comm/process/control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/process/rendezvous.h"
#include "comm/process/wire.h"

enum { BEAT_MS = 100, ANSWER_MS = 500, OP_BYTES = 120 };

typedef enum message_type { BEAT = 1, GIVE_UP, LEAVE } message_type_t;

typedef struct message {
    uint32_t magic, type;
    int32_t status, about;
    uint64_t step;
    char op[OP_BYTES], text[CONTROL_TEXT_BYTES];
} message_t;

enum { MAGIC = 0x53544d31 };

typedef struct link {
    int socket; /* -1: gone, or there is none */
    int64_t heard_ms;
    uint64_t step;
    char op[OP_BYTES];
    message_t in, out;
    size_t n_in, out_left; /* bytes that are there; that are not sent yet */
} link_t;

struct control {
    int rank, size;
    int64_t silence_ms;
    link_t *links; /* [size] */
    rendezvous_t meeting;
    control_fail_t fail;
    void *context;
    int wake;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* of what follows */
    bool stop, failed;
    bool beat_now; /* the first place is told at once */
    uint64_t step;
    char op[OP_BYTES];
    bool has_report;
    int64_t reported_ms; /* when it went to rank 0; 0: not yet */
    message_t report;
};

const control_peer_t *control_peers(const control_t *control) {
    return control->meeting.peers;
}
uint64_t control_token(const control_t *control) {
    return control->meeting.token;
}

/* ---- sending ---- */

/* Sends what is left of the last message; true when nothing is. */
static bool flush(link_t *link) {
    while (link->socket >= 0 && link->out_left) {
        const char *from = (const char *)&link->out + sizeof link->out - link->out_left;
        ssize_t n = send(link->socket, from, link->out_left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false; /* a closed connection is found when it is read */
        link->out_left -= (size_t)n;
    }
    return link->socket >= 0;
}

/* A beat that finds the last one unsent is left out. */
static void send_message(link_t *link, const message_t *message, bool must) {
    if (link->socket < 0) return;
    if (!flush(link)) {
        if (!must ||
            wire_write(link->socket, (const char *)&link->out + sizeof link->out - link->out_left,
                       link->out_left, wire_now_ms() + BEAT_MS) != ST_OK)
            return;
        link->out_left = 0;
    }
    link->out = *message;
    link->out_left = sizeof link->out;
    if (!flush(link) && must &&
        wire_write(link->socket, (const char *)&link->out + sizeof link->out - link->out_left,
                   link->out_left, wire_now_ms() + BEAT_MS) == ST_OK)
        link->out_left = 0;
}

static void send_all(control_t *control, const message_t *message, bool must) {
    for (int r = 0; r < control->size; r++) send_message(&control->links[r], message, must);
}

static void beat(control_t *control) {
    message_t message = {.magic = MAGIC, .type = BEAT};
    pthread_mutex_lock(&control->mutex);
    message.step = control->step;
    snprintf(message.op, sizeof message.op, "%s", control->op);
    pthread_mutex_unlock(&control->mutex);
    send_all(control, &message, false);
}

/* ---- failures ---- */

/* ", last seen at step 3, all-reduce 'x'" */
static void place_text(uint64_t step, const char *op, char *out, size_t capacity) {
    if (!op[0])
        snprintf(out, capacity, ", last seen before its first step");
    else
        snprintf(out, capacity, ", last seen at step %llu, %s", (unsigned long long)step, op);
}

/* The cause is known: it goes to all others and to the owner. On the control thread. */
static void conclude(control_t *control, st_status_t status, const char *text) {
    pthread_mutex_lock(&control->mutex);
    bool first = !control->failed;
    control->failed = true;
    pthread_mutex_unlock(&control->mutex);
    if (!first) return;
    if (control->rank == 0) {
        message_t message = {
            .magic = MAGIC, .type = GIVE_UP, .status = (int32_t)status, .about = -1};
        snprintf(message.text, sizeof message.text, "%s", text);
        send_all(control, &message, true);
    }
    control->fail(control->context, status, text);
}

static void lost(control_t *control, int rank, const char *how) {
    const control_peer_t *peer = &control->meeting.peers[rank];
    link_t *link = &control->links[rank];
    char place[OP_BYTES + 60], text[CONTROL_TEXT_BYTES];
    place_text(link->step, link->op, place, sizeof place);
    snprintf(text, sizeof text, "rank %d (pid %d on %s) %s%s", rank, peer->pid, peer->host, how,
             place);
    conclude(control, ST_PEER_LOST, text);
}

/* A rank's reason, with the place of the rank that it blames. On rank 0. */
static void judge(control_t *control, const message_t *message) {
    char place[OP_BYTES + 60], text[CONTROL_TEXT_BYTES];
    int about = message->about;
    if (about >= 0 && about < control->size) {
        const link_t *link = &control->links[about];
        bool own = about == control->rank;
        pthread_mutex_lock(&control->mutex);
        place_text(own ? control->step : link->step, own ? control->op : link->op, place,
                   sizeof place);
        pthread_mutex_unlock(&control->mutex);
        snprintf(text, sizeof text, "%.*s%s", (int)(sizeof text - sizeof place - 1), message->text,
                 place);
    } else {
        snprintf(text, sizeof text, "%s", message->text);
    }
    conclude(control, (st_status_t)message->status, text);
}

/* ---- receiving ---- */

static void take(control_t *control, int rank) {
    link_t *link = &control->links[rank];
    message_t *in = &link->in;
    link->n_in = 0;
    if (in->magic != MAGIC) return;
    in->op[sizeof in->op - 1] = in->text[sizeof in->text - 1] = '\0';
    if (in->type == BEAT) {
        link->step = in->step;
        memcpy(link->op, in->op, sizeof link->op);
    } else if (in->type == LEAVE) {
        wire_close(&link->socket);
    } else if (in->type == GIVE_UP) {
        if (control->rank == 0)
            judge(control, in);
        else
            conclude(control, (st_status_t)in->status, in->text);
    }
}

static void hear(control_t *control, int rank) {
    link_t *link = &control->links[rank];
    while (link->socket >= 0) {
        ssize_t n =
            read(link->socket, (char *)&link->in + link->n_in, sizeof link->in - link->n_in);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            wire_close(&link->socket);
            lost(control, rank, "is gone: its connection has closed");
            return;
        }
        link->heard_ms = wire_now_ms();
        link->n_in += (size_t)n;
        if (link->n_in == sizeof link->in) take(control, rank);
    }
}

static void check_silence(control_t *control) {
    int64_t now = wire_now_ms();
    for (int r = 0; r < control->size; r++) {
        const link_t *link = &control->links[r];
        if (link->socket < 0 || now - link->heard_ms <= control->silence_ms) continue;
        char how[120];
        snprintf(how, sizeof how, "has been silent for %lld ms: it is stopped, or cut off",
                 (long long)(now - link->heard_ms));
        lost(control, r, how);
    }
}

/* What control_report left here: rank 0 decides at once, the others ask rank 0 and take their own
 * word where it does not answer. */
static void handle_report(control_t *control) {
    pthread_mutex_lock(&control->mutex);
    bool has = control->has_report, failed = control->failed;
    message_t report = control->report;
    int64_t sent = control->reported_ms;
    pthread_mutex_unlock(&control->mutex);
    if (!has || failed) return;
    if (control->rank == 0) {
        judge(control, &report);
        return;
    }
    if (!sent && control->links[0].socket >= 0) {
        send_message(&control->links[0], &report, true);
        control->reported_ms = wire_now_ms();
        return;
    }
    if (control->links[0].socket < 0 || wire_now_ms() - sent > ANSWER_MS)
        conclude(control, (st_status_t)report.status, report.text);
}

static bool take_beat_now(control_t *control) {
    pthread_mutex_lock(&control->mutex);
    bool now = control->beat_now;
    control->beat_now = false;
    pthread_mutex_unlock(&control->mutex);
    return now;
}

static void *watch_main(void *argument) {
    control_t *control = argument;
    int64_t next_beat = 0;
    size_t n = (size_t)control->size;
    struct pollfd *waits = st_calloc(n + 1, sizeof *waits);
    for (;;) {
        pthread_mutex_lock(&control->mutex);
        bool stop = control->stop;
        pthread_mutex_unlock(&control->mutex);
        if (stop) break;
        if (!waits) {
            conclude(control, ST_NO_MEMORY, "no memory to watch the other ranks");
            break;
        }
        for (size_t r = 0; r < n; r++)
            waits[r] = (struct pollfd){control->links[r].socket, POLLIN, 0};
        waits[n] = (struct pollfd){control->wake, POLLIN, 0};
        poll(waits, (nfds_t)n + 1, BEAT_MS);
        for (size_t r = 0; r < n; r++)
            if (waits[r].revents) hear(control, (int)r);
        uint64_t count;
        if (waits[n].revents && read(control->wake, &count, sizeof count) < 0) continue;
        handle_report(control);
        check_silence(control);
        if (wire_now_ms() < next_beat && !take_beat_now(control)) continue;
        beat(control);
        next_beat = wire_now_ms() + BEAT_MS;
    }
    st_free(waits);
    return NULL;
}

/* ---- life ---- */

static void wake(control_t *control) {
    uint64_t one = 1;
    if (write(control->wake, &one, sizeof one) < 0) return; /* full: it is awake */
}

void control_mark(control_t *control, uint64_t step, const char *op) {
    pthread_mutex_lock(&control->mutex);
    bool first = !control->op[0];
    control->step = step;
    control->beat_now |= first;
    snprintf(control->op, sizeof control->op, "%s", op);
    pthread_mutex_unlock(&control->mutex);
    if (first) wake(control);
}

void control_report(control_t *control, st_status_t status, int about, const char *text) {
    pthread_mutex_lock(&control->mutex);
    if (!control->has_report) {
        control->report =
            (message_t){.magic = MAGIC, .type = GIVE_UP, .status = (int32_t)status, .about = about};
        snprintf(control->report.text, sizeof control->report.text, "%s", text);
        control->has_report = true;
    }
    pthread_mutex_unlock(&control->mutex);
    wake(control);
}

static void control_free(control_t *control) {
    for (int r = 0; control->links && r < control->size; r++) wire_close(&control->links[r].socket);
    if (control->wake >= 0) close(control->wake);
    pthread_mutex_destroy(&control->mutex);
    st_free(control->links);
    st_free(control->meeting.sockets);
    st_free(control->meeting.peers);
    st_free(control);
}

/* A reason that was just given has to reach the others. */
static void finish_report(control_t *control) {
    for (int64_t until = wire_now_ms() + 2 * ANSWER_MS; wire_now_ms() < until;) {
        pthread_mutex_lock(&control->mutex);
        bool open = control->has_report && !control->failed;
        pthread_mutex_unlock(&control->mutex);
        if (!open) return;
        poll(NULL, 0, 5);
    }
}

void control_close(control_t *control) {
    if (!control) return;
    if (control->has_thread) {
        finish_report(control);
        pthread_mutex_lock(&control->mutex);
        control->stop = true;
        pthread_mutex_unlock(&control->mutex);
        wake(control);
        pthread_join(control->thread, NULL);
        message_t message = {.magic = MAGIC, .type = LEAVE};
        if (!control->failed) send_all(control, &message, true);
        for (int r = 0; r < control->size; r++)
            wire_close_gently(&control->links[r].socket, control->failed ? BEAT_MS : ANSWER_MS);
    }
    control_free(control);
}

st_status_t control_open(const control_config_t *config, control_t **out_control) {
    *out_control = NULL;
    control_t *control = st_calloc(1, sizeof *control);
    if (!control) return st_no_memory(sizeof *control, "the rendezvous");
    size_t n = (size_t)config->size;
    control->rank = config->rank;
    control->size = config->size;
    control->silence_ms = config->timeout_ms / 2;
    control->wake = -1;
    pthread_mutex_init(&control->mutex, NULL);
    control->meeting.sockets = st_calloc(n, sizeof *control->meeting.sockets);
    control->meeting.peers = st_calloc(n, sizeof *control->meeting.peers);
    control->links = st_calloc(n, sizeof *control->links);
    st_status_t status = ST_OK;
    if (!control->meeting.sockets || !control->meeting.peers || !control->links)
        status = st_no_memory(n * sizeof *control->links, "the rendezvous");
    for (size_t r = 0; control->links && r < n; r++) control->links[r].socket = -1;
    for (size_t r = 0; control->meeting.sockets && r < n; r++) control->meeting.sockets[r] = -1;
    if (status == ST_OK) status = rendezvous_meet(config, &control->meeting);
    for (size_t r = 0; control->links && control->meeting.sockets && r < n; r++) {
        control->links[r].socket = control->meeting.sockets[r];
        control->links[r].heard_ms = wire_now_ms();
    }
    if (status == ST_OK && (control->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        status = FAIL(ST_IO, "no event descriptor: %s", strerror(errno));
    if (status != ST_OK) {
        /* whoever was told why must be able to read it */
        for (size_t r = 0; control->links && config->rank == 0 && r < n; r++)
            wire_close_gently(&control->links[r].socket, BEAT_MS);
        control_free(control);
        return status;
    }
    *out_control = control;
    return ST_OK;
}

st_status_t control_watch(control_t *control, control_fail_t fail, void *context) {
    control->fail = fail;
    control->context = context;
    int64_t now = wire_now_ms();
    for (int r = 0; r < control->size; r++) control->links[r].heard_ms = now;
    int failed = pthread_create(&control->thread, NULL, watch_main, control);
    if (failed) return FAIL(ST_NO_MEMORY, "no thread to watch the ranks: %s", strerror(failed));
    control->has_thread = true;
    return ST_OK;
}

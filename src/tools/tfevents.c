/* Event files for TensorBoard (tool.h): records of serialized Event messages,
 *
 *   | length u64 | masked crc32c of it u32 | message | masked crc32c of it u32 |    little-endian
 *
 * The messages are flat and few, so their fields are written by hand: wall_time (1, double), step
 * (2, varint), file_version (3, text), summary (5) of values (1) with tag (1, text) and
 * simple_value (2, float). */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/tool.h"

enum { MOST_BYTES = 512 }; /* of a message: tags are ours and short */

struct tool_events {
    FILE *file;
    char *path;
};

typedef struct message {
    unsigned char data[MOST_BYTES];
    size_t n;
} message_t;

/* Castagnoli's polynomial, bit by bit, reflected: files grow by some hundred bytes a step. */
static uint32_t crc32c(const unsigned char *data, size_t n) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}
static uint32_t masked(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_bytes(message_t *m, const void *data, size_t n) {
    if (n > sizeof m->data - m->n) n = sizeof m->data - m->n;
    memcpy(m->data + m->n, data, n);
    m->n += n;
}
/* The n lowest bytes, lowest first, on any machine. */
static void put_fixed(message_t *m, uint64_t value, int n) {
    for (int i = 0; i < n; i++) put_bytes(m, &(unsigned char){(unsigned char)(value >> 8 * i)}, 1);
}
static void put_varint(message_t *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) put_fixed(m, (value & 0x7f) | 0x80, 1);
    put_fixed(m, value, 1);
}
static void put_field(message_t *m, uint32_t number, const void *data, size_t n) {
    put_varint(m, number << 3 | 2);
    put_varint(m, n);
    put_bytes(m, data, n);
}

static stator_status_t failed(const tool_events_t *events, const char *what) {
    return tool_fail(STATOR_IO, "%s: %s: %s", events->path, what, strerror(errno));
}

static stator_status_t put_record(tool_events_t *events, const message_t *message) {
    message_t head = {.n = 0}, tail = {.n = 0};
    put_fixed(&head, message->n, 8);
    put_fixed(&head, masked(crc32c(head.data, 8)), 4);
    put_fixed(&tail, masked(crc32c(message->data, message->n)), 4);
    if (fwrite(head.data, 1, head.n, events->file) != head.n ||
        fwrite(message->data, 1, message->n, events->file) != message->n ||
        fwrite(tail.data, 1, tail.n, events->file) != tail.n || fflush(events->file) != 0)
        return failed(events, "writing failed");
    return STATOR_OK;
}

static void put_time(message_t *m) {
    struct timespec now;
    double seconds;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    put_varint(m, 1 << 3 | 1);
    put_fixed(m, bits, 8);
}

stator_status_t tool_events_create(const char *folder, tool_events_t **out_events) {
    static const char version[] = "brain.Event:2";
    char host[256] = "";
    message_t message = {.n = 0};
    *out_events = NULL;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tool_fail(STATOR_IO, "cannot create folder '%s': %s", folder, strerror(errno));
    tool_events_t *made = calloc(1, sizeof *made);
    size_t bytes = strlen(folder) + sizeof host + 80;
    if (!made || !(made->path = malloc(bytes))) {
        free(made);
        return tool_fail(STATOR_NO_MEMORY, "out of memory");
    }
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "localhost");
    snprintf(made->path, bytes, "%s/events.out.tfevents.%010lld.%s.%ld", folder,
             (long long)time(NULL), host, (long)getpid());
    made->file = fopen(made->path, "ab");
    stator_status_t status = made->file ? STATOR_OK : failed(made, "cannot be written");
    put_time(&message);
    put_field(&message, 3, version, sizeof version - 1);
    if (status == STATOR_OK) status = put_record(made, &message);
    if (status == STATOR_OK)
        *out_events = made;
    else
        tool_events_destroy(made);
    return status;
}

stator_status_t tool_events_scalar(tool_events_t *events, int64_t step, const char *tag,
                                   double value) {
    message_t one = {.n = 0}, summary = {.n = 0}, event = {.n = 0};
    float single = (float)value;
    uint32_t bits;
    if (!events) return STATOR_OK;
    memcpy(&bits, &single, sizeof bits);
    put_field(&one, 1, tag, strlen(tag));
    put_varint(&one, 2 << 3 | 5);
    put_fixed(&one, bits, 4);
    put_field(&summary, 1, one.data, one.n);
    put_time(&event);
    put_varint(&event, 2 << 3 | 0);
    put_varint(&event, (uint64_t)step);
    put_field(&event, 5, summary.data, summary.n);
    return put_record(events, &event);
}

void tool_events_destroy(tool_events_t *events) {
    if (!events) return;
    if (events->file) fclose(events->file);
    free(events->path);
    free(events);
}

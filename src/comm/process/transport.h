/* What moves bytes between ranks that are processes. Used by one thread, the engine's, but for
 * wake.
 *
 * A message goes where the receiver has said that it may: the receiver posts a buffer under a slot
 * number of its own and sends a note with the number; the sender answers with the bytes. So nothing
 * ever arrives that has no place yet. */
#ifndef STATOR_COMM_PROCESS_TRANSPORT_H
#define STATOR_COMM_PROCESS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* "I take this message at slot": sent by the receiver of the message. */
typedef struct process_note {
    uint64_t group, check; /* what all members must agree on is hashed into check */
    uint64_t bytes;
    uint32_t sequence, slot;
    uint8_t pair, phase, unused[6]; /* pair: send and receive, numbered apart */
} process_note_t;

/* Called within progress; the failure ends the engine. */
typedef struct transport_events {
    void *context;
    st_status_t (*note)(void *context, int peer, const process_note_t *note);
    st_status_t (*received)(void *context, uint32_t slot);
    st_status_t (*sent)(void *context, uint32_t slot);
    void (*lost)(void *context, int peer); /* nothing comes from the peer any more */
} transport_events_t;

typedef struct transport transport_t;
typedef struct transport_ops {
    const char *name;
    st_status_t (*note)(transport_t *transport, int peer, const process_note_t *note);
    /* Before the note that names the slot. */
    st_status_t (*receive)(transport_t *transport, int peer, uint32_t slot, void *data,
                           size_t bytes);
    /* To slot `to` of the peer; `slot` is the sender's own name for it. */
    st_status_t (*send)(transport_t *transport, int peer, uint32_t to, uint32_t slot,
                        const void *data, size_t bytes);
    /* Does what can be done; where that is nothing, rests until there is something, at most 50 ms.
     * `busy`: messages are expected. */
    st_status_t (*progress)(transport_t *transport, bool busy, const transport_events_t *events);
    void (*wake)(transport_t *transport); /* any thread: ends a rest */
    /* `orderly`: what was sent still arrives. */
    void (*close)(transport_t *transport, bool orderly);
} transport_ops_t;

struct transport {
    const transport_ops_t *ops;
};

#endif

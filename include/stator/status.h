/* Stator: status codes and error texts.
 *
 * Every function that can fail returns a stator_status_t: 0 is success, negative an error. The text
 * of the last failure on the calling thread says what, where and what to do next:
 * stator_last_error(). (Nearest equivalents: ncclResult_t with ncclGetLastError, MPI error
 * classes.) A pointer that is NULL where that is not allowed gives STATOR_INVALID with a text that
 * names function and argument; arrays may be NULL where they have no elements.
 *
 * Versions: functions are added, never changed, within one major version of the library;
 * enumerators keep their values for ever. Files written by one major version are read by all later
 * ones. */
#ifndef STATOR_STATUS_H
#define STATOR_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STATOR_API __attribute__((visibility("default")))
#define STATOR_WARN_UNUSED __attribute__((warn_unused_result))
#else
#define STATOR_API
#define STATOR_WARN_UNUSED
#endif

#define STATOR_VERSION_MAJOR 0
#define STATOR_VERSION_MINOR 1
#define STATOR_VERSION_PATCH 0

typedef enum stator_status {
    STATOR_OK = 0,
    STATOR_IN_PROGRESS = 1,
    STATOR_INVALID = -1,        /* a bad argument, option or graph */
    STATOR_PARSE = -2,          /* a malformed file */
    STATOR_NOT_FOUND = -3,      /* no such file, name or tensor */
    STATOR_UNSUPPORTED = -4,    /* well formed, but Stator has no rule or kernel for it */
    STATOR_NO_MEMORY = -5,      /* the host is out of memory */
    STATOR_IO = -6,             /* reading or writing failed */
    STATOR_DOES_NOT_FIT = -7,   /* a size limit is exceeded */
    STATOR_PEER_LOST = -8,      /* a rank did not answer in time */
    STATOR_RANKS_DISAGREE = -9, /* ranks run different programs */
    STATOR_INTERRUPTED = -10,
    STATOR_INTERNAL = -11,   /* a fault of Stator itself */
    STATOR_NOT_FINITE = -12, /* training left the finite numbers */
    STATOR_DEVICE = -13      /* a call of a device's own library failed */
} stator_status_t;

/* "ok", "malformed input", …; never NULL. Thread-safe. */
STATOR_API const char *stator_status_text(stator_status_t status);
/* Message of the last failure on this thread, "" if none; valid until the next failure here. */
STATOR_API const char *stator_last_error(void);
/* "0.1.0", and "oneDNN 2.6.3" or "" for the libraries that kernels use. Thread-safe. */
STATOR_API const char *stator_version(void);
STATOR_API const char *stator_libraries(void);

#ifdef __cplusplus
}
#endif
#endif

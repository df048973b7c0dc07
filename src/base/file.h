/* Files: read-only maps and atomic writes.
 *
 * A write goes to "<path>.partial-<pid>-<n>" in the same folder, is flushed to the disk, and then
 * takes the place of `path` by rename: at any moment `path` is either the previous file or the
 * whole new one. A symbolic link stays: the file that it names is replaced, or created. What is
 * there but is no regular file (a device, a named pipe) is opened and written itself, as it comes;
 * opening a pipe waits for its reader. Messages name the path and the system's reason. */
#ifndef STATOR_BASE_FILE_H
#define STATOR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What tells that a file is still the one that was mapped. */
typedef struct st_file_stamp {
    uint64_t device, inode;
    int64_t bytes, modified_s, modified_ns;
} st_file_stamp_t;

/* A regular file, mapped read-only. The file must not be truncated by others while it is open: a
 * reader that keeps one for long asks st_file_check before it touches the data. */
typedef struct st_file {
    const uint8_t *data; /* never NULL once open, also for an empty file */
    size_t bytes;
    char *path;
    st_file_stamp_t stamp;
} st_file_t;

/* A missing file is ST_NOT_FOUND, anything else that goes wrong ST_IO. */
st_status_t st_file_open(const char *path, st_file_t *out_file) ST_WARN_UNUSED;
/* The same of an open file, which stays the caller's to close; `path` is for messages. */
st_status_t st_file_map(int descriptor, const char *path, st_file_t *out_file) ST_WARN_UNUSED;
/* ST_IO if the file at the path was written, cut, replaced or removed since it was mapped. */
st_status_t st_file_check(const st_file_t *file) ST_WARN_UNUSED;
/* A zeroed or closed file is fine. */
void st_file_close(st_file_t *file);

typedef struct st_writer st_writer_t;
/* Opens the partial file, or what is no regular file itself. */
st_status_t st_writer_create(const char *path, st_writer_t **out_writer) ST_WARN_UNUSED;
st_status_t st_writer_append(st_writer_t *writer, const void *data, size_t bytes) ST_WARN_UNUSED;
/* Flushes, renames and destroys the writer, whether or not it succeeds; on failure the partial file
 * is removed and `path` is what it was, unless it was written itself. */
st_status_t st_writer_commit(st_writer_t *writer) ST_WARN_UNUSED;
/* Removes the partial file. NULL is fine. */
void st_writer_abandon(st_writer_t *writer);

/* Whole-file atomic write. */
st_status_t st_file_write(const char *path, const void *data, size_t bytes) ST_WARN_UNUSED;
/* Size and st_hash64 (seed 0) of a file's contents. */
st_status_t st_file_digest(const char *path, uint64_t *out_bytes,
                           uint64_t *out_hash) ST_WARN_UNUSED;

/* Creates a folder and its missing parents; an existing folder is fine. */
st_status_t st_make_folder(const char *path) ST_WARN_UNUSED;
/* Makes earlier renames and creations inside the folder survive a power cut. */
st_status_t st_sync_folder(const char *path) ST_WARN_UNUSED;
st_status_t st_rename(const char *from, const char *to) ST_WARN_UNUSED;
/* `to` becomes another name of the file `from`, replacing what `to` named, atomically. A copy where
 * the file system has no hard links. */
st_status_t st_link_over(const char *from, const char *to) ST_WARN_UNUSED;
/* `path` becomes a symbolic link with the text `target`, replacing what was there, atomically. */
st_status_t st_symlink_over(const char *target, const char *path) ST_WARN_UNUSED;
/* Removes a folder and the plain files in it (not sub-folders). Absent is fine. */
st_status_t st_remove_folder(const char *path) ST_WARN_UNUSED;
/* Removes a file; absent is fine. */
st_status_t st_remove_file(const char *path) ST_WARN_UNUSED;
/* "<folder>/<name>" from the heap, or NULL when out of memory. */
char *st_path_join(const char *folder, const char *name);
/* True for names that an interrupted atomic write leaves behind. */
bool st_is_partial_name(const char *name);

/* The process that a partial name of this module, or one that ends in ".partial-<word>-<pid>", was
 * made by; 0 if the name does not say. */
int64_t st_partial_process(const char *name);
/* True if a process of that id runs on this machine. */
bool st_process_runs(int64_t process);

/* A lock on the file `path`, which is created and stays: it keeps out other processes and other
 * threads that take it, until it is released or the process ends. */
typedef struct st_lock {
    int descriptor; /* -1: not held */
} st_lock_t;
/* Waits up to `wait_ms` for it; then ST_IO says "'<what>' is in use by another process (pid …)". A
 * file system without locks is no error: there nothing is kept out. */
st_status_t st_lock_take(const char *path, const char *what, int64_t wait_ms,
                         st_lock_t *out_lock) ST_WARN_UNUSED;
/* One that is not held is fine. */
void st_lock_release(st_lock_t *lock);

/* Test hook: after `budget` more units of change to the disk (a byte written, or one other change,
 * is a unit) every further change fails as on a full disk. What is on the disk then is what a crash
 * at that point leaves. Negative switches it off. Not for use with several threads. */
void st_file_fail_after(int64_t budget);
/* Units since the last call of st_file_fail_after. */
int64_t st_file_changes(void);

#endif

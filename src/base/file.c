/* Files: see file.h. Everything that changes the disk passes through spend(), so that tests can cut
 * a save short at every byte and between any two operations. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"

static atomic_int_least64_t fail_budget = -1; /* negative: no limit */
static atomic_int_least64_t changes_made;

void st_file_fail_after(int64_t budget) {
    atomic_store(&fail_budget, budget);
    atomic_store(&changes_made, 0);
}

int64_t st_file_changes(void) {
    return atomic_load(&changes_made);
}

/* How many of `want` units of change may still happen; sets errno when fewer than asked. */
static size_t spend(size_t want) {
    int64_t left = atomic_load_explicit(&fail_budget, memory_order_relaxed);
    size_t may = want;
    while (left >= 0) {
        may = (uint64_t)left < want ? (size_t)left : want;
        if (atomic_compare_exchange_weak(&fail_budget, &left, left - (int64_t)may)) break;
        may = want; /* another thread spent or changed the budget: `left` is the new one */
    }
    if (may < want) errno = ENOSPC;
    atomic_fetch_add_explicit(&changes_made, (int64_t)may, memory_order_relaxed);
    return may;
}

static st_status_t fail_errno(const char *verb, const char *path) {
    int error = errno;
    const char *advice = "";
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
        advice = "; free space there or choose another folder (the previous file is untouched)";
    }
    return FAIL(error == ENOENT ? ST_NOT_FOUND : ST_IO, "cannot %s '%s': %s%s", verb, path,
                strerror(error), advice);
}

static st_file_stamp_t stamp_of(const struct stat *info) {
    return (st_file_stamp_t){.device = info->st_dev,
                             .inode = info->st_ino,
                             .bytes = info->st_size,
                             .modified_s = info->st_mtim.tv_sec,
                             .modified_ns = info->st_mtim.tv_nsec};
}

st_status_t st_file_check(const st_file_t *file) {
    struct stat info;
    if (stat(file->path, &info) == 0) {
        st_file_stamp_t now = stamp_of(&info), then = file->stamp;
        if (now.device == then.device && now.inode == then.inode && now.bytes == then.bytes &&
            now.modified_s == then.modified_s && now.modified_ns == then.modified_ns)
            return ST_OK;
    } else if (errno != ENOENT) {
        return fail_errno("examine", file->path);
    }
    return FAIL(ST_IO, "'%s' changed while it was being read; restore it and resume", file->path);
}

st_status_t st_file_map(int descriptor, const char *path, st_file_t *out_file) {
    *out_file = (st_file_t){0};
    struct stat info;
    if (fstat(descriptor, &info) != 0) return fail_errno("examine", path);
    if (!S_ISREG(info.st_mode))
        return FAIL(ST_IO, "cannot read '%s': it is not a regular file", path);
    st_file_t file = {(const uint8_t *)"", (size_t)info.st_size, st_strdup(path), stamp_of(&info)};
    if (file.path == NULL) return st_no_memory(strlen(path) + 1, "a file's path");
    if (file.bytes > 0) {
        void *map = mmap(NULL, file.bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (map == MAP_FAILED) {
            st_status_t status = fail_errno("map", path);
            st_free(file.path);
            return status;
        }
        file.data = map;
    }
    *out_file = file;
    return ST_OK;
}

st_status_t st_file_open(const char *path, st_file_t *out_file) {
    *out_file = (st_file_t){0};
    /* Non-blocking, so that a named pipe without a writer is refused instead of waited for. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return fail_errno("open", path);
    st_status_t status = st_file_map(descriptor, path, out_file);
    close(descriptor);
    return status;
}

void st_file_close(st_file_t *file) {
    if (file->bytes > 0) munmap((void *)(uintptr_t)file->data, file->bytes);
    st_free(file->path);
    *file = (st_file_t){0};
}

char *st_path_join(const char *folder, const char *name) {
    size_t folder_bytes = strlen(folder);
    size_t name_bytes = strlen(name);
    char *path = st_malloc(folder_bytes + name_bytes + 2);
    if (path == NULL) return NULL;
    memcpy(path, folder, folder_bytes);
    if (folder_bytes > 0 && folder[folder_bytes - 1] != '/') path[folder_bytes++] = '/';
    memcpy(path + folder_bytes, name, name_bytes + 1);
    return path;
}

static const char partial_mark[] = ".partial-";

bool st_is_partial_name(const char *name) {
    return strstr(name, partial_mark) != NULL;
}

int64_t st_partial_process(const char *name) {
    const char *mark = strstr(name, partial_mark);
    if (mark == NULL) return 0;
    mark += sizeof partial_mark - 1;
    const char *digits = mark + strcspn(mark, "0123456789");
    return *digits != '\0' ? strtoll(digits, NULL, 10) : 0;
}

bool st_process_runs(int64_t process) {
    if (process <= 0 || process > INT32_MAX) return false;
    return kill((pid_t)process, 0) == 0 || errno == EPERM;
}

/* A fresh name beside `path`, from the heap. */
static char *partial_path(const char *path) {
    static atomic_uint counter;
    size_t capacity = strlen(path) + sizeof partial_mark + 48;
    char *partial = st_malloc(capacity);
    if (partial == NULL) return NULL;
    snprintf(partial, capacity, "%s%s%ld-%u", path, partial_mark, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    return partial;
}

/* Folder part of a path, from the heap: "." when there is none. */
static char *parent_path(const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return st_strdup(".");
    size_t bytes = slash == path ? 1 : (size_t)(slash - path);
    char *parent = st_malloc(bytes + 1);
    if (parent == NULL) return NULL;
    memcpy(parent, path, bytes);
    parent[bytes] = '\0';
    return parent;
}

st_status_t st_sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_errno("open folder", path);
    /* Some file systems cannot flush folders and say EINVAL: renames are durable there or never. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        st_status_t status = fail_errno("flush folder", path);
        close(fd);
        return status;
    }
    close(fd);
    return ST_OK;
}

static st_status_t sync_parent(const char *path) {
    char *parent = parent_path(path);
    if (parent == NULL) return st_no_memory(strlen(path) + 1, "a folder's path");
    st_status_t status = st_sync_folder(parent);
    st_free(parent);
    return status;
}

enum { BUFFER_BYTES = 1 << 16 };

struct st_writer {
    char *path;    /* what the bytes end up in: links followed */
    char *partial; /* NULL: `path` is a device, a pipe or the like, and is written itself */
    int fd;
    size_t buffered;
    uint8_t buffer[BUFFER_BYTES];
};

/* The path that a chain of symbolic links ends at, from the heap; nothing need exist there. */
static st_status_t follow_links(const char *path, char **out_path) {
    enum { LINKS_MAX = 40 };
    char target[4096];
    *out_path = NULL;
    char *at = st_strdup(path);
    for (int links = 0; at != NULL; links++) {
        ssize_t bytes = readlink(at, target, sizeof target);
        if (bytes < 0) { /* not a link, or nothing at all: what opens it says what is wrong */
            *out_path = at;
            return ST_OK;
        }
        if (links == LINKS_MAX || bytes == (ssize_t)sizeof target) {
            errno = links == LINKS_MAX ? ELOOP : ENAMETOOLONG;
            st_free(at);
            return fail_errno("follow the link", path);
        }
        target[bytes] = '\0';
        char *parent = target[0] == '/' ? NULL : parent_path(at);
        bool known = target[0] == '/' || parent != NULL;
        st_free(at);
        at = !known ? NULL : parent != NULL ? st_path_join(parent, target) : st_strdup(target);
        st_free(parent);
    }
    return st_no_memory(strlen(path) + 1, "a file's path");
}

/* True if something other than a regular file is there, which a rename would destroy. */
static bool is_special(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

st_status_t st_writer_create(const char *path, st_writer_t **out_writer) {
    *out_writer = NULL;
    st_writer_t *writer = st_malloc(sizeof *writer);
    if (writer == NULL) return st_no_memory(sizeof *writer, "a file writer");
    writer->fd = -1;
    writer->buffered = 0;
    writer->path = NULL;
    writer->partial = NULL;
    st_status_t status = ST_OK;
    /* Asked before links are followed by name: /dev/stdout's end in names that do not open. */
    const bool special = is_special(path);
    if (special) {
        writer->path = st_strdup(path);
    } else {
        TRY_GOTO(follow_links(path, &writer->path), fail);
        writer->partial = partial_path(writer->path);
    }
    if (writer->path == NULL || (writer->partial == NULL && !special)) {
        status = st_no_memory(strlen(path) + 1, "a file's path");
        goto fail;
    }
    const char *opened = special ? writer->path : writer->partial;
    const int flags = special ? O_NOCTTY : O_CREAT | O_EXCL;
    if (spend(1) == 1) writer->fd = open(opened, O_WRONLY | O_CLOEXEC | flags, 0666);
    if (writer->fd < 0) {
        status = fail_errno(special ? "open" : "create", opened);
        goto fail;
    }
    *out_writer = writer;
    return ST_OK;
fail:
    st_writer_abandon(writer);
    return status;
}

static st_status_t write_all(st_writer_t *writer, const uint8_t *data, size_t bytes) {
    while (bytes > 0) {
        size_t chunk = bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30;
        size_t allowed = spend(chunk);
        ssize_t done = allowed > 0 ? write(writer->fd, data, allowed) : -1;
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && writer->partial == NULL)
            return FAIL(ST_IO, "cannot write '%s': %s", writer->path, strerror(errno));
        if (done < 0) return fail_errno("write", writer->path);
        data += done;
        bytes -= (size_t)done;
    }
    return ST_OK;
}

static st_status_t flush_buffer(st_writer_t *writer) {
    size_t bytes = writer->buffered;
    writer->buffered = 0;
    return write_all(writer, writer->buffer, bytes);
}

st_status_t st_writer_append(st_writer_t *writer, const void *data, size_t bytes) {
    if (bytes == 0) return ST_OK;
    if (bytes > BUFFER_BYTES - writer->buffered) {
        TRY(flush_buffer(writer));
        if (bytes >= BUFFER_BYTES) return write_all(writer, data, bytes);
    }
    memcpy(writer->buffer + writer->buffered, data, bytes);
    writer->buffered += bytes;
    return ST_OK;
}

st_status_t st_writer_commit(st_writer_t *writer) {
    st_status_t status = ST_OK;
    TRY_GOTO(flush_buffer(writer), fail);
    /* Pipes and most devices have nothing to flush and say EINVAL. */
    if (fsync(writer->fd) != 0 && (writer->partial != NULL || errno != EINVAL)) {
        status = fail_errno("flush", writer->path);
        goto fail;
    }
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0) { /* network file systems report a full disk only here */
        status = fail_errno("close", writer->path);
        goto fail;
    }
    if (writer->partial == NULL) goto fail; /* written in place: nothing to rename */
    TRY_GOTO(st_rename(writer->partial, writer->path), fail);
    status = sync_parent(writer->path);
    st_free(writer->partial);
    writer->partial = NULL; /* it is the file now */
fail:
    st_writer_abandon(writer);
    return status;
}

void st_writer_abandon(st_writer_t *writer) {
    if (writer == NULL) return;
    if (writer->fd >= 0) close(writer->fd);
    if (writer->partial != NULL && spend(1) == 1) unlink(writer->partial);
    st_free(writer->partial);
    st_free(writer->path);
    st_free(writer);
}

st_status_t st_file_write(const char *path, const void *data, size_t bytes) {
    st_writer_t *writer;
    TRY(st_writer_create(path, &writer));
    st_status_t status = st_writer_append(writer, data, bytes);
    if (status != ST_OK) {
        st_writer_abandon(writer);
        return status;
    }
    return st_writer_commit(writer);
}

st_status_t st_file_digest(const char *path, uint64_t *out_bytes, uint64_t *out_hash) {
    st_file_t file;
    TRY(st_file_open(path, &file));
    *out_bytes = file.bytes;
    *out_hash = st_hash64(file.data, file.bytes, 0);
    st_file_close(&file);
    return ST_OK;
}

static st_status_t make_one_folder(const char *path) {
    struct stat info;
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode)) return ST_OK;
        return FAIL(ST_IO, "cannot create folder '%s': a file of that name exists", path);
    }
    if (spend(1) != 1 || mkdir(path, 0777) != 0) {
        if (errno != EEXIST) return fail_errno("create folder", path);
    }
    return sync_parent(path);
}

st_status_t st_make_folder(const char *path) {
    char *prefix = st_strdup(path);
    if (prefix == NULL) return st_no_memory(strlen(path) + 1, "a folder's path");
    st_status_t status = ST_OK;
    for (char *cursor = prefix + 1; status == ST_OK && prefix[0] != '\0' && *cursor != '\0';
         cursor++) {
        if (*cursor != '/') continue;
        *cursor = '\0';
        status = make_one_folder(prefix);
        *cursor = '/';
    }
    if (status == ST_OK) status = make_one_folder(path);
    st_free(prefix);
    return status;
}

st_status_t st_rename(const char *from, const char *to) {
    if (spend(1) != 1 || rename(from, to) != 0) return fail_errno("put in place", to);
    return ST_OK;
}

static st_status_t copy_file(const char *from, const char *to) {
    st_file_t file;
    TRY(st_file_open(from, &file));
    st_status_t status = st_file_write(to, file.data, file.bytes);
    st_file_close(&file);
    return status;
}

/* Renames `partial` over `path` and frees `partial`. When both already name the same file, rename
 * leaves `partial` there (POSIX), so it is removed in any case. */
static st_status_t settle(char *partial, const char *path) {
    st_status_t status = st_rename(partial, path);
    if (spend(1) == 1) unlink(partial);
    st_free(partial);
    if (status != ST_OK) return status;
    return sync_parent(path);
}

st_status_t st_link_over(const char *from, const char *to) {
    char *partial = partial_path(to);
    if (partial == NULL) return st_no_memory(strlen(to) + 1, "a file's path");
    if (spend(1) == 1 && link(from, partial) == 0) return settle(partial, to);
    bool can_copy = errno == EPERM || errno == EOPNOTSUPP || errno == EMLINK || errno == ENOSYS ||
                    errno == EXDEV;
    if (!can_copy) {
        st_status_t status = fail_errno("link", to);
        st_free(partial);
        return status;
    }
    /* Not written to `to`, which may be a link: that is replaced, not followed. */
    st_status_t status = copy_file(from, partial);
    if (status == ST_OK) return settle(partial, to);
    st_free(partial);
    return status;
}

st_status_t st_symlink_over(const char *target, const char *path) {
    char *partial = partial_path(path);
    if (partial == NULL) return st_no_memory(strlen(path) + 1, "a file's path");
    if (spend(1) == 1 && symlink(target, partial) == 0) return settle(partial, path);
    st_status_t status = fail_errno("link", path);
    st_free(partial);
    return status;
}

st_status_t st_remove_file(const char *path) {
    if (spend(1) != 1 || (unlink(path) != 0 && errno != ENOENT)) return fail_errno("remove", path);
    return ST_OK;
}

st_status_t st_remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL) return errno == ENOENT ? ST_OK : fail_errno("open folder", path);
    st_status_t status = ST_OK;
    for (struct dirent *entry = readdir(folder); status == ST_OK && entry != NULL;
         entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *file = st_path_join(path, entry->d_name);
        status = file != NULL ? st_remove_file(file) : st_no_memory(strlen(path), "a file's path");
        st_free(file);
    }
    closedir(folder);
    if (status != ST_OK) return status;
    if (spend(1) != 1 || rmdir(path) != 0) return fail_errno("remove folder", path);
    return ST_OK;
}

/* The holder writes its process id into the file, for the message alone. */
static st_status_t fail_in_use(int descriptor, const char *what) {
    char text[24] = "";
    ssize_t bytes = pread(descriptor, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    return FAIL(ST_IO, "'%s' is in use by another process (pid %lld); choose another folder", what,
                strtoll(text, NULL, 10));
}

static void write_holder(int descriptor) {
    char text[24];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (pwrite(descriptor, text, (size_t)length, 0) == length) {
        /* A longer id of an earlier holder may stay behind ours, past the line's end. */
        if (ftruncate(descriptor, length) != 0) errno = 0;
    }
}

st_status_t st_lock_take(const char *path, const char *what, int64_t wait_ms, st_lock_t *out_lock) {
    enum { TURN_MS = 20 };
    out_lock->descriptor = -1;
    int descriptor = -1;
    if (spend(1) == 1) descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return fail_errno("create", path);
    for (int64_t waited = 0; flock(descriptor, LOCK_EX | LOCK_NB) != 0;) {
        if (errno == EINTR) continue;
        if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) break;
        if (errno != EWOULDBLOCK || waited >= wait_ms) {
            st_status_t status =
                errno == EWOULDBLOCK ? fail_in_use(descriptor, what) : fail_errno("lock", path);
            close(descriptor);
            return status;
        }
        nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000L}, NULL);
        waited += TURN_MS;
    }
    write_holder(descriptor);
    out_lock->descriptor = descriptor;
    return ST_OK;
}

/* Unlocked by name, since a forked process may still have the descriptor. */
void st_lock_release(st_lock_t *lock) {
    if (lock->descriptor < 0) return;
    flock(lock->descriptor, LOCK_UN);
    close(lock->descriptor);
    lock->descriptor = -1;
}

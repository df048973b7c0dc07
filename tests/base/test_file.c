/* Mapped files and atomic writes: contents, refusals, and what a full disk leaves behind. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "support/scratch.h"

static void reads_what_was_written(void **state) {
    (void)state;
    const char *path = scratch("a");
    assert_ok(st_file_write(path, "hello", 5));
    st_file_t file;
    assert_ok(st_file_open(path, &file));
    assert_int_equal(file.bytes, 5);
    assert_memory_equal(file.data, "hello", 5);
    st_file_close(&file);
    st_file_close(&file);
    uint64_t bytes, hash;
    assert_ok(st_file_digest(path, &bytes, &hash));
    assert_int_equal(bytes, 5);
    assert_int_equal(hash, st_hash64("hello", 5, 0));
}

static void large_appends_keep_their_order(void **state) {
    (void)state;
    const char *path = scratch("large");
    size_t total = 0;
    uint8_t *expected = malloc(1 << 20);
    st_writer_t *writer;
    assert_ok(st_writer_create(path, &writer));
    for (size_t n = 1; total + n <= (1 << 20); n = n * 3 + 1) {
        for (size_t i = 0; i < n; i++) expected[total + i] = (uint8_t)(total * 31 + i * 7);
        assert_ok(st_writer_append(writer, expected + total, n));
        total += n;
    }
    assert_false(exists(path));
    assert_ok(st_writer_commit(writer));
    size_t bytes;
    uint8_t *actual = slurp(path, &bytes);
    assert_int_equal(bytes, total);
    assert_memory_equal(actual, expected, total);
    free(actual);
    free(expected);
}

static void empty_and_special_files(void **state) {
    (void)state;
    const char *path = scratch("empty");
    assert_ok(st_file_write(path, NULL, 0));
    st_file_t file;
    assert_ok(st_file_open(path, &file));
    assert_int_equal(file.bytes, 0);
    assert_non_null(file.data);
    st_file_close(&file);
    assert_fails(st_file_open(scratch("none"), &file), ST_NOT_FOUND, "none");
    assert_fails(st_file_open(scratch(""), &file), ST_IO, "not a regular file");
    const char *pipe = scratch("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_fails(st_file_open(pipe, &file), ST_IO, "not a regular file");
    assert_fails(st_file_write(scratch("no/such/file"), "x", 1), ST_NOT_FOUND, "no/such/file");
}

static int count_files(const char *folder) {
    DIR *handle = opendir(folder);
    assert_non_null(handle);
    int count = 0;
    for (struct dirent *entry = readdir(handle); entry != NULL; entry = readdir(handle)) {
        count += entry->d_name[0] != '.';
    }
    closedir(handle);
    return count;
}

static void full_disk_keeps_the_previous_file(void **state) {
    (void)state;
    assert_ok(st_make_folder(scratch("deep/er/still")));
    assert_ok(st_make_folder(scratch("deep/er/still")));
    const char *folder = scratch("deep/er/still");
    const char *path = scratch("deep/er/still/f");
    assert_ok(st_file_write(path, "previous", 8));
    st_file_fail_after(INT64_MAX);
    assert_ok(st_file_write(path, "new contents", 12));
    int64_t changes = st_file_changes();
    assert_true(changes > 12);
    for (int64_t budget = 0; budget < changes; budget++) {
        st_file_fail_after(-1);
        assert_ok(st_file_write(path, "previous", 8));
        st_file_fail_after(budget);
        st_status_t status = st_file_write(path, "new contents", 12);
        st_file_fail_after(-1);
        size_t bytes;
        char *text = (char *)slurp(path, &bytes);
        assert_non_null(text);
        assert_string_equal(text, status == ST_OK ? "new contents" : "previous");
        if (status != ST_OK) assert_non_null(strstr(st_last_error(), "previous file is untouched"));
        free(text);
    }
    assert_true(count_files(folder) >= 1);
}

enum { WRITERS = 4, REMOVALS = 50000 };

static void *remove_often(void *path) {
    for (int i = 0; i < REMOVALS; i++)
        if (st_remove_file(path) != ST_OK) return path;
    return NULL;
}

/* The count of changes belongs to the process: threads save at the same time. */
static void changes_of_all_threads_count(void **state) {
    (void)state;
    pthread_t threads[WRITERS];
    const char *path = scratch("none");
    st_file_fail_after(INT64_MAX);
    for (int t = 0; t < WRITERS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, remove_often, (void *)(uintptr_t)path),
                         0);
    for (int t = 0; t < WRITERS; t++) {
        void *failed;
        pthread_join(threads[t], &failed);
        assert_null(failed);
    }
    int64_t changes = st_file_changes();
    st_file_fail_after(-1);
    assert_int_equal(changes, WRITERS * REMOVALS);
}

/* The real limit of the system in a child process, first reported as an error, then as a kill. */
static void file_size_limit(void **state) {
    (void)state;
    const char *path = scratch("limited");
    assert_ok(st_file_write(path, "previous", 8));
    for (int killed = 0; killed < 2; killed++) {
        pid_t child = fork();
        if (child == 0) {
            struct rlimit limit = {100000, 100000};
            signal(SIGXFSZ, killed ? SIG_DFL : SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &limit);
            uint8_t *data = calloc(1, 300000);
            st_status_t status = st_file_write(path, data, 300000);
            _exit(status == ST_IO && strstr(st_last_error(), "too large") != NULL ? 7 : 8);
        }
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        if (killed)
            assert_true(WIFSIGNALED(result));
        else
            assert_int_equal(WEXITSTATUS(result), 7);
        size_t bytes;
        char *text = (char *)slurp(path, &bytes);
        assert_string_equal(text, "previous");
        free(text);
    }
}

static void links_replace(void **state) {
    (void)state;
    assert_ok(st_file_write(scratch("one"), "1", 1));
    assert_ok(st_file_write(scratch("two"), "2", 1));
    assert_ok(st_link_over(scratch("one"), scratch("link")));
    assert_ok(st_link_over(scratch("one"), scratch("link"))); /* already the same file */
    assert_ok(st_link_over(scratch("two"), scratch("link")));
    size_t bytes;
    char *text = (char *)slurp(scratch("link"), &bytes);
    assert_string_equal(text, "2");
    free(text);
    assert_ok(st_symlink_over("one", scratch("soft")));
    assert_ok(st_symlink_over("two", scratch("soft")));
    text = (char *)slurp(scratch("soft"), &bytes);
    assert_string_equal(text, "2");
    free(text);
    assert_fails(st_make_folder(scratch("one/x")), ST_IO, "a file of that name exists");
}

/* Held open for both: neither the writer nor the read waits for another end. */
static void pipe_gets(const char *path, const char *pipe, bool by_writer) {
    int end = open(pipe, O_RDWR | O_NONBLOCK);
    assert_true(end >= 0);
    if (by_writer) {
        st_writer_t *writer;
        assert_ok(st_writer_create(path, &writer));
        assert_ok(st_writer_append(writer, "by", 2));
        assert_ok(st_writer_append(writer, "tes", 3));
        assert_ok(st_writer_commit(writer));
    } else {
        assert_ok(st_file_write(path, "bytes", 5));
    }
    char got[16];
    assert_int_equal(read(end, got, sizeof got), 5);
    assert_memory_equal(got, "bytes", 5);
    close(end);
    struct stat info;
    assert_int_equal(lstat(pipe, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
}

static void pipes_are_written_and_stay(void **state) {
    (void)state;
    assert_ok(st_make_folder(scratch("pipes")));
    const char *pipe = scratch("pipes/pipe"), *link = scratch("pipes/link");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink("pipe", link), 0);
    for (int by_writer = 0; by_writer < 2; by_writer++) {
        pipe_gets(pipe, pipe, by_writer);
        pipe_gets(link, pipe, by_writer);
    }
    int end = open(pipe, O_RDWR | O_NONBLOCK);
    st_writer_t *writer;
    assert_ok(st_writer_create(pipe, &writer));
    st_writer_abandon(writer);
    close(end);
    assert_true(exists(pipe));
    assert_int_equal(count_files(scratch("pipes")), 2); /* no partial file is left */
    assert_fails(st_file_write(scratch("pipes"), "x", 1), ST_IO, "pipes': Is a directory");
}

static void holds(const char *path, const char *text) {
    size_t bytes;
    char *actual = (char *)slurp(path, &bytes);
    assert_non_null(actual);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(actual, text, bytes);
    free(actual);
}

static void links_are_followed_and_stay(void **state) {
    (void)state;
    assert_ok(st_make_folder(scratch("links/far")));
    const char *target = scratch("links/far/target"), *link = scratch("links/link");
    const char *chain = scratch("links/chain"), *loop = scratch("links/loop");
    assert_int_equal(symlink("far/target", link), 0);
    assert_int_equal(symlink(link, chain), 0);
    assert_int_equal(symlink("loop", loop), 0);
    assert_ok(st_file_write(link, "created", 7)); /* nothing was there */
    holds(target, "created");
    assert_ok(st_file_write(link, "replaced", 8));
    holds(target, "replaced");
    st_writer_t *writer;
    assert_ok(st_writer_create(chain, &writer));
    assert_ok(st_writer_append(writer, "streamed", 8));
    holds(target, "replaced");
    assert_ok(st_writer_commit(writer));
    holds(target, "streamed");
    assert_fails(st_file_write(loop, "x", 1), ST_IO, "links/loop");
    struct stat info;
    const char *links[] = {link, chain, loop};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lstat(links[i], &info), 0);
        assert_true(S_ISLNK(info.st_mode));
    }
    assert_int_equal(count_files(scratch("links")), 4);
    assert_int_equal(count_files(scratch("links/far")), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(large_appends_keep_their_order),
        cmocka_unit_test(empty_and_special_files),
        cmocka_unit_test(full_disk_keeps_the_previous_file),
        cmocka_unit_test(changes_of_all_threads_count),
        cmocka_unit_test(file_size_limit),
        cmocka_unit_test(links_replace),
        cmocka_unit_test(pipes_are_written_and_stay),
        cmocka_unit_test(links_are_followed_and_stay),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

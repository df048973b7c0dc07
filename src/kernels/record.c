/* Entries lie in a vector and are searched from the front: a model has some dozens of them. A line
 * is one write to a file that is open for appending, which the system does not mix with others'. */
#include "kernels/record.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/vec.h"

static const double DEFAULT_SECONDS = 5;
enum { LINE_BYTES = 320, KEY_DIGITS = 16, CHOICE_DIGITS = 2 * RECORD_CHOICE_BYTES };

struct record {
    char *path;
    uint64_t identity;
    ST_VEC(record_entry_t) entries;
};

/* ---- a line: key choice ways us first_us check ---- */

static void print_line(const record_t *record, const record_entry_t *e, char line[LINE_BYTES]) {
    int n = snprintf(line, LINE_BYTES, "%016llx ", (unsigned long long)e->key);
    for (int i = 0; i < RECORD_CHOICE_BYTES; i++)
        n += snprintf(line + n, (size_t)(LINE_BYTES - n), "%02x", e->choice.bytes[i]);
    n += snprintf(line + n, (size_t)(LINE_BYTES - n), " %u %.3f %.3f ", e->n_ways, e->us,
                  e->first_us);
    uint64_t check = st_hash64(line, (size_t)n, record->identity);
    snprintf(line + n, (size_t)(LINE_BYTES - n), "%016llx\n", (unsigned long long)check);
}

static bool hex_digits(const char *text, size_t n) {
    return strspn(text, "0123456789abcdef") >= n;
}

static bool parse_line(const record_t *record, const char *line, size_t bytes,
                       record_entry_t *out) {
    char copy[LINE_BYTES];
    if (bytes >= sizeof copy || bytes < KEY_DIGITS + 1 + CHOICE_DIGITS + 1 + KEY_DIGITS)
        return false;
    memcpy(copy, line, bytes);
    copy[bytes] = '\0';
    const char *check = copy + bytes - KEY_DIGITS, *choice = copy + KEY_DIGITS + 1;
    *out = (record_entry_t){0};
    if (!hex_digits(check, KEY_DIGITS) || !hex_digits(copy, KEY_DIGITS) ||
        !hex_digits(choice, CHOICE_DIGITS) ||
        strtoull(check, NULL, 16) != st_hash64(copy, (size_t)(check - copy), record->identity))
        return false;
    out->key = strtoull(copy, NULL, 16);
    for (int i = 0; i < RECORD_CHOICE_BYTES; i++) {
        const char pair[3] = {choice[2 * i], choice[2 * i + 1], '\0'};
        out->choice.bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return sscanf(choice + CHOICE_DIGITS, "%u %lf %lf", &out->n_ways, &out->us, &out->first_us) ==
           3;
}

/* ---- life ---- */

static st_status_t read_file(record_t *record) {
    st_file_t file;
    st_status_t status = st_file_open(record->path, &file);
    if (status == ST_NOT_FOUND) {
        st_clear_error();
        return ST_OK;
    }
    TRY(status);
    const char *at = (const char *)file.data, *end = at + file.bytes;
    while (at < end && status == ST_OK) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        record_entry_t entry;
        if (parse_line(record, at, (size_t)(stop - at), &entry) && !record_find(record, entry.key))
            status = ST_VEC_PUSH(&record->entries, entry);
        at = stop + (stop < end);
    }
    st_file_close(&file);
    return status;
}

st_status_t record_open(const char *path, const char *identity, record_t **out) {
    *out = NULL;
    record_t *record = st_calloc(1, sizeof *record);
    if (!record) return st_no_memory(sizeof *record, "a tuning record");
    record->identity = st_hash_string(identity);
    record->path = st_strdup(path);
    st_status_t status =
        record->path ? read_file(record) : st_no_memory(strlen(path), "a tuning record");
    if (status != ST_OK) {
        record_close(record);
        return status;
    }
    *out = record;
    return ST_OK;
}

void record_close(record_t *record) {
    if (!record) return;
    ST_VEC_FREE(&record->entries);
    st_free(record->path);
    st_free(record);
}

const record_entry_t *record_find(const record_t *record, uint64_t key) {
    for (size_t i = 0; i < record->entries.n; i++)
        if (record->entries.data[i].key == key) return &record->entries.data[i];
    return NULL;
}

size_t record_count(const record_t *record) {
    return record->entries.n;
}

/* A line of its own also after a torn one: an empty line is no entry. */
static st_status_t append_line(const record_t *record, const record_entry_t *entry) {
    char line[LINE_BYTES + 1] = "\n";
    print_line(record, entry, line + 1);
    int file = open(record->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return FAIL(ST_IO, "cannot open '%s': %s", record->path, strerror(errno));
    ssize_t written = write(file, line, strlen(line));
    bool closed = close(file) == 0;
    if (written == (ssize_t)strlen(line) && closed) return ST_OK;
    return FAIL(ST_IO, "cannot write '%s': %s", record->path, strerror(errno));
}

st_status_t record_add(record_t *record, const record_entry_t *entry) {
    if (record_find(record, entry->key)) return ST_OK;
    TRY(append_line(record, entry));
    return ST_VEC_PUSH(&record->entries, *entry);
}

st_status_t record_text(const record_t *record, char **out_text) {
    char line[LINE_BYTES];
    size_t used = 0, capacity = record->entries.n * LINE_BYTES + 1;
    char *text = *out_text = st_malloc(capacity);
    if (!text) return st_no_memory(capacity, "a tuning record");
    text[0] = '\0';
    for (size_t i = 0; i < record->entries.n; i++) {
        print_line(record, &record->entries.data[i], line);
        used += (size_t)snprintf(text + used, capacity - used, "%s", line);
    }
    return ST_OK;
}

st_status_t record_take(record_t *record, const char *text) {
    for (size_t bytes; *text; text += bytes + (text[bytes] != '\0')) {
        record_entry_t entry;
        size_t i = 0;
        bytes = strcspn(text, "\n");
        if (!parse_line(record, text, bytes, &entry))
            return FAIL(
                ST_RANKS_DISAGREE,
                "the rank that chose algorithms has another kind of device, or another driver: "
                "with option tune=off no rank chooses");
        while (i < record->entries.n && record->entries.data[i].key != entry.key) i++;
        if (i < record->entries.n)
            record->entries.data[i] = entry;
        else
            TRY(ST_VEC_PUSH(&record->entries, entry));
    }
    return ST_OK;
}

st_status_t record_budget(const char *text, double *out_seconds) {
    *out_seconds = DEFAULT_SECONDS;
    if (strcmp(text, "on") == 0) return ST_OK;
    if (strcmp(text, "off") == 0) {
        *out_seconds = -1;
        return ST_OK;
    }
    if (st_double_parse(text, strlen(text), out_seconds) && isfinite(*out_seconds) &&
        *out_seconds >= 0)
        return ST_OK;
    return FAIL(ST_INVALID, "option 'tune' is '%s', expected on, off or seconds, 0 or more", text);
}

uint64_t record_hash_add(uint64_t hash, uint64_t key, const record_choice_t *choice) {
    return hash + st_hash64(choice->bytes, sizeof choice->bytes, key);
}

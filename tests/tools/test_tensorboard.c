/* Event files of training, read by a parser of this test's own: framing, checksums, and that the
 * scalars are those of the log. */
#include <json.h>
#include <math.h>

#include "support/scratch.h"
#include "tools/command.h"

/* ---- reading ---- */

/* Checksum by table, from the polynomial's normal form: another way than the writer's. */
static uint32_t reflect(uint32_t value, int bits) {
    uint32_t out = 0;
    for (int i = 0; i < bits; i++)
        if (value >> i & 1) out |= 1u << (bits - 1 - i);
    return out;
}
static uint32_t crc32c(const uint8_t *data, size_t n) {
    static uint32_t table[256];
    uint32_t crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256 && !table[255]; i++) {
        uint32_t rest = i << 24;
        for (int bit = 0; bit < 8; bit++) rest = rest << 1 ^ (rest >> 31 ? 0x1edc6f41u : 0);
        table[i] = rest;
    }
    for (size_t i = 0; i < n; i++) crc = crc << 8 ^ table[crc >> 24 ^ reflect(data[i], 8)];
    return reflect(crc, 32) ^ 0xffffffffu;
}

/* RFC 3720, B.4, and the check value of the catalogue. */
static void the_tests_own_checksum_is_right(void **state) {
    (void)state;
    uint8_t zeros[32] = {0}, rising[32];
    for (int i = 0; i < 32; i++) rising[i] = (uint8_t)i;
    assert_int_equal(crc32c((const uint8_t *)"123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c(zeros, 32), 0x8a9136aau);
    assert_int_equal(crc32c(rising, 32), 0x46dd794eu);
}

typedef struct reader {
    const uint8_t *at, *end;
} reader_t;

static uint64_t fixed(reader_t *r, int n) {
    uint64_t value = 0;
    assert_true(r->end - r->at >= n);
    for (int i = n; i-- > 0;) value = value << 8 | r->at[i];
    r->at += n;
    return value;
}
static uint64_t varint(reader_t *r) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint64_t byte = fixed(r, 1);
        assert_true(shift < 64);
        value |= (byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
}
static reader_t part(reader_t *r) {
    uint64_t n = varint(r);
    assert_true((uint64_t)(r->end - r->at) >= n);
    reader_t inner = {r->at, r->at + n};
    r->at += n;
    return inner;
}
static void check_sum(reader_t *r, const uint8_t *data, size_t n) {
    uint32_t crc = crc32c(data, n);
    assert_int_equal((uint32_t)fixed(r, 4), (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
}

typedef struct event {
    double time;
    int64_t step;
    char version[32], tag[64];
    float value;
} event_t;

static void text(reader_t inner, char *out, size_t capacity) {
    size_t n = (size_t)(inner.end - inner.at);
    assert_true(n < capacity);
    memcpy(out, inner.at, n);
    out[n] = '\0';
}

static void read_value(reader_t r, event_t *out) {
    while (r.at < r.end) {
        uint64_t key = varint(&r);
        if (key == (1 << 3 | 2)) {
            text(part(&r), out->tag, sizeof out->tag);
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            uint32_t bits = (uint32_t)fixed(&r, 4);
            memcpy(&out->value, &bits, sizeof bits);
        }
    }
}

static void read_event(reader_t r, event_t *out) {
    *out = (event_t){0};
    while (r.at < r.end) {
        uint64_t key = varint(&r), bits;
        switch (key) {
            case 1 << 3 | 1:
                bits = fixed(&r, 8);
                memcpy(&out->time, &bits, sizeof bits);
                break;
            case 2 << 3 | 0:
                out->step = (int64_t)varint(&r);
                break;
            case 3 << 3 | 2:
                text(part(&r), out->version, sizeof out->version);
                break;
            case 5 << 3 | 2: {
                reader_t summary = part(&r);
                assert_int_equal(varint(&summary), 1 << 3 | 2);
                read_value(part(&summary), out);
                assert_ptr_equal(summary.at, summary.end);
                break;
            }
            default:
                fail_msg("field %llu", (unsigned long long)key);
        }
    }
}

/* Of a file whose every record is whole; the caller frees it. */
static event_t *read_file(const char *path, size_t *out_n) {
    size_t bytes;
    uint8_t *data = slurp(path, &bytes);
    assert_non_null(data);
    event_t *events = calloc(bytes, sizeof *events);
    reader_t r = {data, data + bytes};
    *out_n = 0;
    while (r.at < r.end) {
        const uint8_t *head = r.at;
        uint64_t n = fixed(&r, 8);
        check_sum(&r, head, 8);
        assert_true((uint64_t)(r.end - r.at) >= n);
        reader_t inner = {r.at, r.at + n};
        r.at += n;
        check_sum(&r, inner.at, n);
        read_event(inner, &events[(*out_n)++]);
    }
    free(data);
    return events;
}

/* ---- what training writes ---- */

static char *only_file(const char *folder) {
    char command[600];
    snprintf(command, sizeof command, "ls '%s'/events.out.tfevents.*", folder);
    char *path = capture(command);
    assert_non_null(path);
    path[strcspn(path, "\n")] = '\0';
    return path;
}

static void scalars_are_those_of_the_log(void **state) {
    (void)state;
    const char *folder = "events", *log = "log.jsonl";
    must_run(
        "train g.stator --tokens-file text.tokens --optimizer adamw --clip 1 --threads 1 --steps 5 "
        "--log log.jsonl --tensorboard events");
    size_t n;
    char *path = only_file(folder);
    event_t *events = read_file(path, &n);
    assert_true(n > 1);
    assert_string_equal(events[0].version, "brain.Event:2");
    FILE *lines = fopen(log, "r");
    assert_non_null(lines);
    char line[1000];
    int steps = 0;
    static const char *const keys[][2] = {
        {"train/loss", "loss"}, {"train/grad_norm", "grad_norm"},
        {"train/lr", "lr"},     {"speed/step_ms", "step_ms"},
        {"speed/rate", "rate"}, {"speed/utilization", "utilization"}};
    while (fgets(line, sizeof line, lines)) {
        struct json_object *object = json_tokener_parse(line), *value;
        assert_non_null(object);
        assert_true(json_object_object_get_ex(object, "step", &value));
        int64_t step = json_object_get_int64(value);
        steps++;
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            size_t found = 0;
            assert_true(json_object_object_get_ex(object, keys[k][1], &value));
            double wanted = json_object_get_double(value);
            /* the log has three digits behind the point of times */
            double rounding = strcmp(keys[k][1], "step_ms") == 0 ? 6e-4 : 1e-30;
            for (size_t i = 1; i < n; i++) {
                if (events[i].step != step || strcmp(events[i].tag, keys[k][0]) != 0) continue;
                assert_true(fabs(events[i].value - wanted) <= 1e-6 * fabs(wanted) + rounding);
                found++;
            }
            assert_int_equal(found, 1);
        }
        json_object_put(object);
    }
    fclose(lines);
    assert_int_equal(steps, 5);
    for (size_t i = 1; i < n; i++) assert_true(events[i].time >= events[i - 1].time);
    free(events);
    free(path);
}

static void a_folder_that_cannot_be_written_ends_the_run_at_once(void **state) {
    (void)state;
    must_refuse("train g.stator --tokens-file text.tokens --steps 5 --tensorboard text.txt",
                "events into a file", "text.txt");
    must_refuse("train g.stator --tokens-file text.tokens --steps 5 --tensorboard no/where",
                "events into a folder of no folder", "no/where");
    assert_int_equal(n_findings, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tests_own_checksum_is_right),
        cmocka_unit_test(scalars_are_those_of_the_log),
        cmocka_unit_test(a_folder_that_cannot_be_written_ends_the_run_at_once),
    };
    return cmocka_run_group_tests(tests, command_make_files, command_remove_files);
}

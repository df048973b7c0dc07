/* See support/scratch.h. */
#include "support/scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static char scratch_folder[256];

int scratch_setup(void **state) {
    (void)state;
    const char *roots[] = {getenv("TMPDIR"), "/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        if (roots[i] == NULL || access(roots[i], W_OK) != 0) continue;
        snprintf(scratch_folder, sizeof scratch_folder, "%s/stator-state-XXXXXX", roots[i]);
        if (mkdtemp(scratch_folder) != NULL) return 0;
    }
    return -1;
}

int scratch_teardown(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_folder);
    return system(command);
}

const char *scratch(const char *name) {
    static char paths[64][600];
    static int next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_folder, name);
    return path;
}

uint8_t *slurp(const char *path, size_t *out_bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    uint8_t *data = malloc((size_t)bytes + 1);
    if (data == NULL || fread(data, 1, (size_t)bytes, file) != (size_t)bytes) {
        free(data);
        fclose(file);
        return NULL;
    }
    data[bytes] = 0;
    fclose(file);
    *out_bytes = (size_t)bytes;
    return data;
}

void spill(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

char *capture(const char *command) {
    FILE *pipe = popen(command, "r");
    if (pipe == NULL) return NULL;
    size_t capacity = 1 << 16, used = 0;
    char *text = malloc(capacity);
    while (text != NULL) {
        size_t got = fread(text + used, 1, capacity - used - 1, pipe);
        used += got;
        if (got == 0) break;
        if (capacity - used < 2) {
            char *larger = realloc(text, capacity *= 2);
            if (larger == NULL) free(text);
            text = larger;
        }
    }
    int result = pclose(pipe);
    if (text == NULL || result != 0) {
        free(text);
        return NULL;
    }
    text[used] = '\0';
    return text;
}

const char *shared_file(const char *name) {
    static char path[1024];
    const char *folder = getenv("STATOR_SHARED");
    snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : STATOR_SHARED_DIR, name);
    if (exists(path)) return path;
    print_message("skipped: '%s' is not there\n", path);
    return NULL;
}

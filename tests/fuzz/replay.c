/* Replays inputs through a fuzzer's entry without libFuzzer: each argument is a file or a folder of
 * files. A crash or a sanitizer's finding ends the program; nothing to replay is a failure too. An
 * input may take a second of processor time at most: readers must refuse, not grind. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_inputs;
static double slowest_s;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double limit_s = 20;
#else
static const double limit_s = 1;
#endif

/* Processor time: a slow reader, not a busy machine. */
static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int replay_file(const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    /* Exactly as large as the input, so that a read past its end is one past the block. */
    uint8_t *data = malloc(size ? size : 1);
    if (!file || !data || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        if (file) fclose(file);
        free(data);
        return 1;
    }
    fclose(file);
    double start = now_s();
    LLVMFuzzerTestOneInput(data, size);
    double seconds = now_s() - start;
    free(data);
    n_inputs++;
    if (seconds > slowest_s) slowest_s = seconds;
    if (seconds > limit_s) {
        fprintf(stderr, "%s: took %.2f s, more than %.0f s\n", path, seconds, limit_s);
        return 1;
    }
    return 0;
}

static int replay(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    if (!S_ISDIR(info.st_mode)) return replay_file(path, (size_t)info.st_size);
    DIR *folder = opendir(path);
    if (!folder) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char inner[4096];
        int length = snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        failed |= length < 0 || (size_t)length >= sizeof inner || replay(inner);
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= replay(argv[i]);
    printf("%lu inputs, slowest %.3f s\n", n_inputs, slowest_s);
    if (n_inputs == 0) {
        fprintf(stderr, "nothing to replay\n");
        return 1;
    }
    return failed;
}

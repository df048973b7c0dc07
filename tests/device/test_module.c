/* Where modules are looked for: this program runs itself, found through PATH, from a folder with a
 * planted module. */
#include <libgen.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/module.h"
#include "support/scratch.h"

static char own_path[2048], own_folder[2048], own_name[256];

/* The message of a module that does not open. */
static int probe(void) {
    void *symbol;
    if (dev_module_symbol("planted", "entry", &symbol) == ST_OK) return 1;
    return puts(st_last_error()) < 0;
}

static void found_through_path_not_in_the_current_folder(void **state) {
    (void)state;
    char command[6000], beside[2300];
    spill(scratch("libstator_planted.so"), "no library", 10);
    snprintf(command, sizeof command, "cd '%s' && PATH='%s':\"$PATH\" %s --probe", scratch(""),
             own_folder, own_name);
    char *said = capture(command);
    assert_non_null(said);
    snprintf(beside, sizeof beside, "open: %s/libstator_planted.so: cannot open", own_folder);
    assert_non_null(strstr(said, beside));
    snprintf(beside, sizeof beside, "; %s/../lib/libstator_planted.so: cannot open", own_folder);
    assert_non_null(strstr(said, beside));
    assert_null(strstr(said, " ./"));
    free(said);
}

static void found_beside_a_program_that_path_names(void **state) {
    (void)state;
    char command[6000];
    assert_int_equal(mkdir(scratch("install"), 0700), 0);
    spill(scratch("install/libstator_planted.so"), "no library", 10);
    snprintf(command, sizeof command,
             "cp '%s' '%s' && cd '%s' && PATH=install:\"$PATH\" %s --probe", own_path,
             scratch("install"), scratch(""), own_name);
    char *said = capture(command);
    assert_non_null(said);
    const char *beside = scratch("install/libstator_planted.so: ");
    const char *found = strstr(said, beside);
    assert_non_null(found);
    assert_int_not_equal(strncmp(found + strlen(beside), "cannot open", 11), 0); /* it was read */
    free(said);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--probe") == 0) return probe();
    char copy[2048];
    ssize_t bytes = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    if (bytes <= 0) return 1;
    snprintf(copy, sizeof copy, "%s", own_path);
    snprintf(own_folder, sizeof own_folder, "%s", dirname(copy));
    snprintf(own_name, sizeof own_name, "%s", strrchr(own_path, '/') + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_through_path_not_in_the_current_folder),
        cmocka_unit_test(found_beside_a_program_that_path_names),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}

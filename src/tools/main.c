/* The command line: table of commands, option parsing, help, exit codes. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tool.h"

static const tool_command_t commands[] = {
    {"model", 'm', "llama|resnet", "write the training graph of a standard model", 1, 1, false,
     tool_model},
    {"import", 'i', "FILE", "turn a .pt2 or ONNX model into a graph, or a text into token shards",
     1, 1, false, tool_import},
    {"info", 'n', "FILE", "say what is in a graph, plan or safetensors file", 1, 1, false,
     tool_info},
    {"compile", 'c', "GRAPH", "compile the training step (or --mode eval) into a plan", 1, 1, false,
     tool_compile},
    {"plan", 'p', "GRAPH|PLAN", "tell memory, kernels and time of the step, before it runs", 1, 1,
     false, tool_plan},
    {"trace", 'x', "GRAPH|PLAN", "write a timeline of the step, planned beside measured", 1, 1,
     true, tool_trace},
    {"run", 'r', "GRAPH|PLAN", "run the graph once", 1, 1, true, tool_run},
    {"train", 't', "GRAPH|PLAN", "train a model on tensors, tokens or images", 1, 1, true,
     tool_train},
    {"eval", 'e', "GRAPH", "evaluate on held-out data", 1, 1, true, tool_eval},
    {"bench", 'b', "[GRAPH|PLAN]", "time steps beside what is predicted, or measure the machine", 0,
     1, true, tool_bench},
    {"checkpoint", 'k', "check|gather DIR",
     "check a folder of checkpoints, or write its newest model to one file (-o)", 2, 2, false,
     tool_checkpoint},
    {"generate", 'g', "", "write text with a language model", 0, 0, false, tool_generate},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

enum {
    EXIT_FAILED = 1,
    EXIT_BAD_INPUT = 2,
    EXIT_DOES_NOT_FIT = 3,
    EXIT_PEER_LOST = 4,
    EXIT_RANKS_DISAGREE = 5,
    EXIT_INTERRUPTED = 130
};

static int exit_code(stator_status_t status) {
    switch (status) {
        case STATOR_OK:
            return 0;
        case STATOR_INVALID:
        case STATOR_PARSE:
        case STATOR_NOT_FOUND:
        case STATOR_UNSUPPORTED:
            return EXIT_BAD_INPUT;
        case STATOR_DOES_NOT_FIT:
            return EXIT_DOES_NOT_FIT;
        case STATOR_PEER_LOST:
            return EXIT_PEER_LOST;
        case STATOR_RANKS_DISAGREE:
            return EXIT_RANKS_DISAGREE;
        case STATOR_INTERRUPTED:
            return EXIT_INTERRUPTED;
        case STATOR_IN_PROGRESS:
        case STATOR_NO_MEMORY:
        case STATOR_IO:
        case STATOR_INTERNAL:
        case STATOR_NOT_FINITE:
        case STATOR_DEVICE:
            return EXIT_FAILED;
    }
    return EXIT_FAILED;
}

static void print_usage(FILE *to) {
    fprintf(to, "usage: stator COMMAND [FILE] [--option value] …\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-10s %-16s %s\n", commands[i].name, commands[i].arguments,
                commands[i].help);
    fprintf(to, "  %-10s %-16s %s\n", "launch", "-- COMMAND",
            "start a command as several ranks of this host");
    fprintf(to, "\n'stator COMMAND --help' lists the options of a command.\n");
}

/* 'trace' runs what 'bench' does and has its options; what bench has alone is under 'B'. */
static bool takes(const tool_command_t *command, const stator_option_info_t *option) {
    char other = command->letter == 'x' ? 'b' : command->letter == 'b' ? 'B' : command->letter;
    return strchr(option->commands, command->letter) || strchr(option->commands, other);
}

static void print_command_help(const tool_command_t *command) {
    printf("usage: stator %s %s [--option value] …\n\n%s\n\noptions:\n", command->name,
           command->arguments, command->help);
    stator_option_info_t info;
    for (size_t i = 0; stator_option_at(i, &info); i++) {
        if (!takes(command, &info)) continue;
        const bool is_output = strcmp(info.key, "output") == 0;
        printf("  --%-18s %s", is_output ? "output, -o" : info.key, info.help);
        if (strchr(info.kind, '|')) printf(" (%s)", info.kind);
        printf(info.fallback[0] ? " [%s]\n" : "\n", info.fallback);
    }
    printf("\nEach option can also be set by the environment variable STATOR_<OPTION>.\n");
}

/* Several processes act as one: only rank 0 prints results. */
static stator_status_t join_ranks(tool_t *tool) {
    TOOL_TRY(stator_comm_join(tool->options, &tool->comm));
    if (tool_leads(tool) || freopen("/dev/null", "w", stdout)) return STATOR_OK;
    return tool_fail(STATOR_IO, "standard output cannot be closed");
}

static const tool_command_t *find_command(const char *name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static bool option_info(const char *key, stator_option_info_t *out) {
    for (size_t i = 0; stator_option_at(i, out); i++)
        if (strcmp(out->key, key) == 0) return true;
    return false;
}

/* --key value, --key=value, --flag, -o value. */
static stator_status_t parse_option(tool_t *tool, const tool_command_t *command, int argc,
                                    char **argv, int *at) {
    char key[64];
    const char *argument = argv[*at], *value = strchr(argument, '=');
    if (strcmp(argument, "-o") == 0) argument = "--output", value = NULL;
    if (strncmp(argument, "--", 2) != 0)
        return tool_fail(STATOR_INVALID, "'%s' is no option; options begin with --", argument);
    size_t length = value ? (size_t)(value - argument) - 2 : strlen(argument + 2);
    snprintf(key, sizeof key, "%.*s", (int)(length < sizeof key ? length : sizeof key - 1),
             argument + 2);
    stator_option_info_t info;
    if (!option_info(key, &info)) return stator_options_set(tool->options, key, "");
    if (!takes(command, &info))
        return tool_fail(STATOR_INVALID, "'--%s' is not an option of '%s'; see 'stator %s --help'",
                         key, tool->command, tool->command);
    if (value)
        value++;
    else if (strcmp(info.kind, "BOOL") == 0)
        value = "true";
    else if (*at + 1 < argc)
        value = argv[++*at];
    else
        return tool_fail(STATOR_INVALID, "'--%s' needs a value", key);
    return stator_options_set(tool->options, key, value);
}

static stator_status_t parse(tool_t *tool, const tool_command_t *command, int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            TOOL_TRY(parse_option(tool, command, argc, argv, &i));
        else
            tool->files[tool->n_files++] = argv[i];
    }
    if (tool->n_files < command->min_files || tool->n_files > command->max_files)
        return tool_fail(STATOR_INVALID,
                         "'%s' takes %d argument%s (%s), %d given; see 'stator %s --help'",
                         command->name, command->max_files, command->max_files == 1 ? "" : "s",
                         command->arguments, tool->n_files, command->name);
    return STATOR_OK;
}

/* One line, whatever file contents the message quotes, and one write: lines of several processes at
 * one terminal, or in mpirun's hands, stay whole. */
static void print_line(const char *before, const char *message) {
    char line[4096];
    int n = snprintf(line, sizeof line - 1, "%s%s", before, message);
    if (n < 0) return;
    if ((size_t)n > sizeof line - 2) n = sizeof line - 2;
    for (int i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)line[i];
        if (byte < 0x20 || byte == 0x7f) line[i] = ' ';
    }
    line[n] = '\n';
    fwrite(line, 1, (size_t)n + 1, stderr); /* not buffered */
}

static const char *failure(void) {
    return tool_failure()[0] ? tool_failure() : stator_last_error();
}

void tool_tell(tool_t *tool) {
    if (!tool->told) print_line("stator: ", failure());
    tool->told = true;
}

/* Warnings of the library. Those from before the ranks have met wait, so that one process tells
 * them. */
typedef struct notes {
    const tool_t *tool;
    bool ready;
    char early[2048];
} notes_t;

static void take_note(void *context, stator_log_level_t level, const char *message) {
    notes_t *notes = context;
    if (level != STATOR_LOG_WARNING) return;
    if (notes->ready) {
        if (tool_leads(notes->tool)) print_line("note: ", message);
        return;
    }
    const size_t used = strlen(notes->early);
    snprintf(notes->early + used, sizeof notes->early - used, "%s\n", message);
}

static void tell_early_notes(notes_t *notes) {
    char *rest;
    notes->ready = true;
    if (!tool_leads(notes->tool)) return;
    for (char *at = strtok_r(notes->early, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest))
        print_line("note: ", at);
}

static bool wants_help(int argc, char **argv) {
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) {
        printf("stator %s%s%s\n", stator_version(), stator_libraries()[0] ? ", " : "",
               stator_libraries());
        return 0;
    }
    if (strcmp(name, "launch") == 0) return tool_launch(argc, argv);
    const tool_command_t *command = find_command(name);
    if (!command) {
        bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
        if (!help && name[0]) fprintf(stderr, "stator: there is no command '%s'\n", name);
        print_usage(help ? stdout : stderr);
        return help ? 0 : EXIT_BAD_INPUT;
    }
    if (wants_help(argc, argv)) {
        print_command_help(command);
        return 0;
    }
    tool_t tool = {.command = command->name, .files = calloc((size_t)argc, sizeof(char *))};
    notes_t notes = {.tool = &tool};
    stator_log_set(take_note, &notes, STATOR_LOG_WARNING);
    stator_status_t status = tool.files ? stator_options_create(&tool.options)
                                        : tool_fail(STATOR_NO_MEMORY, "no memory");
    if (status == STATOR_OK) status = parse(&tool, command, argc, argv);
    if (status == STATOR_OK && command->joins) status = join_ranks(&tool);
    tell_early_notes(&notes);
    if (status == STATOR_OK) status = command->run(&tool);
    if (status != STATOR_OK) { /* before the others hear of it */
        tool_tell(&tool);
        /* an interrupt is agreed on: all ranks end by themselves */
        if (status != STATOR_INTERRUPTED) stator_comm_abort(tool.comm, status, failure());
    }
    stator_log_set(NULL, NULL, STATOR_LOG_ERROR);
    stator_comm_destroy(tool.comm);
    stator_options_destroy(tool.options);
    free(tool.files);
    if (status == STATOR_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = tool_fail(STATOR_IO, "writing to standard output failed");
    if (status != STATOR_OK) tool_tell(&tool);
    return exit_code(status);
}

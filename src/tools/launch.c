/* stator launch: starts a command N times, once a rank, with the variables by which the ranks find
 * each other, and ends when all have ended.
 *
 *   rank r   its own process group; RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR,
 *            MASTER_PORT as torchrun sets them, and STATOR_TIMEOUT
 *            standard output and error come through pipes, line by line behind "[r] "
 *
 * A signal that asks to end, or one of the user's own, goes to all ranks. When a rank fails, the
 * others have 0.35 of the limit to notice by themselves, and then are killed, whole process
 * groups: stopped ones too. Ranks die with this process, however it ends. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/tool.h"

enum { MAX_RANKS = 1024, LINE_BYTES = 8192, PEER_LOST_CODE = 4, REST_MS = 100 };
static const double GRACE = 0.35; /* of the limit */

typedef struct stream {
    int fd; /* -1: at its end */
    FILE *to;
    size_t n;
    char line[LINE_BYTES];
} stream_t;

typedef struct child {
    pid_t pid;
    bool running;
    int code; /* exit code; 128 + signal where one ended it */
    stream_t streams[2];
    char last_error[512]; /* last line on standard error */
} child_t;

typedef struct launch {
    int n, port;
    double limit_s;
    char **command;
    child_t *children;
    int first;         /* rank whose failure is shown; -1: none */
    int64_t failed_ms; /* when the first failed */
    bool killed;
    int signals; /* signalfd */
} launch_t;

static int64_t now_ms(void) {
    return (int64_t)(tool_seconds() * 1e3);
}

/* ---- command line ---- */

static int usage(FILE *to) {
    fprintf(
        to,
        "usage: stator launch -n N [--timeout SECONDS] [--port PORT] -- COMMAND …\n\n"
        "Starts COMMAND N times on this host, one rank each; 'stator train' and 'stator run' "
        "under it\nshare the work.\n\n"
        "  -n N               number of ranks\n"
        "  --timeout SECONDS  within this time all ranks end after one is lost (5s, 500ms) [60]\n"
        "  --port PORT        where the ranks meet; default: a free one\n\n"
        "The exit code is that of the rank that failed first, 128 + the signal's number if one "
        "ended it.\n");
    return to == stdout ? 0 : 2;
}

static int complain(const char *text, const char *value) {
    fprintf(stderr, "stator: launch: %s%s%s%s; see 'stator launch --help'\n", text,
            value ? " '" : "", value ? value : "", value ? "'" : "");
    return 2;
}

/* "5", "5s", "500ms". */
static bool parse_seconds(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    if (end == text || !(*out > 0) || *out > 86400) return false;
    if (strcmp(end, "ms") == 0) *out *= 1e-3;
    return !*end || strcmp(end, "s") == 0 || strcmp(end, "ms") == 0;
}

static bool parse_number(const char *text, int low, int high, int *out) {
    char *end;
    long value = strtol(text, &end, 10);
    *out = (int)value;
    return end != text && !*end && value >= low && value <= high;
}

/* 0, or the exit code after a complaint; −1: help was shown. */
static int parse(launch_t *l, int argc, char **argv) {
    int i = 2;
    for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
        const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(key, "--help") == 0 || strcmp(key, "-h") == 0) return usage(stdout), -1;
        bool ranks = strcmp(key, "-n") == 0, port = strcmp(key, "--port") == 0;
        bool timeout = strcmp(key, "--timeout") == 0;
        if (!ranks && !port && !timeout) return complain("there is no option", key);
        if (!value || strcmp(value, "--") == 0) return complain("a value is missing after", key);
        if (ranks && !parse_number(value, 1, MAX_RANKS, &l->n))
            return complain("-n is a number from 1 to 1024, not", value);
        if (port && !parse_number(value, 1, 65535, &l->port))
            return complain("--port is a number from 1 to 65535, not", value);
        if (timeout && !parse_seconds(value, &l->limit_s))
            return complain("--timeout is a time like 5s or 500ms, not", value);
    }
    if (!l->n) return complain("-n says how many ranks to start, and is missing", NULL);
    if (i + 1 >= argc) return complain("after '--' the command is missing", NULL);
    l->command = argv + i + 1;
    return 0;
}

/* ---- starting ---- */

/* A port that is free now. */
static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = made >= 0 && bind(made, (struct sockaddr *)&at, sizeof at) == 0 &&
              getsockname(made, (struct sockaddr *)&at, &bytes) == 0;
    if (made >= 0) close(made);
    return ok ? ntohs(at.sin_port) : 29500;
}

static void set_number(const char *name, long long value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    setenv(name, text, 1);
}

/* In the child: never returns. */
static void run_child(const launch_t *l, int rank, pid_t parent, const int out[2],
                      const int err[2]) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it ended before that was set */
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", l->n);
    set_number("LOCAL_WORLD_SIZE", l->n);
    set_number("MASTER_PORT", l->port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    if (l->limit_s > 0) {
        char text[32];
        snprintf(text, sizeof text, "%g", l->limit_s);
        setenv("STATOR_TIMEOUT", text, 1);
    }
    execvp(l->command[0], l->command);
    fprintf(stderr, "stator: launch: '%s' does not start: %s\n", l->command[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static bool start_child(launch_t *l, int rank) {
    child_t *child = &l->children[rank];
    int out[2], err[2];
    pid_t parent = getpid();
    if (pipe2(out, O_CLOEXEC) != 0) return false;
    if (pipe2(err, O_CLOEXEC) != 0) {
        close(out[0]);
        close(out[1]);
        return false;
    }
    child->pid = fork();
    if (child->pid == 0) run_child(l, rank, parent, out, err);
    close(out[1]);
    close(err[1]);
    child->streams[0] = (stream_t){.fd = out[0], .to = stdout};
    child->streams[1] = (stream_t){.fd = err[0], .to = stderr};
    if (child->pid < 0) return false;
    setpgid(child->pid, child->pid); /* whichever of the two comes first */
    child->running = true;
    for (int s = 0; s < 2; s++) fcntl(child->streams[s].fd, F_SETFL, O_NONBLOCK);
    return true;
}

static void signal_all(launch_t *l, int signal) {
    for (int r = 0; r < l->n; r++)
        if (l->children[r].running) kill(-l->children[r].pid, signal);
}

/* ---- output ---- */

static void put_line(launch_t *l, int rank, stream_t *stream) {
    child_t *child = &l->children[rank];
    bool error = stream == &child->streams[1];
    if (l->n > 1) fprintf(stream->to, "[%d] ", rank);
    fwrite(stream->line, 1, stream->n, stream->to);
    if (!stream->n || stream->line[stream->n - 1] != '\n') fputc('\n', stream->to);
    fflush(stream->to);
    if (error)
        snprintf(child->last_error, sizeof child->last_error, "%.*s",
                 (int)strcspn(stream->line, "\n"), stream->line);
    stream->n = 0;
}

/* What is there, whole lines at once; a line without its end comes when the stream ends. */
static void read_stream(launch_t *l, int rank, stream_t *stream) {
    char chunk[4096];
    while (stream->fd >= 0) {
        ssize_t n = read(stream->fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        for (ssize_t i = 0; i < n; i++) {
            if (stream->n == sizeof stream->line - 1) put_line(l, rank, stream);
            stream->line[stream->n++] = chunk[i];
            stream->line[stream->n] = '\0';
            if (chunk[i] == '\n') put_line(l, rank, stream);
        }
        if (n > 0) continue;
        if (stream->n) put_line(l, rank, stream);
        close(stream->fd);
        stream->fd = -1;
    }
}

/* ---- ends ---- */

/* The first that failed, but a rank that only says that another is lost gives way to one with a
 * reason of its own. */
static void note_failure(launch_t *l, int rank) {
    int code = l->children[rank].code;
    if (code == 0 || l->killed) return;
    if (l->first < 0) l->failed_ms = now_ms();
    if (l->first < 0 || (l->children[l->first].code == PEER_LOST_CODE && code != PEER_LOST_CODE))
        l->first = rank;
}

static int reap(launch_t *l) {
    int n_running = 0;
    for (int r = 0; r < l->n; r++) {
        child_t *child = &l->children[r];
        int how;
        if (child->running && waitpid(child->pid, &how, WNOHANG) == child->pid) {
            child->running = false;
            child->code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
            for (int s = 0; s < 2; s++) read_stream(l, r, &child->streams[s]);
            kill(-child->pid, SIGKILL); /* what it left behind */
            note_failure(l, r);
        }
        n_running += child->running;
    }
    return n_running;
}

/* After a failure the rest has a part of the limit. */
static void enforce(launch_t *l) {
    double grace_s = GRACE * (l->limit_s > 0 ? l->limit_s : 60);
    if (l->first < 0 || l->killed || now_ms() - l->failed_ms < (int64_t)(grace_s * 1e3)) return;
    signal_all(l, SIGKILL);
    l->killed = true;
}

static void forward(launch_t *l) {
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) signal_all(l, (int)info.ssi_signo);
}

static void watch(launch_t *l) {
    struct pollfd *waits = calloc(2 * (size_t)l->n + 1, sizeof *waits);
    for (int n_running = l->n; n_running;) {
        for (int i = 0; waits && i < 2 * l->n; i++)
            waits[i] = (struct pollfd){l->children[i / 2].streams[i % 2].fd, POLLIN, 0};
        if (waits) waits[2 * l->n] = (struct pollfd){l->signals, POLLIN, 0};
        poll(waits, waits ? 2 * (nfds_t)l->n + 1 : 0, REST_MS);
        for (int i = 0; i < 2 * l->n; i++)
            read_stream(l, i / 2, &l->children[i / 2].streams[i % 2]);
        forward(l);
        n_running = reap(l);
        enforce(l);
    }
    free(waits);
}

static int report(const launch_t *l) {
    if (l->first < 0) return 0;
    const child_t *child = &l->children[l->first];
    if (child->code > 128)
        fprintf(stderr, "stator: launch: rank %d (pid %d) failed first: ended by signal %d (%s)\n",
                l->first, (int)child->pid, child->code - 128, strsignal(child->code - 128));
    else
        fprintf(stderr, "stator: launch: rank %d (pid %d) failed first: exit code %d%s%s\n",
                l->first, (int)child->pid, child->code, child->last_error[0] ? ": " : "",
                child->last_error);
    return child->code;
}

static bool block_signals(launch_t *l) {
    static const int wanted[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) sigaddset(&set, wanted[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    l->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return l->signals >= 0;
}

int tool_launch(int argc, char **argv) {
    launch_t l = {.first = -1};
    int code = parse(&l, argc, argv);
    if (code) return code < 0 ? 0 : code;
    if (!l.port) l.port = free_port();
    l.children = calloc((size_t)l.n, sizeof *l.children);
    if (!l.children || !block_signals(&l)) {
        fprintf(stderr, "stator: launch: no memory, or no signal descriptor\n");
        free(l.children);
        return 1;
    }
    for (int r = 0; r < l.n; r++) l.children[r].streams[0].fd = l.children[r].streams[1].fd = -1;
    for (int r = 0; r < l.n && !code; r++)
        if (!start_child(&l, r)) {
            fprintf(stderr, "stator: launch: rank %d does not start: %s\n", r, strerror(errno));
            signal_all(&l, SIGKILL);
            l.killed = true;
            code = 1;
        }
    watch(&l);
    if (!code) code = report(&l);
    free(l.children);
    return code;
}

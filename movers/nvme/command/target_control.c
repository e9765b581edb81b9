/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target add|remove|status`: speaks to a target that serves (server/control.h). */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "nvme/command/command.h"
#include "nvme/command/host_commands.h"
#include "nvme/command/secret.h"
#include "nvme/target/server/control.h"

enum { KEY_CONTROL = 256, KEY_PID, KEY_SECRET, KEY_CTRL_SECRET, PATIENCE_S = 10 };

struct control_args {
    const char *command, *path, *pid;
    bool is_json;
    json_t *request, *namespaces, *hosts, *listen, *secrets;
};

static const struct argp_option change_options[] = {
    {"namespace", 'n', "BACKEND", 0, "add: one as 'target' takes it; remove: its number", 1},
    {"listen", 'l', "ADDR[:PORT]", 0, "Address to listen at, port 4420 by default", 1},
    {"allow", 'A', "HOSTNQN", 0,
     "A host; from the first one on, others are not let in. All three may be repeated", 1},
    {"dhchap-secret", KEY_SECRET, "HOSTNQN=SECRET", 0,
     "add: a host, if it proves that it knows the secret, which is DHHC-1:... or @FILE", 1},
    {"dhchap-ctrl-secret", KEY_CTRL_SECRET, "HOSTNQN=SECRET", 0,
     "add: what the target proves to that host, if the host asks for it", 1},
    {"subsysnqn", 'N', "NQN", 0,
     "The subsystem (default: the only one). add: makes it if there is none; remove: alone, the "
     "subsystem itself",
     1},
    {0},
};

static const struct argp_option status_options[] = {
    {"output-format", 'o', "FORMAT", 0, "normal or json", 1},
    {0},
};

static const struct argp_option which_options[] = {
    {"pid", KEY_PID, "PID", 0, "The target, if there are several", 2},
    {"control", KEY_CONTROL, "PATH", 0, "Its socket, as it was told by --control", 2},
    {0},
};

static void target_control_take_secret(struct argp_state *state, const char *text,
                                       bool of_controller)
{
    const struct control_args *args = state->input;
    char nqn[NVF_NQN_MAX + 1], secret[NVF_SECRET_TEXT_MAX];
    const char *wrong = strcmp(args->command, "add") != 0 ? "remove the host: --allow HOSTNQN"
                                                          : nv_secret_split(text, nqn, secret);
    if (wrong)
        argp_error(state, "the secret of '%.*s': %s", (int)strcspn(text, "="), text, wrong);
    json_array_append_new(args->secrets, json_pack("{s:s, s:s, s:b}", "host", nqn, "secret", secret,
                                                   "of_controller", (int)of_controller));
    explicit_bzero(secret, sizeof(secret));
}

static error_t parse_control(int key, char *text, struct argp_state *state)
{
    struct control_args *args = state->input;
    switch (key) {
    case 'n':
        json_array_append_new(args->namespaces, json_string(text));
        return 0;
    case 'l':
        json_array_append_new(args->listen, json_string(text));
        return 0;
    case 'A':
        json_array_append_new(args->hosts, json_string(text));
        return 0;
    case KEY_SECRET:
    case KEY_CTRL_SECRET:
        target_control_take_secret(state, text, key == KEY_CTRL_SECRET);
        return 0;
    case 'N':
        json_object_set_new(args->request, "subsysnqn", json_string(text));
        return 0;
    case 'o':
        args->is_json = !strcmp(text, "json");
        if (!args->is_json && strcmp(text, "normal") != 0)
            argp_error(state, "--output-format is normal or json, not '%s'", text);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "what is '%s'?", text);
        return 0;
    case ARGP_KEY_END:
        if (strcmp(args->command, "status") != 0 && !json_array_size(args->namespaces) &&
            !json_array_size(args->hosts) && !json_array_size(args->listen) &&
            !json_array_size(args->secrets) && !json_object_get(args->request, "subsysnqn"))
            argp_error(state, "%s what? say e.g. --namespace, --listen, --allow or --subsysnqn",
                       args->command);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_which(int key, char *text, struct argp_state *state)
{
    struct control_args *args = state->input;
    switch (key) {
    case KEY_CONTROL:
        args->path = text;
        return 0;
    case KEY_PID:
        args->pid = text;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t target_control_parse_status(int key, char *text, struct argp_state *state)
{
    return key == ARGP_KEY_INIT ? (state->child_inputs[0] = state->input, 0)
                                : parse_control(key, text, state);
}

/* ---- which target ---- */

/* -1: nobody listens there. */
static int connect_to(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path); /* it fits: its callers have looked */
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&at, sizeof(at)))
        return fd;
    const int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return -1;
}

/* The target runs as this user or as root. Root may speak to any user's target. */
static bool is_trusted(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
           (peer.uid == geteuid() || peer.uid == 0 || geteuid() == 0);
}

/* The sockets of targets that live, in that folder; those of others are removed. */
static int nvme_find_target(const char *folder, char found[NVR_PATH_MAX], int *count)
{
    int fd = -1;
    *count = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[NVR_PATH_MAX];
        const int len = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (*entry->d_name == '.' || len >= NVR_PATH_MAX)
            continue;
        const int one = connect_to(path);
        if (one < 0) {
            if (errno == ECONNREFUSED)
                unlink(path); /* of a target that was killed */
            continue;
        }
        if (fd >= 0)
            close(fd);
        fd = one;
        ++*count;
        strcpy(found, path);
    }
    closedir(dir);
    return fd;
}

/* Fills in the socket's path, or only the folder. False: it has printed why not. */
static bool choose_socket(const struct control_args *args, char folder[NVR_FOLDER_MAX],
                          char path[NVR_PATH_MAX])
{
    char error[512];
    bool is_good = args->path || nvr_control_folder(folder, error, sizeof(error));
    if (is_good && !args->path && !access(folder, F_OK)) /* else nobody has it yet */
        is_good = nvr_control_folder_is_ours(folder, error, sizeof(error));
    if (is_good && args->path)
        is_good = nvr_control_path_fits(args->path, error, sizeof(error));
    if (!is_good)
        fprintf(stderr, "sidewire nvme target %s: %s\n", args->command, error);
    else if (args->path)
        strcpy(path, args->path);
    else if (args->pid)
        snprintf(path, NVR_PATH_MAX, "%s/%.10s.sock", folder, args->pid);
    return is_good;
}

static int reach_target(const struct control_args *args)
{
    char path[NVR_PATH_MAX] = "", folder[NVR_FOLDER_MAX] = "";
    int count = 1;
    if (!choose_socket(args, folder, path))
        return -1;
    int fd = *path ? connect_to(path) : nvme_find_target(folder, path, &count);
    if (fd < 0 && *path)
        fprintf(stderr, "sidewire nvme target %s: %s: %s; is the target running?\n", args->command,
                path, strerror(errno));
    else if (fd < 0)
        fprintf(stderr,
                "sidewire nvme target %s: no target of this user runs; 'sidewire nvme target "
                "--namespace ram:64M' starts one, --control PATH reaches another\n",
                args->command);
    else if (count > 1)
        fprintf(stderr,
                "sidewire nvme target %s: %d targets run; say --pid, %s/ has them by number\n",
                args->command, count, folder);
    else if (is_trusted(fd))
        return fd;
    else
        fprintf(stderr, "sidewire nvme target %s: %s is of another user, who is told nothing\n",
                args->command, path);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- asking ---- */

/* The answer, and the descriptor that came with it or -1. NULL: there was none. */
static json_t *ask_target(int socket, const json_t *request, int *fd)
{
    static char message[NVR_MESSAGE_MAX];
    char *text = json_dumps(request, JSON_COMPACT);
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {message, sizeof(message)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof(control)};
    *fd = -1;
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const bool is_sent = text && send(socket, text, strlen(text), MSG_NOSIGNAL) > 0;
    free(text);
    const ssize_t len = is_sent ? recvmsg(socket, &header, MSG_CMSG_CLOEXEC) : -1;
    if (len <= 0)
        return NULL;
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (rights && rights->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(rights), sizeof(*fd));
    return json_loadb(message, (size_t)len, 0, NULL);
}

/* ---- what is shown ---- */

static const char *target_control_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static long long target_control_number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void print_namespace(const json_t *ns)
{
    const char *error = target_control_text_of(ns, "disk_error");
    printf("  namespace %-4lld %-32s %lld x %lld  read %lld MiB, written %lld MiB%s%s\n",
           target_control_number_of(ns, "nsid"), target_control_text_of(ns, "backend"),
           target_control_number_of(ns, "blocks"), target_control_number_of(ns, "block_bytes"),
           target_control_number_of(ns, "read_bytes") >> 20,
           target_control_number_of(ns, "written_bytes") >> 20,
           *error ? "; its disk has failed a write: " : "", error);
}

static void print_subsystem(const json_t *subsystem)
{
    size_t i;
    const json_t *one;
    printf("\nsubsystem   %s\n", target_control_text_of(subsystem, "nqn"));
    if (json_is_true(json_object_get(subsystem, "allow_any_host")))
        puts("  hosts     any");
    json_array_foreach(json_object_get(subsystem, "hosts"), i, one)
        printf("  hosts     %s\n", json_string_value(one));
    json_array_foreach(json_object_get(subsystem, "namespaces"), i, one) print_namespace(one);
    json_array_foreach(json_object_get(subsystem, "controllers"), i, one) printf(
        "  connected %-4lld %s, %lld queues of %lld\n", target_control_number_of(one, "cntlid"),
        target_control_text_of(one, "hostnqn"), target_control_number_of(one, "io_queues"),
        /* "depth" of a target of the release before, which may still run */
        target_control_number_of(one, json_object_get(one, "queue_size") ? "queue_size" : "depth"));
}

static void print_threads(const json_t *threads)
{
    size_t i;
    const json_t *one;
    if (json_array_size(threads) < 2)
        return;
    printf("threads     %zu, with I/O queues:", json_array_size(threads));
    json_array_foreach(threads, i, one) printf(" %lld", target_control_number_of(one, "io_queues"));
    puts("");
}

static void target_control_print_status(const json_t *status)
{
    size_t i;
    const json_t *one;
    printf("target      process %lld: %lld commands, %lld errors; %lld connections, %lld refused, "
           "%lld "
           "ended\n",
           target_control_number_of(status, "pid"), target_control_number_of(status, "commands"),
           target_control_number_of(status, "errors"),
           target_control_number_of(status, "connected"),
           target_control_number_of(status, "refused"), target_control_number_of(status, "ended"));
    print_threads(json_object_get(status, "threads"));
    json_array_foreach(json_object_get(status, "ports"), i, one) printf(
        "port        %-4lld %s port %s%s\n", target_control_number_of(one, "portid"),
        target_control_text_of(one, "traddr"), target_control_text_of(one, "trsvcid"),
        json_is_false(json_object_get(one, "is_listening")) ? ", not listening: the address is away"
                                                            : "");
    json_array_foreach(json_object_get(status, "subsystems"), i, one) print_subsystem(one);
}

static int show_answer(const struct control_args *args, const json_t *answer, int fd)
{
    const bool is_good = json_is_true(json_object_get(answer, "ok"));
    const char *text = target_control_text_of(answer, "text");
    if (!is_good)
        fprintf(stderr, "sidewire nvme target %s: %s\n", args->command,
                *text ? text : "the target did not answer");
    else if (*text)
        puts(text);
    if (!is_good || fd < 0)
        return is_good ? NV_STATUS_OK : NV_STATUS_FAILED;
    lseek(fd, 0, SEEK_SET); /* the writer's place is the reader's, too */
    json_t *status = json_loadfd(fd, 0, NULL);
    if (args->is_json)
        return mover_print_json(status);
    target_control_print_status(status);
    json_decref(status);
    return NV_STATUS_OK;
}

bool nv_is_target_control(const char *word)
{
    return !strcmp(word, "add") || !strcmp(word, "remove") || !strcmp(word, "status");
}

int nv_target_control(int argc, char **argv)
{
    const struct argp which = {.options = which_options, .parser = parse_which};
    const struct argp_child children[] = {{&which, 0, NULL, 0}, {0}};
    const bool is_status = !strcmp(argv[0], "status");
    const struct argp argp = {
        .options = is_status ? status_options : change_options,
        .parser = target_control_parse_status,
        .children = children,
        .doc = is_status ? "Shows what a running target serves, and to whom."
                         : "Changes what a running target serves; hosts are told.\v"
                           "Examples:\n"
                           "  sidewire nvme target add --namespace file:/srv/more.img\n"
                           "  sidewire nvme target remove --namespace 2\n"};
    struct control_args args = {.command = argv[0], .request = json_object()};
    char name[64];
    json_object_set_new(args.request, "command", json_string(argv[0]));
    json_object_set_new(args.request, "namespaces", args.namespaces = json_array());
    json_object_set_new(args.request, "hosts", args.hosts = json_array());
    json_object_set_new(args.request, "listen", args.listen = json_array());
    json_object_set_new(args.request, "secrets", args.secrets = json_array());
    snprintf(name, sizeof(name), "sidewire nvme target %s", argv[0]);
    argv[0] = name;
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    const int socket = reach_target(&args);
    int fd = -1, status = NV_STATUS_FAILED;
    if (socket >= 0) {
        json_t *answer = ask_target(socket, args.request, &fd);
        status = show_answer(&args, answer, fd);
        json_decref(answer);
        close(socket);
    }
    if (fd >= 0)
        close(fd);
    json_decref(args.request);
    return status;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/ask.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/serve/control.h"

enum { PATIENCE_S = 10, STOP_PATIENCE_MS = 60000 };
enum { FOUND_SHOWN = 16, FOUND_TEXT = FOUND_SHOWN * 12 + 8 };

static void tell_asker(const struct mover_ask *ask, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void tell_asker(const struct mover_ask *ask, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "sidewire %s: ", ask->command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* ---- which server ---- */

/* -1: nobody listens there; with EAGAIN somebody does, who takes no one in: a server that is
 * stopped, and has as many before the door as it lets wait there. */
static int connect_to(const char *path)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", path); /* it fits: its callers have looked */
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) &&
        !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) &&
        !connect(fd, (struct sockaddr *)&at, sizeof(at)))
        return fd;
    const int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return -1;
}

/* The servers of a folder that live. */
struct ask_found {
    char path[MOVER_CONTROL_PATH_MAX]; /* of one of them */
    int pids[FOUND_SHOWN];             /* their sockets are named by these */
    int count;
};

static int compare_pids(const void *a, const void *b)
{
    const int one = *(const int *)a, other = *(const int *)b;
    return (one > other) - (one < other);
}

/* "12, 345", in order; of very many, some. */
static const char *list_pids(struct ask_found *found, char text[FOUND_TEXT])
{
    const int shown = found->count < FOUND_SHOWN ? found->count : FOUND_SHOWN;
    int used = 0;
    qsort(found->pids, (size_t)shown, sizeof(*found->pids), compare_pids);
    for (int i = 0; i < shown; i++)
        used += snprintf(text + used, (size_t)(FOUND_TEXT - used), "%s%d", i ? ", " : "",
                         found->pids[i]);
    snprintf(text + used, (size_t)(FOUND_TEXT - used), "%s", shown < found->count ? ", ..." : "");
    return text;
}

/* One of the servers that live, by their sockets in that folder; those of others are removed. */
static int ask_find_server(const char *folder, struct ask_found *found)
{
    int fd = -1;
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[MOVER_CONTROL_PATH_MAX];
        const int len = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (*entry->d_name == '.' || len >= MOVER_CONTROL_PATH_MAX)
            continue;
        const int one = connect_to(path);
        if (one < 0 && errno != EAGAIN) {
            if (errno == ECONNREFUSED)
                mover_control_remove(path);
            continue;
        }
        if (fd >= 0)
            close(fd);
        fd = one;
        if (found->count < FOUND_SHOWN)
            found->pids[found->count] = atoi(entry->d_name);
        found->count++;
        strcpy(found->path, path);
    }
    closedir(dir);
    errno = EAGAIN; /* where it is -1 and one was found */
    return fd;
}

/* Fills in the socket's path, or only the folder. False: it has said why not. */
static bool choose_socket(const struct mover_ask *ask, char folder[MOVER_CONTROL_FOLDER_MAX],
                          char path[MOVER_CONTROL_PATH_MAX])
{
    char error[512];
    bool is_good = ask->path || mover_control_folder(ask->mover, folder, error, sizeof(error));
    if (is_good && !ask->path && !access(folder, F_OK)) /* else nobody has it yet */
        is_good = mover_control_folder_is_ours(folder, error, sizeof(error));
    if (is_good && ask->path)
        is_good = mover_control_path_fits(ask->path, error, sizeof(error));
    if (!is_good)
        tell_asker(ask, "%s", error);
    else if (ask->path)
        strcpy(path, ask->path);
    else if (ask->pid)
        snprintf(path, MOVER_CONTROL_PATH_MAX, "%s/%.10s.sock", folder, ask->pid);
    return is_good;
}

/* -1: it was told why not. */
static int reach_server(const struct mover_ask *ask)
{
    char path[MOVER_CONTROL_PATH_MAX] = "", folder[MOVER_CONTROL_FOLDER_MAX] = "";
    char pids[FOUND_TEXT];
    struct ask_found found = {.count = 0};
    if (!choose_socket(ask, folder, path))
        return -1;
    const bool is_searched = !*path;
    int fd = is_searched ? ask_find_server(folder, &found) : connect_to(path);
    if (is_searched && found.count)
        strcpy(path, found.path);
    else if (is_searched) /* none of this user's own: perhaps that of the system */
        fd = connect_to(mover_control_system_path(ask->mover, path));
    if (is_searched && !found.count && fd < 0)
        *path = '\0';
    if (found.count > 1)
        tell_asker(ask, "%d %ss run, processes %s; say which by --pid", found.count, ask->noun,
                   list_pids(&found, pids));
    else if (fd < 0 && *path && errno == EAGAIN)
        tell_asker(ask, "%s: the %s is there, but does not answer", path, ask->noun);
    else if (fd < 0 && *path)
        tell_asker(ask, "%s: %s; is the %s running?", path, strerror(errno), ask->noun);
    else if (fd < 0)
        tell_asker(ask, "no %s of this user runs; '%s' starts one, --control PATH reaches another",
                   ask->noun, ask->start);
    else if (mover_control_is_trusted(fd, true))
        return fd;
    else
        tell_asker(ask, "%s is of another user, who is told nothing", path);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- asking ---- */

/* The answer, and the descriptor of a document that came with it, or -1. NULL: there was none. */
static json_t *send_request(int socket, const json_t *request, int *document_fd)
{
    static char message[MOVER_CONTROL_MESSAGE_MAX];
    char *text = json_dumps(request, JSON_COMPACT);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {message, sizeof(message)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof(control)};
    *document_fd = -1;
    const bool is_sent = text && send(socket, text, strlen(text), MSG_NOSIGNAL) > 0;
    free(text);
    const ssize_t len = is_sent ? recvmsg(socket, &header, MSG_CMSG_CLOEXEC) : -1;
    if (len <= 0)
        return NULL;
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (rights && rights->cmsg_type == SCM_RIGHTS)
        memcpy(document_fd, CMSG_DATA(rights), sizeof(*document_fd));
    return json_loadb(message, (size_t)len, 0, NULL);
}

/* The whole file, NUL-terminated. The writer's place is the reader's, too. */
static char *read_document(int fd)
{
    struct stat stat;
    const size_t bytes = !fstat(fd, &stat) && stat.st_size >= 0 ? (size_t)stat.st_size : 0;
    char *text = calloc(1, bytes + 1);
    if (text && pread(fd, text, bytes, 0) == (ssize_t)bytes)
        return text;
    free(text);
    return NULL;
}

static char *take_answer(const struct mover_ask *ask, const json_t *answer, int document_fd)
{
    const char *said = json_string_value(json_object_get(answer, "text"));
    char *text = NULL;
    if (!json_is_true(json_object_get(answer, "ok")))
        said &&*said ? tell_asker(ask, "%s", said)
                     : tell_asker(ask, "the %s did not answer", ask->noun);
    else if (!(text = document_fd >= 0 ? read_document(document_fd) : strdup(said ? said : "")))
        tell_asker(ask, "no memory");
    return text;
}

static char *ask_by(const struct mover_ask *ask, int socket, json_t *request)
{
    int document_fd;
    json_t *answer = send_request(socket, request, &document_fd);
    char *text = take_answer(ask, answer, document_fd);
    json_decref(answer);
    json_decref(request);
    if (document_fd >= 0)
        close(document_fd);
    return text;
}

char *mover_ask(const struct mover_ask *ask, json_t *request)
{
    const int socket = reach_server(ask);
    if (socket < 0) {
        json_decref(request);
        return NULL;
    }
    char *text = ask_by(ask, socket, request);
    close(socket);
    return text;
}

char *mover_ask_command(const struct mover_ask *ask, const char *command)
{
    return mover_ask(ask, json_pack("{s:s}", "command", command));
}

int mover_ask_stop(const struct mover_ask *ask)
{
    struct ucred server = {0};
    socklen_t bytes = sizeof(server);
    bool has_ended = false;
    const int socket = reach_server(ask);
    if (socket < 0)
        return -1;
    /* Before it is asked: later its number may be another one's. 0 is one of another container. */
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &server, &bytes);
    const int process = server.pid ? (int)syscall(SYS_pidfd_open, server.pid, 0) : -1;
    char *text = ask_by(ask, socket, json_pack("{s:s}", "command", "stop"));
    if (text && process < 0) {
        tell_asker(ask, "the %s was told to end, and its process cannot be seen from here",
                   ask->noun);
    } else if (text) {
        struct pollfd end = {.fd = process, .events = POLLIN};
        has_ended = poll(&end, 1, STOP_PATIENCE_MS) == 1;
        if (!has_ended)
            tell_asker(ask,
                       "the %s, process %d, was told to end and still waits for a disk or a "
                       "peer: 'kill -9 %d' ends it",
                       ask->noun, server.pid, server.pid);
    }
    free(text);
    close(socket);
    if (process >= 0)
        close(process);
    return has_ended ? server.pid : -1;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/serve/json_text.h"
#include "common/serve/notify.h"
#include "common/time/clock.h"

enum { PAUSE_MS = 100 };

void mover_order_say(struct mover_order *order, const char *line)
{
    const size_t at = strlen(order->text);
    snprintf(order->text + at, sizeof(order->text) - at, "%s%s", at ? "\n" : "", line);
}

/* ---- answers ---- */

/* The text is taken; NULL: there is none. -1: no memory. */
static int document_file(char *text)
{
    const int fd = text ? memfd_create("document", MFD_CLOEXEC) : -1;
    const size_t bytes = text ? strlen(text) : 0;
    const bool is_whole = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes;
    free(text);
    if (is_whole || fd < 0)
        return fd;
    close(fd);
    return -1;
}

/* A file without a name that has the status, or the metrics; -1: it cannot be made. */
static int make_document(const struct mover_control_setup *setup, bool is_status)
{
    json_t *status = setup->status(setup->context);
    char *text = NULL;
    if (status)
        text = is_status ? json_dumps(status, JSON_COMPACT)
                         : mover_metrics_text(setup->mover, setup->metrics, status);
    json_decref(status);
    return document_file(text);
}

static void answer_client(int socket, bool is_good, const char *text, int fd)
{
    json_t *json = json_pack("{s:b, s:o}", "ok", (int)is_good, "text", mover_json_text(text));
    char *message = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!message)
        return;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {message, strlen(message)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        header.msg_control = &control;
        header.msg_controllen = sizeof(control);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    }
    sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    free(message);
}

static const struct mover_control_command *
control_find_command(const struct mover_control_setup *setup, const char *name)
{
    const struct mover_control_command *command = setup->commands;
    while (command && command->name && strcmp(command->name, name) != 0)
        command++;
    return command && command->name ? command : NULL;
}

static void stop_server(struct mover_control *control)
{
    mover_notify_stopping();
    if (control->setup.stop)
        control->setup.stop(control->setup.context);
    else
        mover_loop_stop(control->loop);
}

static void carry_out_order(struct mover_control *control, int socket, const json_t *request)
{
    const struct mover_control_setup *setup = &control->setup;
    const char *name = json_string_value(json_object_get(request, "command"));
    const struct mover_control_command *command = name ? control_find_command(setup, name) : NULL;
    struct mover_order *order = calloc(1, sizeof(*order));
    bool is_good = false;
    int fd = -1;
    if (!order)
        return;
    order->context = setup->context;
    order->request = request;
    if (command) {
        is_good = command->carry_out(order);
    } else if (name && (!strcmp(name, "status") || (setup->metrics && !strcmp(name, "metrics")))) {
        fd = make_document(setup, !strcmp(name, "status"));
        is_good = fd >= 0;
        if (!is_good)
            mover_order_say(order, "the server has no memory or no descriptor left for that");
    } else if (name && !strcmp(name, "stop")) {
        is_good = true;
        stop_server(control);
    } else {
        mover_order_say(order, "this server knows no such command");
    }
    answer_client(socket, is_good, order->text, fd);
    if (fd >= 0)
        close(fd);
    free(order);
}

/* ---- who asks ---- */

static void client_leaves(struct mover_control_client *client)
{
    if (client->watch.fd < 0)
        return;
    mover_loop_unwatch(client->control->loop, &client->watch);
    close(client->watch.fd);
    client->watch.fd = -1;
}

static void control_read_request(struct mover_watch *watch)
{
    struct mover_control_client *client = watch->context;
    static char message[MOVER_CONTROL_MESSAGE_MAX]; /* the one thread's */
    const ssize_t len = recv(watch->fd, message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len > (ssize_t)sizeof(message)) {
        answer_client(watch->fd, false, "too long: say it in parts", -1);
    } else if (len > 0) {
        json_t *request = json_loadb(message, (size_t)len, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(request))
            carry_out_order(client->control, watch->fd, request);
        else
            answer_client(watch->fd, false, "not a JSON object", -1);
        json_decref(request);
    }
    client_leaves(client);
}

/* epoll tells of a waiting client again and again, and the server would do nothing else. */
static void pause_socket(struct mover_control *control)
{
    mover_loop_unwatch(control->loop, &control->watch);
    mover_loop_call_at(control->loop, &control->again, mover_now_ns() + PAUSE_MS * NS_PER_MS);
}

static void end_pause(struct mover_watch *watch)
{
    struct mover_control *control = watch->context;
    mover_loop_watch(control->loop, &control->watch);
}

static void take_client(struct mover_watch *watch)
{
    struct mover_control *control = watch->context;
    const int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        pause_socket(control);
    if (fd < 0)
        return;
    /* A client that has connected and says nothing makes room for the next. */
    struct mover_control_client *client =
        &control->clients[control->next_client++ % MOVER_CONTROL_CLIENTS_MAX];
    client_leaves(client);
    client->watch.fd = fd;
    if (!mover_control_is_trusted(fd, false) || mover_loop_watch(control->loop, &client->watch)) {
        close(fd);
        client->watch.fd = -1;
    }
}

/* ---- the socket ---- */

static int bind_at(int fd, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, strlen(path) + 1); /* it fits: choose_path() has looked */
    if (!connect(fd, (struct sockaddr *)&at, sizeof(at)) || errno == EAGAIN)
        return -EADDRINUSE;
    if (errno == ECONNREFUSED && !mover_control_remove(path))
        return -ENOTSOCK;
    const mode_t mask = umask(077);
    const int rc = bind(fd, (struct sockaddr *)&at, sizeof(at)) ? -errno : 0;
    umask(mask);
    return !rc && listen(fd, MOVER_CONTROL_CLIENTS_MAX) ? -errno : rc;
}

static int choose_path(struct mover_control *control, char *error, size_t error_bytes)
{
    char folder[MOVER_CONTROL_FOLDER_MAX];
    const char *path = control->setup.path;
    if (path && !mover_control_path_fits(path, error, error_bytes))
        return -ENAMETOOLONG;
    if (path) {
        strcpy(control->path, path);
        return 0;
    }
    if (!mover_control_folder(control->setup.mover, folder, error, error_bytes))
        return -ENAMETOOLONG;
    snprintf(control->path, sizeof(control->path), "%s/%d.sock", folder, (int)getpid());
    (void)mkdir(folder, 0700); /* why it is not there, is said by the next one */
    return mover_control_folder_is_ours(folder, error, error_bytes) ? 0 : -EPERM;
}

static int listen_at_path(struct mover_control *control)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int rc = fd < 0 ? -errno : bind_at(fd, control->path);
    control->watch.fd = fd;
    return rc ? rc : mover_loop_watch(control->loop, &control->watch);
}

int mover_control_open(struct mover_control *control, struct mover_loop *loop,
                       const struct mover_control_setup *setup, char *error, size_t error_bytes)
{
    *control = (struct mover_control){
        .setup = *setup,
        .loop = loop,
        .watch = {.fd = -1, .ready = take_client, .context = control},
        .again = {.fd = -1, .ready = end_pause, .context = control},
    };
    for (int i = 0; i < MOVER_CONTROL_CLIENTS_MAX; i++)
        control->clients[i] = (struct mover_control_client){
            .watch = {.fd = -1, .ready = control_read_request, .context = &control->clients[i]},
            .control = control};
    int rc = choose_path(control, error, error_bytes);
    if (rc)
        return rc;
    rc = listen_at_path(control);
    if (rc) {
        snprintf(error, error_bytes, "%s: %s%s", control->path, strerror(-rc),
                 rc == -EADDRINUSE ? "; another server has it"
                 : rc == -ENOTSOCK ? "; it stays as it is: take another path"
                                   : "");
        if (control->watch.fd >= 0)
            close(control->watch.fd);
        control->watch.fd = -1;
    }
    return rc;
}

void mover_control_close(struct mover_control *control)
{
    if (control->watch.fd < 0)
        return;
    for (int i = 0; i < MOVER_CONTROL_CLIENTS_MAX; i++)
        client_leaves(&control->clients[i]);
    mover_loop_unwatch(control->loop, &control->again);
    mover_loop_unwatch(control->loop, &control->watch);
    close(control->watch.fd);
    control->watch.fd = -1;
    unlink(control->path);
}

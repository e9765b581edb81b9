/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "nvme/target/server/status.h"
#include "nvme/target/server/thread.h"

enum { TEXT_BYTES = 16384, PAUSE_NS = 100 * 1000 * 1000 };

/* A request, while it is carried out. */
struct command {
    struct nvr_control *control;
    const json_t *request;
    char text[TEXT_BYTES]; /* what is said of it */
    struct nvt_config_editor editor;
    char nqn[NVF_NQN_MAX + 1];
};

static void append_line(struct command *command, const char *line)
{
    const size_t at = strlen(command->text);
    snprintf(command->text + at, sizeof(command->text) - at, "%s%s", at ? "\n" : "", line);
}

/* ---- adding and removing ---- */

/* Calls `edit` for each text of a list of the request. */
static int each_entry(struct command *command, const char *key,
                      int (*edit)(struct command *command, const char *text))
{
    const json_t *list = json_object_get(command->request, key);
    int status = 0;
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        status = text ? edit(command, text) : -EINVAL;
    }
    return status;
}

static int add_namespace(struct command *command, const char *text)
{
    uint32_t nsid;
    return nvt_config_add_namespace(&command->editor, command->nqn, text, &nsid);
}

static int remove_namespace(struct command *command, const char *text)
{
    char *end;
    const unsigned long nsid = strtoul(text, &end, 10);
    if (end == text || *end || !nsid || nsid > UINT32_MAX) {
        snprintf(command->editor.error, command->editor.error_bytes,
                 "'%.64s' is no number of a namespace; 'sidewire nvme target status' lists them",
                 text);
        return -EINVAL;
    }
    return nvt_config_remove_namespace(&command->editor, command->nqn, (uint32_t)nsid);
}

static int add_host(struct command *command, const char *text)
{
    return nvt_config_add_host(&command->editor, command->nqn, text);
}

static int remove_host(struct command *command, const char *text)
{
    return nvt_config_remove_host(&command->editor, command->nqn, text);
}

static int control_add_port(struct command *command, const char *text)
{
    return nvt_config_add_port(&command->editor, text, command->control->in_capsule_bytes);
}

static int control_remove_port(struct command *command, const char *text)
{
    return nvt_config_remove_port(&command->editor, text);
}

/* {"host": NQN, "secret": "DHHC-1:...", "of_controller": true or false} each. */
static int add_secrets(struct command *command)
{
    size_t i;
    const json_t *one;
    int status = 0;
    json_array_foreach(json_object_get(command->request, "secrets"), i, one)
    {
        const char *host = json_string_value(json_object_get(one, "host"));
        const char *secret = json_string_value(json_object_get(one, "secret"));
        if (!status)
            status = host && secret
                         ? nvt_config_admit(&command->editor, command->nqn, host, secret,
                                            json_is_true(json_object_get(one, "of_controller")))
                         : -EINVAL;
    }
    return status;
}

/* Which subsystem is meant: the one that is named, or the only one. */
static int choose_subsystem(struct command *command)
{
    const struct nvt_config *config = command->editor.config;
    const char *nqn = json_string_value(json_object_get(command->request, "subsysnqn"));
    if (!nqn && config->subsystem_count != 1) {
        snprintf(command->editor.error, command->editor.error_bytes,
                 "there are %zu subsystems; say which by --subsysnqn", config->subsystem_count);
        return -EINVAL;
    }
    if (nqn && strlen(nqn) > NVF_NQN_MAX) {
        snprintf(command->editor.error, command->editor.error_bytes,
                 "an NQN has at most %d characters, and '%.32s...' has %zu", NVF_NQN_MAX, nqn,
                 strlen(nqn));
        return -EINVAL;
    }
    snprintf(command->nqn, sizeof(command->nqn), "%s", nqn ? nqn : config->subsystems[0].nqn.text);
    return 0;
}

static size_t list_size(const struct command *command, const char *key)
{
    return json_array_size(json_object_get(command->request, key));
}

static int edit_to_add(struct command *command)
{
    const bool is_of_subsystem = json_object_get(command->request, "subsysnqn") ||
                                 list_size(command, "namespaces") || list_size(command, "hosts") ||
                                 list_size(command, "secrets");
    int status = is_of_subsystem ? choose_subsystem(command) : 0;
    if (!status && is_of_subsystem &&
        !nvt_config_find_subsystem(command->editor.config, command->nqn))
        status = nvt_config_add_subsystem(&command->editor, command->nqn);
    if (!status)
        status = each_entry(command, "namespaces", add_namespace);
    if (!status)
        status = each_entry(command, "hosts", add_host);
    if (!status)
        status = add_secrets(command);
    return status ? status : each_entry(command, "listen", control_add_port);
}

static int edit_to_remove(struct command *command)
{
    const bool has_lists = list_size(command, "namespaces") || list_size(command, "hosts"),
               has_ports = list_size(command, "listen");
    int status = has_lists || !has_ports ? choose_subsystem(command) : 0;
    if (!status && !has_lists && !has_ports) /* the subsystem itself, which must be named */
        status = json_object_get(command->request, "subsysnqn")
                     ? nvt_config_remove_subsystem(&command->editor, command->nqn)
                     : -EINVAL;
    if (!status)
        status = each_entry(command, "namespaces", remove_namespace);
    if (!status)
        status = each_entry(command, "hosts", remove_host);
    return status ? status : each_entry(command, "listen", control_remove_port);
}

static void say_to_client(void *context, bool is_bad, const char *line)
{
    (void)is_bad;
    append_line(context, line);
}

/* All of it, or nothing: what cannot be served is taken back. */
static bool apply_config(struct command *command, struct nvt_config *wanted)
{
    struct nvr_serving *serving = command->control->serving;
    const struct nvr_serving before = *serving;
    struct nvt_config *old = nvt_config_copy(serving->config);
    if (!old) {
        nvt_config_free(wanted);
        append_line(command, "no memory");
        return false;
    }
    serving->say = say_to_client;
    serving->context = command;
    const bool is_good = !nvr_serving_apply(serving, wanted);
    serving->say = before.say;
    serving->context = before.context;
    if (is_good)
        nvt_config_free(old);
    else
        nvr_serving_apply(serving, old);
    return is_good;
}

static bool change_config(struct command *command, int (*edit)(struct command *command))
{
    char error[1024] = "it cannot be read";
    command->editor =
        (struct nvt_config_editor){.config = nvt_config_copy(command->control->serving->config),
                                   .machine_id = command->control->machine_id,
                                   .error = error,
                                   .error_bytes = sizeof(error)};
    if (command->editor.config && !edit(command))
        return apply_config(command, command->editor.config);
    append_line(command, command->editor.config ? error : "no memory");
    nvt_config_free(command->editor.config);
    return false;
}

/* ---- messages ---- */

/* A file without a name that holds it; -1: it cannot be made. */
static int status_file(const struct nvr_control *control)
{
    json_t *status = nvr_status(control->serving);
    const int fd = status ? memfd_create("status", MFD_CLOEXEC) : -1;
    const bool is_whole = fd >= 0 && !json_dumpfd(status, fd, JSON_COMPACT);
    json_decref(status);
    if (is_whole)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void answer_client(int socket, bool is_good, const char *text, int fd)
{
    json_t *json = json_pack("{s:b, s:s}", "ok", (int)is_good, "text", text);
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

static void control_carry_out(struct nvr_control *control, int socket, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "command"));
    struct command *command = calloc(1, sizeof(*command));
    if (!command)
        return;
    *command = (struct command){.control = control, .request = request};
    bool is_good = false;
    int fd = -1;
    if (name && !strcmp(name, "add")) {
        is_good = change_config(command, edit_to_add);
    } else if (name && !strcmp(name, "remove")) {
        is_good = change_config(command, edit_to_remove);
    } else if (name && !strcmp(name, "status")) {
        fd = status_file(control);
        is_good = fd >= 0;
    } else {
        append_line(command, "this target knows no such command");
    }
    answer_client(socket, is_good, command->text, fd);
    if (fd >= 0)
        close(fd);
    free(command);
}

/* ---- who asks ---- */

static void client_leaves(struct nvr_client *client)
{
    if (client->watch.fd < 0)
        return;
    nvr_server_unwatch(client->control->serving->server, &client->watch);
    close(client->watch.fd);
    client->watch.fd = -1;
}

static void control_read_request(struct nvr_watch *watch)
{
    struct nvr_client *client = watch->context;
    static char message[NVR_MESSAGE_MAX];
    if (watch->fd < 0)
        return;
    const ssize_t len = recv(watch->fd, message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len > (ssize_t)sizeof(message)) {
        answer_client(watch->fd, false, "too long: say it in parts", -1);
    } else if (len > 0) {
        json_t *request = json_loadb(message, (size_t)len, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(request))
            control_carry_out(client->control, watch->fd, request);
        else
            answer_client(watch->fd, false, "not a JSON object", -1);
        json_decref(request);
    }
    client_leaves(client);
}

/* The file's mode says the same; it does not where a file system keeps no modes. */
static bool is_allowed(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/* epoll tells of a waiting client again and again, and the target would do nothing else. */
static void pause_socket(struct nvr_control *control)
{
    const struct itimerspec pause = {.it_value.tv_nsec = PAUSE_NS};
    nvr_server_unwatch(control->serving->server, &control->watch);
    timerfd_settime(control->again.fd, 0, &pause, NULL);
}

static void end_pause(struct nvr_watch *watch)
{
    struct nvr_control *control = watch->context;
    nvr_watch_drain(watch);
    nvr_server_watch(control->serving->server, &control->watch);
}

static void take_client(struct nvr_watch *watch)
{
    struct nvr_control *control = watch->context;
    const int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        pause_socket(control);
    if (fd < 0)
        return;
    /* A client that has connected and says nothing makes room for the next. */
    struct nvr_client *client = &control->clients[control->next_client++ % NVR_CLIENTS_MAX];
    client_leaves(client);
    client->watch.fd = fd;
    if (!is_allowed(fd) || nvr_server_watch(control->serving->server, &client->watch)) {
        close(fd);
        client->watch.fd = -1;
    }
}

/* ---- the socket ---- */

static int bind_at(int fd, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(at.sun_path))
        return -ENAMETOOLONG;
    memcpy(at.sun_path, path, strlen(path) + 1);
    if (!connect(fd, (struct sockaddr *)&at, sizeof(at)) || errno == EAGAIN)
        return -EADDRINUSE;
    if (errno == ECONNREFUSED) /* of a target that was killed */
        unlink(path);
    const mode_t mask = umask(077);
    const int rc = bind(fd, (struct sockaddr *)&at, sizeof(at)) ? -errno : 0;
    umask(mask);
    return !rc && listen(fd, NVR_CLIENTS_MAX) ? -errno : rc;
}

static int choose_path(struct nvr_control *control, const char *path, char *error,
                       size_t error_bytes)
{
    char folder[NVR_FOLDER_MAX];
    if (path && !nvr_control_path_fits(path, error, error_bytes))
        return -ENAMETOOLONG;
    if (path) {
        strcpy(control->path, path);
        return 0;
    }
    if (!nvr_control_folder(folder, error, error_bytes))
        return -ENAMETOOLONG;
    snprintf(control->path, sizeof(control->path), "%s/%d.sock", folder, (int)getpid());
    (void)mkdir(folder, 0700); /* why it is not there, is said by the next one */
    if (nvr_control_folder_is_ours(folder, error, error_bytes))
        return 0;
    return -EPERM;
}

static void close_both(struct nvr_control *control)
{
    if (control->watch.fd >= 0)
        close(control->watch.fd);
    if (control->again.fd >= 0)
        close(control->again.fd);
    control->watch.fd = control->again.fd = -1;
}

int nvr_control_open(struct nvr_control *control, struct nvr_serving *serving, const char *path,
                     char *error, size_t error_bytes)
{
    *control = (struct nvr_control){.serving = serving, .in_capsule_bytes = NVT_IN_CAPSULE_DEFAULT};
    control->watch.fd = control->again.fd = -1;
    for (int i = 0; i < NVR_CLIENTS_MAX; i++)
        control->clients[i] = (struct nvr_client){
            .watch = {.fd = -1, .ready = control_read_request, .context = &control->clients[i]},
            .control = control};
    int rc = choose_path(control, path, error, error_bytes);
    if (rc)
        return rc;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    rc = fd < 0 ? -errno : bind_at(fd, control->path);
    control->watch = (struct nvr_watch){.fd = fd, .ready = take_client, .context = control};
    control->again =
        (struct nvr_watch){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                           .ready = end_pause,
                           .context = control};
    if (!rc && control->again.fd < 0)
        rc = -errno;
    if (!rc)
        rc = nvr_server_watch(serving->server, &control->watch);
    if (!rc)
        rc = nvr_server_watch(serving->server, &control->again);
    if (rc) {
        snprintf(error, error_bytes, "%s: %s%s", control->path, strerror(-rc),
                 rc == -EADDRINUSE ? "; another target has it" : "");
        close_both(control);
    }
    return rc;
}

void nvr_control_close(struct nvr_control *control)
{
    if (control->watch.fd < 0)
        return;
    for (int i = 0; i < NVR_CLIENTS_MAX; i++)
        client_leaves(&control->clients[i]);
    nvr_server_unwatch(control->serving->server, &control->watch);
    nvr_server_unwatch(control->serving->server, &control->again);
    close_both(control);
    unlink(control->path);
}

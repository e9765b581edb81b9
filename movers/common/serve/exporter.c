/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/exporter.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rdma/resolve.h"
#include "common/serve/log.h"
#include "common/text/endpoint.h"
#include "common/time/clock.h"

enum {
    CONNECTIONS_MAX = 16,
    CONNECTIONS_OF_ONE = 4, /* a pair of collectors, each with a second connection */
    CONNECTION_BYTES = 8192,
    SILENT_S = 10,
    BACKLOG = 16,
    FILE_PERIOD_S = 15,
    PATH_BYTES = 4096,
};

/* The caller's to free(); NULL: no memory. */
static char *exporter_text(const struct mover_exporter *exporter)
{
    const struct mover_control_setup *source = &exporter->source;
    json_t *status = source->status(source->context);
    char *text = status ? mover_metrics_text(source->mover, source->metrics, status) : NULL;
    json_decref(status);
    return text;
}

/* ---- by HTTP ---- */

/* The text is taken, where it is `is_ours`. */
static enum MHD_Result answer_http(struct MHD_Connection *connection, unsigned code,
                                   const char *type, char *text, bool is_ours)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        strlen(text), text, is_ours ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response) {
        if (is_ours)
            free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result take_http(void *context, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *body,
                                 size_t *body_bytes, void **state)
{
    static char only_read[] = "metrics are read by GET\n",
                elsewhere[] = "metrics are at /metrics\n";
    (void)version, (void)body;
    if (!*state) { /* the head has come: the answer is for the end, as HTTP/1.1 has it */
        *state = context;
        return MHD_YES;
    }
    if (*body_bytes) { /* nobody wants it */
        *body_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_http(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", only_read, false);
    if (strcmp(url, "/metrics") != 0)
        return answer_http(connection, MHD_HTTP_NOT_FOUND, "text/plain", elsewhere, false);
    char *text = exporter_text(context);
    return text ? answer_http(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
                              text, true)
                : MHD_NO;
}

static bool is_http_full(const struct mover_exporter *exporter)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(exporter->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    return info && info->num_connections >= CONNECTIONS_MAX;
}

static void run_http(struct mover_watch *watch)
{
    struct mover_exporter *exporter = watch->context;
    MHD_UNSIGNED_LONG_LONG timeout_ms = 0;
    const bool was_full = is_http_full(exporter);
    MHD_run(exporter->daemon);
    if (was_full && !is_http_full(exporter)) /* only now it looks at its listener again */
        MHD_run(exporter->daemon);
    const bool is_due = MHD_get_timeout(exporter->daemon, &timeout_ms) == MHD_YES;
    mover_loop_call_at(exporter->loop, watch,
                       is_due ? mover_now_ns() + (uint64_t)timeout_ms * NS_PER_MS + 1 : 0);
}

/* A listening socket; the library would not say what is wrong. */
static int exporter_listen(const struct sockaddr_storage *at)
{
    const int yes = 1;
    const socklen_t bytes = at->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : (socklen_t)sizeof(struct sockaddr_in);
    const int fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (!bind(fd, (const struct sockaddr *)at, bytes) && !listen(fd, BACKLOG))
        return fd;
    const int why = errno;
    close(fd);
    return -why;
}

static int start_http(struct mover_exporter *exporter, int fd)
{
    exporter->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, take_http, exporter, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)SILENT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)CONNECTIONS_OF_ONE, MHD_OPTION_END);
    if (!exporter->daemon) {
        close(fd);
        return -ENOMEM;
    }
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(exporter->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    exporter->http = (struct mover_watch){
        .fd = info ? info->epoll_fd : -1, .ready = run_http, .context = exporter};
    return mover_loop_watch(exporter->loop, &exporter->http);
}

static int open_http(struct mover_exporter *exporter, char *address, char *error,
                     size_t error_bytes)
{
    struct sockaddr_storage at;
    const char *host = NULL, *port = exporter->source.metrics_port;
    if (!mover_split_endpoint(address, &host, &port)) {
        snprintf(error, error_bytes, "--metrics is ADDR[:PORT], as 127.0.0.1:%s", port);
        return -EINVAL;
    }
    const char *wrong = mover_resolve(host, port, AI_PASSIVE, &at);
    const int fd = wrong ? -EINVAL : exporter_listen(&at);
    const int code = fd < 0 ? fd : start_http(exporter, fd);
    if (code)
        snprintf(error, error_bytes, "--metrics %s, port %s: %s%s", host, port,
                 wrong ? wrong : strerror(-code),
                 code == -EADDRINUSE ? "; --metrics ADDR:PORT takes another port" : "");
    return code;
}

/* ---- as a file ---- */

/* As a whole or not at all: node_exporter may read at any time. */
static int write_metrics(const struct mover_exporter *exporter)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof(path), "%s.new", exporter->file) >= PATH_BYTES)
        return -ENAMETOOLONG;
    char *text = exporter_text(exporter);
    if (!text)
        return -ENOMEM;
    unlink(path); /* of a server that was killed */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    const ssize_t bytes = (ssize_t)strlen(text), written = fd < 0 ? -1 : write(fd, text, bytes);
    int code = written < 0 ? -errno : 0;
    if (!code && written < bytes)
        code = -ENOSPC;
    if (!code && rename(path, exporter->file))
        code = -errno;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && code)
        unlink(path);
    free(text);
    return code;
}

/* It would be replaced now, and removed at the end: by root, even a device. */
static bool is_foreign(const char *file)
{
    static const char first[] = "# HELP sidewire_";
    char found[sizeof(first) - 1] = "";
    struct stat st;
    if (lstat(file, &st))
        return false;
    if (!S_ISREG(st.st_mode))
        return true;
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t bytes = fd < 0 ? -1 : read(fd, found, sizeof(found));
    if (fd >= 0)
        close(fd);
    return bytes && (bytes < (ssize_t)sizeof(found) || memcmp(found, first, sizeof(found)) != 0);
}

static void renew_file(struct mover_watch *watch)
{
    struct mover_exporter *exporter = watch->context;
    const int code = write_metrics(exporter);
    if (code && !exporter->is_file_bad)
        mover_log(MOVER_LOG_WARNING, "%s: %s; metrics there are old", exporter->file,
                  strerror(-code));
    exporter->is_file_bad = code;
    mover_loop_call_at(exporter->loop, watch, mover_now_ns() + FILE_PERIOD_S * NS_PER_S);
}

static int open_file(struct mover_exporter *exporter, const char *file, char *error,
                     size_t error_bytes)
{
    if (is_foreign(file)) {
        snprintf(error, error_bytes,
                 "--metrics-file %s: what is there is no file of metrics; remove it, or take "
                 "another name",
                 file);
        return -EEXIST;
    }
    exporter->file = file;
    exporter->timer = (struct mover_watch){.fd = -1, .ready = renew_file, .context = exporter};
    const int code = write_metrics(exporter);
    if (code) {
        snprintf(error, error_bytes, "--metrics-file %s: %s", file, strerror(-code));
        exporter->file = NULL;
    } else {
        renew_file(&exporter->timer);
    }
    return code;
}

int mover_exporter_open(struct mover_exporter *exporter, struct mover_loop *loop,
                        const struct mover_control_setup *source, char *address, const char *file,
                        char *error, size_t error_bytes)
{
    *exporter = (struct mover_exporter){.source = *source, .loop = loop};
    int code = address ? open_http(exporter, address, error, error_bytes) : 0;
    if (!code && file)
        code = open_file(exporter, file, error, error_bytes);
    if (code)
        mover_exporter_close(exporter);
    return code;
}

void mover_exporter_close(struct mover_exporter *exporter)
{
    if (exporter->daemon) {
        mover_loop_call_at(exporter->loop, &exporter->http, 0);
        mover_loop_unwatch(exporter->loop, &exporter->http);
        MHD_stop_daemon(exporter->daemon); /* closes its sockets */
        exporter->daemon = NULL;
    }
    if (exporter->file) {
        mover_loop_call_at(exporter->loop, &exporter->timer, 0);
        unlink(exporter->file); /* numbers that stand still would look like a server that lives */
        exporter->file = NULL;
    }
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rendezvous/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/text/endpoint.h"
#include "common/text/number.h"

enum { AT_MAX = 300 };

static bool is_port(const char *text)
{
    uint16_t port;
    return text && mover_parse_port(text, &port) && port;
}

int mover_meet_resolve(const char *at, struct addrinfo **addresses, char *error, size_t error_bytes)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *host, *port = NULL;
    char text[AT_MAX];
    if (snprintf(text, sizeof(text), "%s", at) >= AT_MAX ||
        !mover_split_endpoint(text, &host, &port) || !is_port(port)) {
        snprintf(error, error_bytes, "\"%.80s\" is not HOST:PORT of rank 0", at);
        return -EINVAL;
    }
    const int code = getaddrinfo(host, port, &hints, addresses);
    if (!code)
        return 0;
    snprintf(error, error_bytes, "%.80s: %s", host, gai_strerror(code));
    return -EINVAL;
}

static int open_listener(const struct addrinfo *address)
{
    const int on = 1;
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!bind(fd, address->ai_addr, address->ai_addrlen) && !listen(fd, SOMAXCONN))
        return fd;
    const int code = -errno;
    close(fd);
    return code;
}

int mover_meet_listen(const struct addrinfo *addresses)
{
    int fd = -EADDRNOTAVAIL;
    for (; addresses && fd < 0; addresses = addresses->ai_next)
        fd = open_listener(addresses);
    return fd;
}

int mover_meet_connect(const struct addrinfo *address)
{
    const int on = 1;
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    if (!connect(fd, address->ai_addr, address->ai_addrlen) || errno == EINPROGRESS)
        return fd;
    const int code = -errno;
    close(fd);
    return code;
}

void mover_meet_name(int fd, char *name, size_t bytes)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    char host[INET6_ADDRSTRLEN], port[8];
    snprintf(name, bytes, "an unknown address");
    if (getpeername(fd, (struct sockaddr *)&address, &len) ||
        getnameinfo((struct sockaddr *)&address, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return;
    snprintf(name, bytes, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/notify.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/time/clock.h"

/* Nobody is told of a failure: the server serves all the same, and systemd's patience ends. */
static void send_notice(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (!path || !strchr("/@", *path) || strlen(path) >= sizeof(at.sun_path))
        return;
    memcpy(at.sun_path, path, strlen(path));
    if (*path == '@') /* an abstract one */
        at.sun_path[0] = '\0';
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&at, bytes);
    close(fd);
}

void mover_notify_ready(void)
{
    char text[64];
    /* With --background systemd has started another process. */
    snprintf(text, sizeof(text), "READY=1\nMAINPID=%d", (int)getpid());
    send_notice(text);
}

void mover_notify_reloading(void)
{
    char text[64];
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             (uint64_t)(mover_now_ns() / NS_PER_US));
    send_notice(text);
}

void mover_notify_stopping(void)
{
    send_notice("STOPPING=1");
}

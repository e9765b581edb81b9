/* SPDX-License-Identifier: BSD-2-Clause */
/* As tests/tools/ports.py has it: who has a port shows that by the name of a socket. */
#include "test_port.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void test_port_claim(char *port, size_t size)
{
    enum { LOWEST = 10000, COUNT = 20000 };
    for (int i = (int)getpid();; i++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        const int number = LOWEST + i % COUNT, fd = socket(AF_UNIX, SOCK_STREAM, 0);
        const int len =
            snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "sidewire-test.port.%d", number);
        const socklen_t name_size =
            (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)len;
        snprintf(port, size, "%d", number);
        if (!bind(fd, (struct sockaddr *)&name, name_size))
            return;
        close(fd);
    }
}

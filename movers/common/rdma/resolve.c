/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/resolve.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/text/number.h"

static const char NO_PORT[] = "a port is a number up to 65535";

static bool is_no_port(const char *port)
{
    const bool is_number = *port && strspn(port, "0123456789") == strlen(port);
    uint16_t number;
    return is_number && !mover_parse_port(port, &number);
}

const char *mover_resolve(const char *address, const char *port, int flags,
                          struct sockaddr_storage *out)
{
    const struct addrinfo hints = {.ai_flags = flags, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    if (port && is_no_port(port))
        return NO_PORT;
    const int code = getaddrinfo(address, port, &hints, &found);
    if (code)
        return code == EAI_SERVICE ? NO_PORT : gai_strerror(code);
    memcpy(out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return NULL;
}

const char *mover_resolve_peer(const char *address, const char *port, struct sockaddr_storage *out)
{
    uint16_t number;
    if (port && mover_parse_port(port, &number) && !number)
        return "nobody listens at port 0: 1 to 65535";
    return mover_resolve(address, port, 0, out);
}

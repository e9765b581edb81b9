/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/meet.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm/failure.h"
#include "common/rdma/resolve.h"
#include "common/rendezvous/rendezvous.h"
#include "common/text/endpoint.h"

static socklen_t address_bytes(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

void coll_meet_clear_port(struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = 0;
    else
        ((struct sockaddr_in *)address)->sin_port = 0;
}

/* The address of this host that packets to there come from. */
static const char *meet_find_source(struct sockaddr_storage *address)
{
    const int fd = socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = sizeof(*address);
    const bool is_found = fd >= 0 &&
                          !connect(fd, (struct sockaddr *)address, address_bytes(address)) &&
                          !getsockname(fd, (struct sockaddr *)address, &bytes);
    const char *wrong = is_found ? NULL : strerror(errno);
    if (fd >= 0)
        close(fd);
    return wrong;
}

static const char *find_where_to_meet(const char *meet, struct sockaddr_storage *address)
{
    const char *host, *port = NULL;
    char *text = strdup(meet);
    const char *wrong = "out of memory";
    if (text && !mover_split_endpoint(text, &host, &port))
        wrong = "it is no HOST:PORT";
    else if (text)
        wrong = mover_resolve(host, port ? port : "0", 0, address);
    free(text);
    return wrong;
}

enum sw_coll_status coll_meet_address(const struct sw_coll_options *options,
                                      struct sockaddr_storage *address, struct sw_coll_error *error)
{
    const char *where = options->address ? options->address : "127.0.0.1";
    const char *wrong;
    if (!options->address && options->meet && !options->exchange) {
        where = options->meet;
        wrong = find_where_to_meet(where, address);
        if (!wrong)
            wrong = meet_find_source(address);
    } else {
        wrong = mover_resolve(where, NULL, 0, address);
    }
    if (wrong)
        return coll_say(error, SW_COLL_ADDRESS, "%s: %s", where, wrong);
    coll_meet_clear_port(address);
    return SW_COLL_OK;
}

static enum sw_coll_status status_of_meeting(int code)
{
    switch (-code) {
    case ETIMEDOUT:
        return SW_COLL_TIMEOUT;
    case ECONNRESET:
        return SW_COLL_RANK_GONE;
    case EPROTONOSUPPORT:
        return SW_COLL_VERSION;
    case EPROTO:
    case EACCES:
        return SW_COLL_PROTOCOL;
    case EINVAL:
        return SW_COLL_INVALID;
    case ENOMEM:
        return SW_COLL_NO_MEMORY;
    default:
        return SW_COLL_SYSTEM;
    }
}

static void log_meeting(void *context, const char *line)
{
    coll_log(context, line);
}

enum sw_coll_status coll_meet_exchange(const struct sw_coll_options *options, const void *card,
                                       size_t bytes, void *cards, uint64_t deadline_ns,
                                       struct sw_coll_error *error)
{
    char text[200] = "";
    if (options->exchange) {
        const int code =
            options->exchange(options->exchange_context, card, bytes, cards, deadline_ns);
        return code ? coll_say(error, code == -ETIMEDOUT ? SW_COLL_TIMEOUT : SW_COLL_SYSTEM,
                               "the exchange of cards failed: %s", strerror(-code))
                    : SW_COLL_OK;
    }
    const char *token = options->token ? options->token : secure_getenv("SIDEWIRE_COLL_TOKEN");
    const struct mover_rendezvous how = {.rank = options->rank,
                                         .size = options->size,
                                         .at = options->meet,
                                         .token = token && *token ? token : NULL,
                                         .log = log_meeting,
                                         .log_context = (void *)(uintptr_t)options};
    const int code = mover_rendezvous(&how, card, bytes, cards, deadline_ns, text, sizeof(text));
    return code ? coll_say(error, status_of_meeting(code), "%s", text) : SW_COLL_OK;
}

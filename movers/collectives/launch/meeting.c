/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/launch/meeting.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#include "collectives/launch/way.h"
#include "common/rdma/resolve.h"

#define LOOPBACK "127.0.0.1"

enum { RESOLVE_MS = 2000 };

/* What makes one address better than another, the best last. */
enum meeting_rank { MEETING_NONE, MEETING_IPV6, MEETING_IPV4, MEETING_DEVICE };

/* ---- a port ---- */

const char *coll_meeting_reserve(const char *host, char *meet, size_t room)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    const char *wrong = mover_resolve(host, "0", 0, &address);
    if (wrong)
        return wrong;
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        bind(fd, (struct sockaddr *)&address, len) ||
        getsockname(fd, (struct sockaddr *)&address, &len)) {
        if (fd >= 0)
            close(fd);
        return "it is no address of this host";
    }
    const bool is_ipv6 = address.ss_family == AF_INET6;
    const uint16_t port = ntohs(is_ipv6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                        : ((struct sockaddr_in *)&address)->sin_port);
    const int used = snprintf(meet, room, is_ipv6 ? "[%s]:%u" : "%s:%u", host, port);
    return used > 0 && (size_t)used < room ? NULL : "its name is too long";
}

bool coll_meeting_draw_token(char *token, size_t room)
{
    uint8_t bytes[16];
    if (room < 2 * sizeof(bytes) + 1 || getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return false;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* ---- an address ---- */

/* The loopback belongs to no device; a way to itself does. */
static bool meeting_has_device(struct sockaddr *address, bool is_loopback)
{
    struct rdma_cm_id *id = NULL;
    if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
        return false;
    const int code = is_loopback ? rdma_resolve_addr(id, NULL, address, RESOLVE_MS)
                                 : rdma_bind_addr(id, address);
    const bool has_device = !code && id->verbs;
    rdma_destroy_id(id);
    return has_device;
}

/* An address of a link needs its scope there, and is of no use elsewhere. */
static enum meeting_rank judge_interface(const struct ifaddrs *one, bool is_local)
{
    const bool is_up = (one->ifa_flags & IFF_UP) && (one->ifa_flags & IFF_RUNNING);
    const bool is_loopback = one->ifa_flags & IFF_LOOPBACK;
    if (!is_up || !one->ifa_addr || (is_loopback && !is_local))
        return MEETING_NONE;
    if (one->ifa_addr->sa_family == AF_INET)
        return MEETING_IPV4;
    if (one->ifa_addr->sa_family != AF_INET6 ||
        IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr))
        return MEETING_NONE;
    return MEETING_IPV6;
}

/* The first with an RDMA device; without, the first of IPv4. Interfaces come in the order of their
 * numbers, so the loopback is first where it may be taken at all. */
static bool find_address_here(bool is_local, char *text, size_t room)
{
    enum meeting_rank best = MEETING_NONE;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all))
        return false;
    for (const struct ifaddrs *one = all; one && best < MEETING_DEVICE; one = one->ifa_next) {
        enum meeting_rank rank = judge_interface(one, is_local);
        if (rank == MEETING_NONE)
            continue;
        const bool is_ipv6 = one->ifa_addr->sa_family == AF_INET6;
        struct sockaddr_storage address = {0};
        memcpy(&address, one->ifa_addr,
               is_ipv6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
        if (meeting_has_device((struct sockaddr *)&address, one->ifa_flags & IFF_LOOPBACK))
            rank = MEETING_DEVICE;
        const void *bytes = is_ipv6 ? (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr
                                    : (const void *)&((struct sockaddr_in *)&address)->sin_addr;
        if (rank > best && inet_ntop(address.ss_family, bytes, text, (socklen_t)room))
            best = rank;
    }
    freeifaddrs(all);
    return best != MEETING_NONE;
}

/* ---- the word ---- */

enum sw_coll_status coll_meeting_choose(struct sw_coll_launch *launch,
                                        char word[COLL_MEETING_BYTES], struct sw_coll_error *error)
{
    char address[INET6_ADDRSTRLEN] = LOOPBACK;
    const bool is_local = launch->local_size == launch->size;
    if (!find_address_here(is_local, address, sizeof(address)) && !is_local)
        return coll_launch_say(error, SW_COLL_ADDRESS,
                               "this host has no address by which other ranks reach it: set "
                               "SIDEWIRE_COLL_MEET to HOST:PORT of rank 0");
    const char *wrong = coll_meeting_reserve(address, launch->meet, sizeof(launch->meet));
    if (wrong)
        return coll_launch_say(error, SW_COLL_ADDRESS, "%s: %s", address, wrong);
    if (!coll_meeting_draw_token(launch->token, sizeof(launch->token)))
        return coll_launch_say(error, SW_COLL_SYSTEM, "no random numbers: %s", strerror(errno));
    snprintf(word, COLL_MEETING_BYTES, "%s/%s", launch->meet, launch->token);
    return SW_COLL_OK;
}

/* A word of others may get to a terminal: a byte that would steer that is shown as '?'. */
static enum sw_coll_status refuse_word(const char *word, struct sw_coll_error *error)
{
    char shown[61];
    snprintf(shown, sizeof(shown), "%s", word);
    for (char *at = shown; *at; at++)
        if (*at <= ' ' || *at > '~')
            *at = '?';
    return coll_launch_say(error, SW_COLL_PROTOCOL, "the launcher has '%s' for where rank 0 is",
                           shown);
}

enum sw_coll_status coll_meeting_take(struct sw_coll_launch *launch, const char *word,
                                      struct sw_coll_error *error)
{
    const char *slash = strrchr(word, '/');
    const size_t meet_bytes = slash ? (size_t)(slash - word) : 0;
    const size_t token_bytes = slash ? strlen(slash + 1) : 0;
    bool is_plain = true;
    for (const char *at = word; *at; at++)
        is_plain = is_plain && *at > ' ' && *at <= '~';
    if (!is_plain || !meet_bytes || meet_bytes >= sizeof(launch->meet) || !token_bytes ||
        token_bytes >= sizeof(launch->token))
        return refuse_word(word, error);
    memcpy(launch->meet, word, meet_bytes);
    launch->meet[meet_bytes] = '\0';
    memcpy(launch->token, slash + 1, token_bytes + 1);
    return SW_COLL_OK;
}

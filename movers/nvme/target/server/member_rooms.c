/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/member_rooms.h"

#include <arpa/inet.h>
#include <string.h>

#include "common/serve/log.h"
#include "common/serve/origin.h"
#include "common/time/clock.h"

enum { BELIEVED_MS = 1000 };

void nvr_rooms_origin(const char *address, uint8_t origin[NVG_ORIGIN_BYTES])
{
    char text[NVT_ADDRESS_MAX];
    struct in_addr in4;
    struct in6_addr in6 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memset(origin, 0, NVG_ORIGIN_BYTES);
    strncpy(text, address, sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    text[strcspn(text, "/%")] = 0; /* of a network its length, of a local address its device */
    if (inet_pton(AF_INET, text, &in4) == 1)
        memcpy(&in6.s6_addr[12], &in4, sizeof(in4));
    else if (inet_pton(AF_INET6, text, &in6) != 1)
        return;
    memcpy(origin, &in6, NVG_ORIGIN_BYTES);
}

static void rooms_say_refusal(struct nvr_rooms *rooms, const struct nvg_host *host,
                              const char *address)
{
    rooms->refused++;
    if (address)
        mover_log_told(&rooms->told, MOVER_LOG_WARNING,
                       "%s is refused: hosts at %s have half of the group's %d places", host->nqn,
                       address, NVG_HOSTS_MAX);
    else
        mover_log_told(&rooms->told, MOVER_LOG_WARNING,
                       "%s is refused: the group serves %d hosts already", host->nqn,
                       NVG_HOSTS_MAX);
}

static const struct nvr_refusal *find_refusal(const struct nvr_rooms *rooms, const char *address)
{
    const uint64_t now_ns = mover_now_ns();
    for (int i = 0; i < NVR_REFUSALS; i++) {
        const struct nvr_refusal *refusal = &rooms->refusals[i];
        if (refusal->until_ns > now_ns &&
            (!*refusal->address || !strcmp(refusal->address, address)))
            return refusal;
    }
    return NULL;
}

bool nvr_rooms_admit(struct nvr_rooms *rooms, enum nvg_room room, const struct nvg_host *host,
                     const char *address)
{
    if (room == NVG_HAS_PLACE)
        return true;
    const struct nvr_refusal *refusal = find_refusal(rooms, address);
    if (room == NVG_MAY_HAVE && !refusal)
        return true;
    rooms_say_refusal(rooms, host, room == NVG_MAY_HAVE && *refusal->address ? address : NULL);
    return false;
}

void nvr_rooms_note(struct nvr_rooms *rooms, const struct nvg_host *host, const char *address)
{
    struct nvr_refusal *refusal = &rooms->refusals[0];
    for (int i = 0; i < NVR_REFUSALS; i++) {
        struct nvr_refusal *one = &rooms->refusals[i];
        if (!strcmp(one->address, address ? address : "")) {
            refusal = one;
            break;
        }
        if (one->until_ns < refusal->until_ns)
            refusal = one;
    }
    memset(refusal->address, 0, sizeof(refusal->address));
    strncpy(refusal->address, address ? address : "", sizeof(refusal->address) - 1);
    refusal->until_ns = mover_now_ns() + (uint64_t)BELIEVED_MS * NS_PER_MS;
    rooms_say_refusal(rooms, host, address);
}

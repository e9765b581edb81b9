/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A group whose members are all active has 64 places for hosts. A member refuses those that have
 * none: at their Connect as soon as it knows, which is as long as all places are in use, and for a
 * second after the leader has said so of another host.
 */
#ifndef SW_MOVERS_NVME_MEMBER_ROOMS_H
#define SW_MOVERS_NVME_MEMBER_ROOMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/serve/told.h"
#include "nvme/target/group/group.h"
#include "nvme/target/model/share.h"

enum { NVR_REFUSALS = 16 };

struct nvr_refusal {
    char address[NVT_ADDRESS_MAX]; /* "": of all */
    uint64_t until_ns;
};

struct nvr_rooms {
    uint64_t refused; /* counted */
    struct mover_told told;
    struct nvr_refusal refusals[NVR_REFUSALS];
};

/* By which the group tells addresses apart; zeroes: it is not known. */
void nvr_rooms_origin(const char *address, uint8_t origin[NVG_ORIGIN_BYTES]);
/* Whether a host that comes from there may connect. It is counted and told where it may not. */
bool nvr_rooms_admit(struct nvr_rooms *rooms, enum nvg_room room, const struct nvg_host *host,
                     const char *address);
/* The leader has no place for that host: it has too many of that address, or, NULL, of all. */
void nvr_rooms_note(struct nvr_rooms *rooms, const struct nvg_host *host, const char *address);

#endif

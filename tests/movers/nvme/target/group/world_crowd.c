/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * More hosts than a group has places for, of three addresses. Each is connected to one member, and
 * that member carries out at once what the group says.
 */
#include <stdio.h>
#include <string.h>

#include "world.h"

enum { NOBODY = -1, SAY_MS = 300 };
enum { CROWD_TAKE = 1, CROWD_RELEASE };

struct crowd_host {
    int member; /* its process; NOBODY: it is not connected */
    uint8_t address;
    uint32_t refusals, of_address;
};

struct crowd_place {
    uint8_t order; /* what is to be done */
    uint64_t epoch;
    int serves; /* a host; NOBODY */
};

static struct crowd_host crowd[WORLD_CROWD];
static struct crowd_place places[WORLD_PROCESSES][NVG_PLACES_MAX + 1];

static void name_one(uint32_t index, struct nvg_host *host)
{
    memset(host, 0, sizeof(*host));
    snprintf(host->nqn, sizeof(host->nqn), "%u", index);
}

static uint32_t index_of_host(const struct nvg_host *host)
{
    uint32_t index = WORLD_CROWD;
    if (sscanf(host->nqn, "%u", &index) != 1 || index >= WORLD_CROWD)
        return 0;
    return index;
}

void world_crowd_begin(void)
{
    memset(crowd, 0, sizeof(crowd));
    memset(places, 0, sizeof(places));
    for (int i = 0; i < WORLD_CROWD; i++)
        crowd[i].member = NOBODY;
    for (int i = 0; i < WORLD_PROCESSES; i++)
        for (int number = 0; number <= NVG_PLACES_MAX; number++)
            places[i][number].serves = NOBODY;
}

void world_crowd_connect(uint32_t first, uint32_t count, uint8_t address, int member)
{
    for (uint32_t i = first; i < first + count; i++)
        crowd[i] = (struct crowd_host){.member = member, .address = address};
}

void world_crowd_lose(int process)
{
    memset(places[process], 0, sizeof(places[process]));
    for (int number = 0; number <= NVG_PLACES_MAX; number++)
        places[process][number].serves = NOBODY;
}

void world_crowd_tell(struct world *w, int process, const struct nvg_event *event)
{
    struct crowd_place *place = &places[process][event->nsid];
    struct crowd_host *host = &crowd[index_of_host(&event->host)];
    if (event->kind == NVG_TAKE)
        *place = (struct crowd_place){CROWD_TAKE, event->epoch, NOBODY};
    if (event->kind == NVG_RELEASE)
        place->order = CROWD_RELEASE;
    if (event->kind == NVG_SERVE)
        place->serves = (int)index_of_host(&event->host);
    if (event->kind != NVG_NO_PLACE)
        return;
    if (host->member != process && host->member != NOBODY)
        world_fail(w, "a member hears of a host that is not there");
    host->refusals++;
    host->of_address += event->is_of_origin;
}

static void carry_out(struct world_process *p, uint32_t number, struct crowd_place *place, int i)
{
    const uint8_t order = place->order;
    const bool has_gone = place->serves != NOBODY && crowd[place->serves].member != i;
    place->order = 0;
    if (order == CROWD_TAKE) {
        nvg_machine_taken(p->machine, number, place->epoch, 0);
    } else if (order == CROWD_RELEASE || has_gone) {
        place->serves = NOBODY;
        nvg_machine_released(p->machine, number, place->epoch);
    }
}

void world_crowd_step(struct world *w, int process)
{
    struct world_process *p = &w->processes[process];
    uint8_t origin[NVG_ORIGIN_BYTES] = {0};
    struct nvg_host host;
    for (uint32_t number = NVG_NSID_MAX + 1; number <= NVG_PLACES_MAX; number++)
        carry_out(p, number, &places[process][number], process);
    for (uint32_t i = 0; i < WORLD_CROWD && w->now % SAY_MS < 10; i++) {
        if (crowd[i].member != process)
            continue;
        name_one(i, &host);
        origin[0] = crowd[i].address;
        nvg_machine_host_is_here(p->machine, &host, origin);
    }
}

uint32_t world_crowd_served(uint32_t first, uint32_t count)
{
    uint32_t served = 0;
    for (int process = 0; process < WORLD_PROCESSES; process++)
        for (uint32_t number = NVG_NSID_MAX + 1; number <= NVG_PLACES_MAX; number++) {
            const int host = places[process][number].serves;
            served += host >= (int)first && host < (int)(first + count);
        }
    return served;
}

bool world_crowd_is_served(uint32_t host)
{
    return world_crowd_served(host, 1);
}

uint32_t world_crowd_refused(uint32_t first, uint32_t count, bool is_of_address)
{
    uint32_t refused = 0;
    for (uint32_t i = first; i < first + count; i++)
        refused +=
            is_of_address ? crowd[i].of_address > 0 : crowd[i].refusals > 0 && !crowd[i].of_address;
    return refused;
}

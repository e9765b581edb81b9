/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/placement.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm/failure.h"

/* One for each start of a kernel. */
static ssize_t read_boot_id(char *text, size_t room)
{
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, text, room);
    if (fd >= 0)
        close(fd);
    return got;
}

uint64_t coll_host_number(void)
{
    char text[64];
    const char *said = getenv("SIDEWIRE_COLL_HOST");
    const bool is_said = said && *said;
    const ssize_t got = is_said ? (ssize_t)strlen(said) : read_boot_id(text, sizeof(text));
    uint64_t hash = 0xcbf29ce484222325;
    for (ssize_t i = 0; i < got; i++)
        hash = (hash ^ (uint8_t)(is_said ? said : text)[i]) * 0x100000001b3;
    return hash;
}

bool coll_placement_wanted(const struct sw_coll_options *options, bool *keeps_ranks)
{
    const char *text = getenv(COLL_PLACEMENT);
    *keeps_ranks = options->placement == SW_COLL_PLACE_RANKS || (text && !strcmp(text, "ranks"));
    return !text || !*text || !strcmp(text, "ranks") || !strcmp(text, "hosts");
}

/* Ranks of hosts that lie one after the other stay where they are, and so do all bits. */
void coll_placement_find(struct sw_coll *coll)
{
    const uint32_t size = coll->site.size;
    uint16_t *ranks = coll->placement, *places = coll->placement + size;
    uint32_t count = 0, hosts = 0;
    bool is_placed[SW_COLL_RANKS_MAX] = {false}, is_moved = false;
    for (uint32_t first = 0; first < size; first++) {
        if (is_placed[first])
            continue;
        hosts++;
        for (uint32_t rank = first; rank < size; rank++) {
            if (is_placed[rank] || coll->peers[rank].card.host != coll->peers[first].card.host)
                continue;
            is_placed[rank] = true;
            is_moved = is_moved || rank != count;
            places[rank] = (uint16_t)count;
            ranks[count++] = (uint16_t)rank;
        }
    }
    coll->hosts = hosts;
    if (!is_moved || coll->keeps_ranks)
        return;
    coll->site.ranks = coll->machine.site.ranks = ranks;
    coll->site.places = coll->machine.site.places = places;
}

void coll_placement_tell(const struct sw_coll *coll)
{
    char line[256];
    if (!coll->site.ranks || coll->site.rank)
        return;
    int used = snprintf(line, sizeof(line),
                        "ranks of %u hosts lie among each other: sums take ranks in the order",
                        coll->hosts);
    for (uint32_t i = 0; i < coll->site.size && used < (int)sizeof(line) - 16; i++)
        used += snprintf(line + used, sizeof(line) - (size_t)used, "%s %u", i ? "," : "",
                         coll->site.ranks[i]);
    if (used >= (int)sizeof(line) - 16)
        snprintf(line + used, sizeof(line) - (size_t)used, ", ...");
    coll_log(&coll->options, line);
}

void sw_coll_order(const struct sw_coll *coll, uint32_t *ranks)
{
    for (uint32_t place = 0; place < coll->site.size; place++)
        ranks[place] = coll_rank_at(&coll->site, place);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "where.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether SIDEWIRE_DEVICES has that interface, as "eth0" or "sw_eth0". Unset it has all. */
static bool has_device(const char *name)
{
    const char *list = getenv("SIDEWIRE_DEVICES");
    if (!list || !*list)
        return true;
    size_t len = strlen(name);
    for (const char *word = list; *word;) {
        size_t bytes = strcspn(word, ",");
        if (bytes > 3 && (!strncmp(word, "sw_", 3) || !strncmp(word, "iw_", 3))) {
            if (bytes - 3 == len && !strncmp(word + 3, name, len))
                return true;
        } else if (bytes == len && !strncmp(word, name, len)) {
            return true;
        }
        word += bytes + (word[bytes] == ',');
    }
    return false;
}

static void find_processors(struct mpm_place *place)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set))
        return;
    for (uint32_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &set))
            place->processors[i / 64 % 4] |= UINT64_C(1) << i % 64;
    }
}

void mpm_place_find(struct mpm_place *place)
{
    memset(place, 0, sizeof(*place));
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (boot) {
        if (!fgets(place->host, sizeof(place->host), boot))
            place->host[0] = '\0';
        fclose(boot);
    }
    find_processors(place);
    struct stat network;
    if (!stat("/proc/self/ns/net", &network))
        place->network = network.st_ino;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all))
        return;
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        bool is_up = (one->ifa_flags & IFF_UP) && (one->ifa_flags & IFF_RUNNING);
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !is_up ||
            !has_device(one->ifa_name))
            continue;
        struct sockaddr_in address;
        memcpy(&address, one->ifa_addr, sizeof(address));
        if (one->ifa_flags & IFF_LOOPBACK)
            place->has_loopback = 1;
        else if (!place->address)
            place->address = address.sin_addr.s_addr;
    }
    freeifaddrs(all);
}

bool mpm_place_address(const struct mpm_place *places, uint32_t size, uint32_t rank,
                       char address[INET_ADDRSTRLEN])
{
    bool by_loopback = true, by_network = true;
    for (uint32_t i = 0; i < size; i++) {
        by_loopback = by_loopback && places[i].has_loopback && places[i].host[0] &&
                      !strcmp(places[i].host, places[0].host) &&
                      places[i].network == places[0].network;
        by_network = by_network && places[i].address;
    }
    struct in_addr own = {.s_addr = by_loopback ? htonl(INADDR_LOOPBACK) : places[rank].address};
    return (by_loopback || by_network) && inet_ntop(AF_INET, &own, address, INET_ADDRSTRLEN);
}

bool mpm_places_are_short(const struct mpm_place *places, uint32_t size, uint32_t rank)
{
    uint64_t all[4] = {0};
    int here = 0, usable = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (strcmp(places[i].host, places[rank].host) != 0)
            continue;
        here++;
        for (int word = 0; word < 4; word++)
            all[word] |= places[i].processors[word];
    }
    for (int word = 0; word < 4; word++)
        usable += __builtin_popcountll(all[word]);
    return usable < here;
}

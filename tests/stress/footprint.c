/* SPDX-License-Identifier: BSD-2-Clause */
#include "stress/footprint.h"

#include <dirent.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "verbs_util/check.h"

#define NAMES_MAX 1024

/* Accepted sockets have the name of the one that listens. */
static bool is_new_name(const struct sockaddr_un *name, socklen_t len)
{
    static struct sockaddr_un seen[NAMES_MAX];
    static size_t count;
    if (!name) {
        count = 0;
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (memcmp(&seen[i], name, sizeof(*name)) == 0)
            return false;
    VU_TRUE(count < NAMES_MAX && len <= sizeof(*name));
    seen[count++] = *name;
    return true;
}

static bool has_new_name(int fd)
{
    struct sockaddr_un name;
    socklen_t len = sizeof(name);
    memset(&name, 0, sizeof(name));
    return getsockname(fd, (struct sockaddr *)&name, &len) == 0 && name.sun_family == AF_UNIX &&
           len > sizeof(name.sun_family) && name.sun_path[0] == 0 && is_new_name(&name, len);
}

static bool is_udp(int fd)
{
    int protocol = 0;
    socklen_t len = sizeof(protocol);
    return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 && protocol == IPPROTO_UDP;
}

static void look_at_descriptors(struct footprint *out)
{
    DIR *dir = opendir("/proc/self/fd");
    VU_TRUE(dir != NULL);
    is_new_name(NULL, 0);
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(dir))
            continue;
        const bool udp = is_udp(fd);
        out->udp_sockets += udp;
        out->descriptors += !udp;
        out->names += has_new_name(fd);
    }
    closedir(dir);
}

static void look_at_mappings(struct footprint *out)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    (void)out;
#else
    FILE *maps = fopen("/proc/self/maps", "re");
    VU_TRUE(maps != NULL);
    for (int c; (c = fgetc(maps)) != EOF;)
        out->mappings += c == '\n';
    fclose(maps);
#endif
}

void footprint_take(struct footprint *out)
{
    *out = (struct footprint){.heap_bytes = mallinfo2().uordblks};
    look_at_descriptors(out);
    look_at_mappings(out);
}

bool footprint_is_within(const struct footprint *now, const struct footprint *before,
                         const struct footprint *slack)
{
    return now->descriptors <= before->descriptors + slack->descriptors &&
           now->udp_sockets <= before->udp_sockets + slack->udp_sockets &&
           now->names <= before->names + slack->names &&
           now->mappings <= before->mappings + slack->mappings &&
           now->heap_bytes <= before->heap_bytes + slack->heap_bytes;
}

void footprint_print(const char *when, const struct footprint *footprint)
{
    fprintf(stderr, "%s: %zu descriptors, %zu UDP sockets, %zu names, %zu mappings, %zu bytes\n",
            when, footprint->descriptors, footprint->udp_sockets, footprint->names,
            footprint->mappings, footprint->heap_bytes);
}

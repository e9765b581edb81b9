/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/numa.h"

#include <sched.h>
#include <stdio.h>

enum { OWN_NODE = 10 };

/* The number of that place in a file of /sys, or `otherwise`. */
static long numa_read_number(const char *path, unsigned place, long otherwise)
{
    long value = otherwise;
    FILE *file = fopen(path, "re");
    if (!file)
        return otherwise;
    for (unsigned i = 0; i <= place; i++)
        if (fscanf(file, "%ld", &value) != 1)
            value = otherwise;
    fclose(file);
    return value;
}

uint32_t nvh_numa_distance(const struct ibv_context *verbs)
{
    char path[256];
    unsigned cpu, node;
    if (!verbs || getcpu(&cpu, &node))
        return OWN_NODE;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/numa_node",
             ibv_get_device_name(verbs->device));
    const long device = numa_read_number(path, 0, -1);
    if (device < 0 || device > 4095)
        return OWN_NODE;
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/distance", node);
    return (uint32_t)numa_read_number(path, (unsigned)device, OWN_NODE);
}

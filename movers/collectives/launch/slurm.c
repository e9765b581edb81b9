/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What srun tells its tasks without PMI: the nodes of the step, of which the first has task 0, and
 * the numbers of job and step, which give all tasks the same port.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/launch/way.h"

enum { PORT_FIRST = 20000, PORTS = 10000 };

bool coll_launch_has_slurm(void)
{
    return getenv("SLURM_PROCID") && getenv("SLURM_STEP_NODELIST");
}

bool coll_launch_slurm_is_local(void)
{
    uint32_t nodes = 0;
    return coll_launch_number("SLURM_STEP_NUM_NODES", &nodes) && nodes == 1;
}

/* The first number of "07-9,12]"; the brackets are gone from there on. */
bool coll_launch_first_host(const char *list, char *name, size_t room)
{
    const size_t bytes = strcspn(list, ",[");
    const char *inside = list[bytes] == '[' ? list + bytes + 1 : "";
    const size_t digits = strspn(inside, "0123456789");
    const char *close = strchr(inside, ']');
    const size_t suffix = close ? strcspn(close + 1, ",[") : 0;
    if ((list[bytes] == '[' && (!digits || !close)) || bytes + digits + suffix == 0 ||
        bytes + digits + suffix >= room || (close && close[1 + suffix] == '['))
        return false;
    memcpy(name, list, bytes);
    memcpy(name + bytes, inside, digits);
    if (suffix)
        memcpy(name + bytes + digits, close + 1, suffix);
    name[bytes + digits + suffix] = '\0';
    return true;
}

/* Steps begin one after another, so those that follow each other get different ports. Reserved
 * ones, "12000-12003", are better where Slurm is set up to give them (MpiParams). */
static uint32_t slurm_port(void)
{
    uint32_t job = 0, step = 0;
    const char *reserved = getenv("SLURM_STEP_RESV_PORTS");
    const unsigned long first = reserved ? strtoul(reserved, NULL, 10) : 0;
    if (first > 0 && first <= UINT16_MAX)
        return (uint32_t)first;
    if (!coll_launch_number("SLURM_JOB_ID", &job))
        job = 0;
    if (!coll_launch_number("SLURM_STEP_ID", &step))
        step = 0;
    return PORT_FIRST + (job * 101 + step) % PORTS;
}

enum sw_coll_status coll_launch_slurm(struct sw_coll_launch *launch, struct sw_coll_error *error)
{
    char host[sizeof(launch->meet) - 16] = "127.0.0.1";
    const char *list = getenv("SLURM_STEP_NODELIST");
    if (coll_launch_slurm_is_local())
        launch->local_size = launch->size;
    else if (!coll_launch_first_host(list, host, sizeof(host)))
        return coll_launch_say(error, SW_COLL_INVALID,
                               "SLURM_STEP_NODELIST=%.60s has no first node", list);
    snprintf(launch->meet, sizeof(launch->meet), "%s:%u", host, slurm_port());
    return SW_COLL_OK;
}

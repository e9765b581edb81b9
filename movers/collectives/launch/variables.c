/* SPDX-License-Identifier: BSD-2-Clause */
/* What the environment says without asking anybody. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/launch/way.h"
#include "common/text/number.h"

/* A program in a batch script of Slurm has SLURM_PROCID=0, too: srun alone sets the number of tasks
 * of a step. */
static const struct variables {
    const char *name, *rank, *size, *other_size, *local_rank, *local_size;
} launchers[] = {
    {"Sidewire", "SIDEWIRE_COLL_RANK", "SIDEWIRE_COLL_SIZE", NULL, NULL, NULL},
    {"torchrun", "RANK", "WORLD_SIZE", NULL, "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
};

bool coll_launch_number(const char *name, uint32_t *number)
{
    const char *text = name ? getenv(name) : NULL, *rest = "";
    uint64_t value = 0;
    if (!text || !mover_parse_number(text, &value, &rest) || *rest || value > UINT32_MAX)
        return false;
    *number = (uint32_t)value;
    return true;
}

static enum sw_coll_status read_variable(const char *name, uint32_t *number,
                                         struct sw_coll_error *error)
{
    const char *text = getenv(name);
    if (coll_launch_number(name, number))
        return SW_COLL_OK;
    if (text)
        return coll_launch_say(error, SW_COLL_INVALID, "%s=%.40s is no number", name, text);
    return coll_launch_say(error, SW_COLL_INVALID, "%s is not set, and the rank of a launcher is",
                           name);
}

/* RANK alone is a word that anything may use. */
static bool has_variables(const struct variables *one)
{
    return getenv(one->rank) && (strcmp(one->rank, "RANK") != 0 || coll_launch_has_master());
}

enum sw_coll_status coll_launch_variables(struct sw_coll_launch *launch,
                                          struct sw_coll_error *error)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const struct variables *one = &launchers[i];
        if (!has_variables(one))
            continue;
        const bool has_other = one->other_size && !getenv(one->size);
        const char *size = has_other ? one->other_size : one->size;
        enum sw_coll_status status = read_variable(one->rank, &launch->rank, error);
        if (!status)
            status = read_variable(size, &launch->size, error);
        if (!status && launch->rank >= launch->size)
            status = coll_launch_say(error, SW_COLL_INVALID, "%s=%u, but %s=%u", one->rank,
                                     launch->rank, size, launch->size);
        if (status)
            return status;
        if (!coll_launch_number(one->local_rank, &launch->local_rank))
            launch->local_rank = 0;
        if (!coll_launch_number(one->local_size, &launch->local_size))
            launch->local_size = 0;
        snprintf(launch->launcher, sizeof(launch->launcher), "the variables of %s", one->name);
        return SW_COLL_OK;
    }
    return SW_COLL_OK;
}

bool coll_launch_has_master(void)
{
    return getenv("RANK") && getenv("WORLD_SIZE") && getenv("MASTER_ADDR") && getenv("MASTER_PORT");
}

/* MASTER_PORT is where torch has its store, in the process of rank 0 or in torchrun. */
enum sw_coll_status coll_launch_master(struct sw_coll_launch *launch, struct sw_coll_error *error)
{
    const char *host = getenv("MASTER_ADDR"), *text = getenv("MASTER_PORT");
    uint16_t port;
    if (!*host || strlen(host) > sizeof(launch->meet) - 16)
        return coll_launch_say(error, SW_COLL_INVALID, "MASTER_ADDR=%.40s is no host", host);
    if (!mover_parse_port(text, &port) || !port)
        return coll_launch_say(error, SW_COLL_INVALID, "MASTER_PORT=%.40s is no port", text);
    snprintf(launch->meet, sizeof(launch->meet), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host,
             port == UINT16_MAX ? port - 1u : port + 1u);
    return SW_COLL_OK;
}

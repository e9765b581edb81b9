/* SPDX-License-Identifier: BSD-2-Clause */
/* Which way this process was started. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/launch/way.h"
#include "common/time/clock.h"

enum sw_coll_status coll_launch_say(struct sw_coll_error *error, enum sw_coll_status status,
                                    const char *format, ...)
{
    va_list arguments;
    if (!error)
        return status;
    error->status = status;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return status;
}

static enum sw_coll_status say_no_meeting(const struct sw_coll_launch *launch,
                                          struct sw_coll_error *error)
{
    if (!launch->size)
        return coll_launch_say(error, SW_COLL_INVALID,
                               "no launcher has started this process: there is neither PMIx, PMI, "
                               "RANK with WORLD_SIZE, MASTER_ADDR and MASTER_PORT, nor "
                               "SIDEWIRE_COLL_RANK");
    return coll_launch_say(error, SW_COLL_INVALID,
                           "rank %u of %u, by %s, does not know where rank 0 is: set "
                           "SIDEWIRE_COLL_MEET to HOST:PORT of rank 0",
                           launch->rank, launch->size, launch->launcher);
}

bool coll_launch_is_there(void)
{
    struct sw_coll_launch launch = {.size = 0};
    return coll_launch_variables(&launch, NULL) || launch.size || coll_launch_has_pmi() ||
           coll_launch_has_pmix();
}

/* Torchrun within a step of Slurm, or below mpirun, is nearer than these. */
static enum sw_coll_status find_meeting(struct sw_coll_launch *launch, uint64_t deadline_ns,
                                        struct sw_coll_error *error)
{
    const char *meet = getenv("SIDEWIRE_COLL_MEET");
    if (launch->size && meet && *meet) {
        if (strlen(meet) >= sizeof(launch->meet))
            return coll_launch_say(error, SW_COLL_INVALID, "SIDEWIRE_COLL_MEET is too long");
        strcpy(launch->meet, meet);
        return SW_COLL_OK;
    }
    if (getenv("SIDEWIRE_COLL_RANK"))
        return say_no_meeting(launch, error);
    if (coll_launch_has_master())
        return coll_launch_master(launch, error);
    if (coll_launch_has_pmi())
        return coll_launch_pmi(launch, deadline_ns, error);
    if (coll_launch_has_pmix())
        return coll_launch_pmix(launch, deadline_ns, error);
    if (launch->size && coll_launch_has_slurm())
        return coll_launch_slurm(launch, error);
    return say_no_meeting(launch, error);
}

enum sw_coll_status sw_coll_launch_find(struct sw_coll_launch *launch, uint32_t timeout_ms,
                                        struct sw_coll_error *error)
{
    struct sw_coll_launch found;
    const uint64_t deadline_ns = mover_now_ns() + timeout_ms * NS_PER_MS;
    memset(&found, 0, sizeof(found));
    enum sw_coll_status status = coll_launch_variables(&found, error);
    if (!status)
        status = find_meeting(&found, deadline_ns, error);
    if (!status && found.size > SW_COLL_RANKS_MAX)
        status = coll_launch_say(error, SW_COLL_PROTOCOL,
                                 "%s: this is rank %u of %u, and ranks are %u at most",
                                 found.launcher, found.rank, found.size, SW_COLL_RANKS_MAX);
    if (status)
        return status;
    /* Numbers of this host serve to choose addresses and processors: unlikely ones are none. */
    if (found.local_size > found.size || found.local_rank >= found.size ||
        (found.local_size && found.local_rank >= found.local_size))
        found.local_size = found.local_rank = 0;
    *launch = found;
    return SW_COLL_OK;
}

enum sw_coll_status sw_coll_options_from_launcher(struct sw_coll_options *options,
                                                  struct sw_coll_error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct sw_coll_launch launch;
    enum sw_coll_status status = SW_COLL_OK;
    pthread_mutex_lock(&lock);
    if (!launch.size)
        status = sw_coll_launch_find(&launch, options->timeout_ms, error);
    pthread_mutex_unlock(&lock);
    if (status)
        return status;
    options->rank = launch.rank;
    options->size = launch.size;
    options->meet = launch.meet;
    options->token = *launch.token ? launch.token : NULL;
    return SW_COLL_OK;
}

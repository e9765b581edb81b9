/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/command/place.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/text/number.h"

static const struct {
    const char *name, *rank, *size;
} launchers[] = {
    {"Sidewire", "SIDEWIRE_COLL_RANK", "SIDEWIRE_COLL_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
};

static bool read_variable(const char *name, uint32_t *out, char *error, size_t error_bytes)
{
    const char *text = getenv(name), *rest = "";
    uint64_t number = 0;
    if (text && mover_parse_number(text, &number, &rest) && !*rest && number <= UINT32_MAX) {
        *out = (uint32_t)number;
        return true;
    }
    snprintf(error, error_bytes,
             text ? "%s=%.40s is no number" : "%s is not set, and the rank of a launcher is", name,
             text ? text : "");
    return false;
}

bool co_place_of_launcher(struct co_place *place, char *error, size_t error_bytes)
{
    *place = (struct co_place){.meet = getenv("SIDEWIRE_COLL_MEET")};
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        if (!getenv(launchers[i].rank))
            continue;
        if (!read_variable(launchers[i].rank, &place->rank, error, error_bytes) ||
            !read_variable(launchers[i].size, &place->size, error, error_bytes))
            return false;
        place->launcher = launchers[i].name;
        if (place->rank < place->size)
            return true;
        snprintf(error, error_bytes, "%s=%u, but %s=%u", launchers[i].rank, place->rank,
                 launchers[i].size, place->size);
        return false;
    }
    return true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/ranks.h"

#include <assert.h>
#include <stdio.h>

enum { ROOM_OF_ONE = 40 }; /* and for " and 1023 more" behind it */

size_t coll_ranks_text(const bool *is_named, uint32_t size, uint32_t named_max, char *text,
                       size_t room)
{
    uint32_t count = 0, said = 0;
    size_t used = 0;
    assert(room > ROOM_OF_ONE);
    for (uint32_t i = 0; i < size; i++)
        count += is_named[i];
    used += (size_t)snprintf(text, room, count == 1 ? "rank" : "ranks");
    for (uint32_t i = 0; i < size && said < named_max && used + ROOM_OF_ONE < room; i++) {
        if (!is_named[i])
            continue;
        const char *between = !said ? " " : said + 1 == count ? " and " : ", ";
        used += (size_t)snprintf(text + used, room - used, "%s%u", between, i);
        said++;
    }
    if (said < count)
        used += (size_t)snprintf(text + used, room - used, " and %u more", count - said);
    return used;
}

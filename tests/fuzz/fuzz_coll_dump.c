/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Dumps of strangers: up to four, with a NUL between two. Each is read or refused with a reason,
 * and what was read is diagnosed together.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/dump/diagnose.h"

enum { DUMPS = 4 };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct coll_dump *dumps[DUMPS];
    const struct coll_dump *sorted[DUMPS];
    struct coll_findings findings = {0};
    size_t count = 0;
    for (size_t i = 0; i < DUMPS && size; i++) {
        const uint8_t *end = memchr(data, 0, size);
        const size_t bytes = end ? (size_t)(end - data) : size;
        char error[120] = "";
        dumps[count] = coll_dump_of_text((const char *)data, bytes, error, sizeof(error));
        demand(dumps[count] || *error);
        count += dumps[count] != NULL;
        data += bytes;
        size -= bytes;
        if (size)
            data++, size--;
    }
    memcpy(sorted, dumps, count * sizeof(*sorted));
    demand(coll_diagnose(sorted, count, &findings));
    demand(!count == !findings.count);
    for (size_t i = 0; i < findings.count; i++) {
        const struct coll_finding *found = &findings.all[i];
        demand(*found->text && (found->rank == COLL_NO_RANK || found->rank < SW_COLL_RANKS_MAX));
        for (const char *at = found->text; *at; at++)
            demand((unsigned char)*at >= ' ' && (unsigned char)*at < 0x7f);
    }
    free(findings.all);
    for (size_t i = 0; i < count; i++)
        coll_dump_free(dumps[i]);
    return 0;
}

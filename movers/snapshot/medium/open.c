/* SPDX-License-Identifier: BSD-2-Clause */
/* Which medium a text names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "snapshot/medium/kinds.h"

static const struct {
    const char *prefix;
    snap_kind_open *open;
} kinds[] = {
    {"file:", snap_file_open},
    {"nvme:", snap_nvme_open},
    {"peer:", snap_peer_open},
    {"pmem:", snap_pmem_open},
};

int snap_medium_open(const char *text, const struct snap_medium_options *options, char *error,
                     size_t error_bytes, struct snap_medium **medium)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const size_t length = strlen(kinds[i].prefix);
        if (strncmp(text, kinds[i].prefix, length))
            continue;
        const int code = kinds[i].open(text + length, options, error, error_bytes, medium);
        if (!code)
            snprintf((*medium)->name, sizeof((*medium)->name), "%s", text);
        return code;
    }
    snprintf(error, error_bytes,
             "\"%.100s\" is no sink: name it file:PATH, peer:ADDR[:PORT]/NAME, "
             "pmem:ADDR[:PORT]/REGION or nvme:ADDR[:PORT]/NQN[/NSID]",
             text);
    return -EINVAL;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Access rules, `--allow CLIENT:RIGHTS[@VOLUME]`: who may read or write which volumes. Knows no
 * network. */
#ifndef SW_SNAPSHOT_RULES_H
#define SW_SNAPSHOT_RULES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/wire/message.h"

enum { SNAP_RULES_MAX = 64, SNAP_MAY_READ = 1, SNAP_MAY_WRITE = 2 };

struct snap_rule {
    bool is_for_all;
    struct in6_addr client; /* of IPv4 the mapped one */
    uint32_t rights;
    char volume[SNAP_WIRE_NAME_BYTES]; /* empty: all of them */
};

/* Without any rule everybody may do all. */
struct snap_rules {
    struct snap_rule of[SNAP_RULES_MAX];
    uint32_t count;
};

/* 0, or -EINVAL and what is wrong. */
int snap_rules_add(struct snap_rules *rules, const char *text, char *error, size_t error_bytes);
/* What this client may do with that volume; `volume` NULL: with any. */
uint32_t snap_rules_rights(const struct snap_rules *rules, const struct in6_addr *client,
                           const char *volume);

#endif

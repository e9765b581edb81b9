/* SPDX-License-Identifier: BSD-2-Clause */
/* The options that make a target a member of a group. */
#ifndef SW_MOVERS_NVME_TARGET_GROUP_H
#define SW_MOVERS_NVME_TARGET_GROUP_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include "nvme/target/config/config.h"
#include "nvme/target/group/group.h"

struct nv_group_place {
    char text[128];
    const char *address, *port, *region;
};

struct nv_group_args {
    const char *member, *listen; /* NULL: not said */
    bool is_all_active;
    uint32_t copy_count, timeout_s;
    struct nv_group_place copies[NVG_COPIES_MAX];
    char group_address[NVT_ADDR_MAX], group_port[8];
};

/* "--group ADDR[:PORT][/REGION]", once more; "--active one|all"; "--group-timeout S". */
void nv_group_take_copy(struct argp_state *state, void *place, char *text);
void nv_group_take_active(struct argp_state *state, void *place, char *text);
void nv_group_take_timeout(struct argp_state *state, void *place, char *text);
/* Whether this target is to be a member. */
bool nv_group_is_wanted(const struct nv_group_args *args);
/* Ends the program where the options do not fit together. */
void nv_group_check(struct argp_state *state, const struct nv_group_args *args);
/* What the group has to know, out of the options and the ports of the configuration; it points into
 * `args`. Returns 0, or -EINVAL and why in `error`. */
int nv_group_settings(struct nv_group_args *args, const struct nvt_config *config,
                      struct nvg_settings *out, char *error, size_t error_bytes);

#endif

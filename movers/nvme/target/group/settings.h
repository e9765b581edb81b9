/* SPDX-License-Identifier: BSD-2-Clause */
/* What a member of a group may be started with. */
#ifndef SW_MOVERS_NVME_GROUP_SETTINGS_H
#define SW_MOVERS_NVME_GROUP_SETTINGS_H

#include "nvme/target/group/group.h"

/* Returns 0, or -EINVAL and why in `error`, as users read it. */
int nvg_settings_check(const struct nvg_settings *s, char *error, size_t error_bytes);

#endif

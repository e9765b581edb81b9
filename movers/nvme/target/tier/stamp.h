/* SPDX-License-Identifier: BSD-2-Clause */
/* What FILE is, so that the next one who opens the log knows whether others have changed it. */
#ifndef SW_MOVERS_NVME_TIER_STAMP_H
#define SW_MOVERS_NVME_TIER_STAMP_H

#include <sys/stat.h>

#include "nvme/target/tier/tier.h"

struct nvt_tier_looker; /* at a FILE, off the loop */

/* 0 or a negative errno. */
int nvt_tier_stamp_now(int fd, struct nvt_tier_stamp *stamp);
/* `fd` stays the caller's. NULL: no memory. */
struct nvt_tier_looker *nvt_tier_looker_open(int fd);
void nvt_tier_looker_close(struct nvt_tier_looker *looker);
/* Sees to it that the file's time is on its disk, then calls nvt_tier_stamped(). */
void nvt_tier_look(struct nvt_tier_looker *looker, struct nvt_tier *tier);

#endif

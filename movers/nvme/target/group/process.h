/* SPDX-License-Identifier: BSD-2-Clause */
/* What a process tells of itself, so that another one of its host can end it and no other. */
#ifndef SW_MOVERS_NVME_GROUP_PROCESS_H
#define SW_MOVERS_NVME_GROUP_PROCESS_H

#include "nvme/target/group/group.h"

/* Sets all but the member's name and slot; the incarnation is drawn. */
void nvg_process_describe(struct nvg_former *who);
uint64_t nvg_draw(void);

#endif

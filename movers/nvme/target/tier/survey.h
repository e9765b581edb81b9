/* SPDX-License-Identifier: BSD-2-Clause */
/* What the copies of a log are, before it is opened; and new logs. */
#ifndef SW_MOVERS_NVME_TIER_SURVEY_H
#define SW_MOVERS_NVME_TIER_SURVEY_H

#include "nvme/target/tier/tier.h"

/* Fills in `super`, and slots and states of the copies. Copies on which nothing was ever written
 * become a log, if none has one, or a copy of the log that the others have. Returns 0, or a
 * negative errno and why: too few copies, another log, FILE that has changed. */
int nvt_tier_survey(struct nvt_tier *tier, const struct nvt_tier_setup *setup, char *error,
                    size_t error_size);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Log pages. Each is made whole and then cut to what the host asks for, but discovery's. */
#ifndef SW_MOVERS_NVME_MODEL_LOG_H
#define SW_MOVERS_NVME_MODEL_LOG_H

#include <stdint.h>

struct nvt_request;

uint16_t nvt_log_measure(struct nvt_request *request, uint64_t *bytes);
void nvt_get_log(struct nvt_request *request);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Identify: what a controller and its namespaces are. */
#ifndef SW_MOVERS_NVME_MODEL_IDENTIFY_H
#define SW_MOVERS_NVME_MODEL_IDENTIFY_H

struct nvt_request;

void nvt_identify(struct nvt_request *request);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservation commands, and what they do to controllers and commands of other hosts. */
#ifndef SW_MOVERS_NVME_MODEL_RESERVE_H
#define SW_MOVERS_NVME_MODEL_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

struct nvt_namespace;
struct nvt_request;

uint16_t nvt_resv_measure(struct nvt_request *request, uint64_t *bytes);
void nvt_resv_register(struct nvt_request *request);
void nvt_resv_report(struct nvt_request *request);
void nvt_resv_acquire(struct nvt_request *request);
void nvt_resv_release(struct nvt_request *request);
uint16_t nvt_resv_set_mask(struct nvt_request *request);
uint16_t nvt_resv_get_mask(struct nvt_request *request);
uint16_t nvt_resv_persistence(struct nvt_request *request, bool sets);
/* A request that came to the namespace after `entry` preemptions is done. */
void nvt_preemptors_pass(struct nvt_namespace *ns, uint64_t entry);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservation commands, and what they do to controllers and commands of other hosts. */
#ifndef SW_MOVERS_NVME_MODEL_RESERVE_H
#define SW_MOVERS_NVME_MODEL_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

struct nvt_namespace;
struct nvt_request;
struct nvt_reservation;
struct nvt_reservation_change;
struct nvt_reservation_effect;

uint16_t nvt_resv_measure(struct nvt_request *request, uint64_t *bytes);
/* Register, Acquire and Release. */
void nvt_resv_change(struct nvt_request *request);
struct nvt_reservation_change nvt_resv_change_of(const struct nvt_request *request);
/* What such a command makes of a reservation, and how it ends then. */
uint16_t nvt_resv_compute(const struct nvt_request *request, struct nvt_reservation *r,
                          struct nvt_reservation_effect *effect);
void nvt_resv_conclude(struct nvt_request *request, const struct nvt_reservation_effect *effect);
/* The same for a change whose command is answered elsewhere: by another target, later, or already.
 * `preemptor` goes on; NULL: it is not here. */
void nvt_resv_take_effect(struct nvt_namespace *ns, const struct nvt_reservation_effect *effect,
                          const struct nvt_request *preemptor);
/* nvt_commits_are_calm() follows, perhaps before this returns, when all commands are done that have
 * come to the namespace, but `others`. `barrier` is all zeroes the first time, or waits still. */
void nvt_resv_await_calm(struct nvt_namespace *ns, struct nvt_request *barrier, uint32_t others);
void nvt_resv_report(struct nvt_request *request);
uint16_t nvt_resv_set_mask(struct nvt_request *request);
uint16_t nvt_resv_get_mask(struct nvt_request *request);
uint16_t nvt_resv_persistence(struct nvt_request *request, bool sets);
/* A request that came to the namespace after `entry` preemptions is done. */
void nvt_preemptors_pass(struct nvt_namespace *ns, uint64_t entry);

#endif

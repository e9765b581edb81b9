/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Authentication of queues: whose is due, its commands, and how long it may take. The large numbers
 * of a Diffie-Hellman group are for the worker: while it has a step of the exchange, the machine
 * and the data of the command are its own, and the queue does all but authenticate.
 */
#ifndef SW_MOVERS_NVME_MODEL_AUTHENTICATE_H
#define SW_MOVERS_NVME_MODEL_AUTHENTICATE_H

#include <stdbool.h>
#include <stdint.h>

struct nvt_auth_policy;
struct nvt_queue;
struct nvt_request;
struct nvt_subsystem;

/* At Connect: is the host to prove itself? */
uint16_t nvt_auth_begin(struct nvt_queue *queue, struct nvt_subsystem *subsystem,
                        const char *host_nqn);
void nvt_auth_end(struct nvt_queue *queue);
/* The queue takes no other command yet. */
bool nvt_auth_is_due(const struct nvt_queue *queue);
bool nvt_auth_is_late(const struct nvt_queue *queue, uint64_t now_ns);
uint16_t nvt_auth_measure(struct nvt_request *request, uint64_t *bytes);
void nvt_auth_run(struct nvt_request *request);
/* A host in the list has to prove itself on each queue that it connects from now on, as the policy
 * says, whose names are filled in here. NULL: it need not. -ENOENT: it is not in the list. */
int nvt_subsystem_authenticate(struct nvt_subsystem *subsystem, const char *host_nqn,
                               const struct nvt_auth_policy *policy);

#endif

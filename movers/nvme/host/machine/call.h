/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands on the admin queue, and those of the library's own on any. */
#ifndef SW_MOVERS_NVME_HOST_CALL_H
#define SW_MOVERS_NVME_HOST_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

/* A command of the library's own. It is dropped with the connection, and then `done` never comes.
 * False: no slot is left. */
bool nvh_own_command(struct sw_nvme_queue *queue, const struct nvf_sqe *sqe, sw_nvme_done *done,
                     void *arg);
/* One on the admin queue, whose callback gets the controller. */
void nvh_call(struct sw_nvme_controller *controller, const struct nvf_sqe *sqe, bool is_endless,
              sw_nvme_done *done);
/* A command of the program on the admin queue. With the lock held. OK: `done` comes, once. */
enum sw_nvme_status nvh_admin_submit(struct sw_nvme_controller *controller,
                                     const struct nvf_sqe *sqe, sw_nvme_done *done, void *arg);
struct nvf_sqe nvh_fabrics_command(enum nvf_type type);
struct nvf_sqe nvh_property_set(uint32_t offset, uint64_t value);
struct nvf_sqe nvh_property_get(uint32_t offset, bool is_wide);
/* The property CC. */
uint32_t nvh_cc(bool shuts_down);

#endif

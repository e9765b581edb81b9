/* SPDX-License-Identifier: BSD-2-Clause */
/* Authentication of a queue, between Connect and its first other command. */
#ifndef SW_MOVERS_NVME_HOST_AUTHENTICATE_H
#define SW_MOVERS_NVME_HOST_AUTHENTICATE_H

#include <stdint.h>

#include "sidewire/nvme.h"

enum sw_nvme_status nvh_secrets_take(struct sw_nvme_controller *controller,
                                     const struct sw_nvme_options *options,
                                     struct sw_nvme_error *error);
void nvh_secrets_forget(struct sw_nvme_controller *controller);
/* Authenticates where dword 0 of Connect's completion asks for it. Then: nvh_queue_up(). */
void nvh_auth_start(struct sw_nvme_queue *queue, uint32_t connect_result);
void nvh_auth_stop(struct sw_nvme_queue *queue);
/* The peer ends the connection: says why, if the exchange is the reason. */
void nvh_auth_cut(struct sw_nvme_queue *queue);

#endif

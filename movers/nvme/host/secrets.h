/* SPDX-License-Identifier: BSD-2-Clause */
/* Secrets of a controller, and the exchange that proves them: the machine's port to both. */
#ifndef SW_MOVERS_NVME_HOST_SECRETS_H
#define SW_MOVERS_NVME_HOST_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/host/controller.h"
#include "sidewire/nvme.h"

enum sw_nvme_status nvh_secrets_take(struct nvh_host *host, const struct sw_nvme_options *options,
                                     struct sw_nvme_error *error);
void nvh_secrets_forget(struct nvh_host *host);

/* Those of the port. */
bool nvh_secrets_start(struct sw_nvme_queue *queue);
size_t nvh_secrets_send(struct sw_nvme_queue *queue, uint8_t *message);
void nvh_secrets_receive(struct sw_nvme_queue *queue, const uint8_t *message, size_t len);
void nvh_secrets_end(struct sw_nvme_queue *queue);

#endif

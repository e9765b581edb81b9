/* SPDX-License-Identifier: BSD-2-Clause */
/* Commands by opcode: those of Fabrics (fabrics.c), of an admin queue (admin.c), and I/O (io.c). */
#ifndef SW_MOVERS_NVME_MODEL_COMMAND_H
#define SW_MOVERS_NVME_MODEL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/target/model/request.h"

/* How a command is served. */
struct nvt_command {
    const char *name;
    enum nvt_direction direction;
    /* The bytes of data that it moves. NULL: none. A status ends the request. */
    uint16_t (*measure)(struct nvt_request *request, uint64_t *bytes);
    /* Serves it: ends in nvt_request_finish(), at once or later. */
    void (*run)(struct nvt_request *request);
    bool in_discovery; /* discovery controllers have it, too */
    uint32_t effects;  /* of the log page; 0: not listed */
};

/* NULL: there is none. */
const struct nvt_command *nvt_fabrics_command(uint8_t type);
const struct nvt_command *nvt_admin_command(uint8_t opcode);
const struct nvt_command *nvt_io_command(uint8_t opcode);
/* Namespace of an I/O command; fills request->ns, or gives the status: also that of a path or a
 * reservation that is in the way. */
uint16_t nvt_request_namespace(struct nvt_request *request);

#endif

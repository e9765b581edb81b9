/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a target is changed and asked while it serves: a socket in the file system, for its own user
 * and root. One message asks, one answers, both JSON:
 *
 *   {"command": "add", "subsysnqn": "nqn.x", "namespaces": ["ram:64M"], "hosts": [], "listen": []}
 *   {"ok": true, "text": "namespace 2 ..."}
 *
 * "remove" takes the same lists, of namespaces their numbers. The answer to "status" (status.h)
 * comes as a descriptor beside it, since it may be long.
 */
#ifndef SW_MOVERS_NVME_CONTROL_H
#define SW_MOVERS_NVME_CONTROL_H

#include "nvme/target/server/control_folder.h"
#include "nvme/target/server/serving.h"

enum {
    NVR_CLIENTS_MAX = 8,
    NVR_MESSAGE_MAX = 65536,
};

struct nvr_control;

struct nvr_client {
    struct nvr_watch watch; /* fd -1: nobody */
    struct nvr_control *control;
};

struct nvr_control {
    struct nvr_watch watch;
    struct nvr_watch again; /* a timer: without a descriptor for the next one nobody is let in */
    struct nvr_serving *serving;
    const char *machine_id;
    uint32_t in_capsule_bytes; /* of ports that are added */
    struct nvr_client clients[NVR_CLIENTS_MAX];
    unsigned next_client;
    char path[NVR_PATH_MAX];
};

/* Listens at `path`; NULL: at PID.sock of that folder, which it makes. Returns 0, or a negative
 * errno with `error` saying what is wrong. */
int nvr_control_open(struct nvr_control *control, struct nvr_serving *serving, const char *path,
                     char *error, size_t error_bytes);
void nvr_control_close(struct nvr_control *control);

#endif

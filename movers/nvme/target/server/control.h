/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a target is changed and asked while it serves, by common/serve/control.h:
 *
 *   {"command": "add", "subsysnqn": "nqn.x", "namespaces": ["ram:64M"], "hosts": [], "listen": []}
 *
 * "remove" takes the same lists, of namespaces their numbers. status.h has the status.
 */
#ifndef SW_MOVERS_NVME_CONTROL_H
#define SW_MOVERS_NVME_CONTROL_H

#include "common/serve/control.h"
#include "nvme/target/server/serving.h"

#define NVR_METRICS_PORT "9420" /* of common/serve/exporter.h */

struct nvr_control {
    struct mover_control base;
    /* The caller sets these. */
    struct nvr_serving *serving;
    const char *machine_id;
    uint32_t in_capsule_bytes; /* of ports that are added */
    void (*stop)(void *stop_context);
    void *stop_context;
};

/* mover_control_open() by the server's first thread; `base` is closed. */
int nvr_control_open(struct nvr_control *control, const char *path, char *error,
                     size_t error_bytes);

#endif

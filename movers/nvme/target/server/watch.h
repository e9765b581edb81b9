/* SPDX-License-Identifier: BSD-2-Clause */
/* What the loop of a thread waits for. */
#ifndef SW_MOVERS_NVME_SERVER_WATCH_H
#define SW_MOVERS_NVME_SERVER_WATCH_H

#include <stdbool.h>

/* A descriptor that a thread looks at; its owner has it. */
struct nvr_watch {
    int fd;
    bool is_own; /* ready() touches nothing of others; else they stand still meanwhile */
    void (*ready)(struct nvr_watch *watch); /* there is something to read; must not block */
    void *context;
};

#endif

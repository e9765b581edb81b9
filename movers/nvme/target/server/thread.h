/* SPDX-License-Identifier: BSD-2-Clause */
/* The threads of the target, for the files of the server. */
#ifndef SW_MOVERS_NVME_THREAD_H
#define SW_MOVERS_NVME_THREAD_H

#include "nvme/target/server/rdma.h"

/* Serves until the server ends. */
void nvr_thread_run(struct nvr_thread *thread);
/* A turn of one that is not run any more. */
void nvr_thread_drain(struct nvr_thread *thread);

/* A ready() for an eventfd that only wakes. */
void nvr_watch_drain(struct nvr_watch *watch);

#endif

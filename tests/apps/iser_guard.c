/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into the programs of libiscsi 1.19. Its thread for connection events looks once more
 * for an event after the last one, at a channel that the main thread has destroyed meanwhile and
 * replaced by NULL, and crashes, with any device. Here it gets an error, and ends.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

struct rdma_event_channel;
struct rdma_cm_event;

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
    static int (*next)(struct rdma_event_channel *, struct rdma_cm_event **);
    if (channel == NULL) {
        errno = EINVAL;
        return -1;
    }
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "rdma_get_cm_event");
    return next(channel, event);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for the data of requests. Small ones of the admin queue, Connect and authentication have
 * places of their queue's own, so that they wait behind nobody else. All others have pieces of the
 * thread's pool, by the share of their host.
 */
#ifndef SW_MOVERS_NVME_MODEL_MEMORY_H
#define SW_MOVERS_NVME_MODEL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct nvt_request;
struct nvt_thread;

/* False: there is none now, and the request waits. */
bool nvt_memory_get(struct nvt_request *request);
/* Its data is not needed any more. Others that wait for it are served by nvt_thread_feed(). */
void nvt_request_give_memory(struct nvt_request *request);
/* A piece that it took of its share beside its data. */
void nvt_memory_give_piece(struct nvt_request *request, uint8_t *piece);
/* Goes on with requests that wait for memory, if some has become free. Only whoever runs the thread
 * calls it, between other things: what gives memory back may be ending a queue, and must not find
 * that its requests have begun again meanwhile. `is_alone`: the other threads stand still. Whether
 * there were any. */
bool nvt_thread_feed(struct nvt_thread *thread, bool is_alone);

#endif

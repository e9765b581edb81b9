/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capsules that have come: each lies in the receive that it came by, until its command is answered.
 * Where receives are shared, a queue keeps no more of them than are left for others. What comes
 * beyond that is copied, and its receive is for the next one at once.
 */
#include <stdlib.h>
#include <string.h>

#include "nvme/target/rdma.h"

enum { COPIES_MAX = 16 << 20 }; /* bytes, of all queues that share receives */

static bool is_beyond_share(const struct nvr_queue *queue)
{
    const struct nvr_receives *receives = queue->receives;
    return receives->srq && queue->receives_taken + 1 > receives->count - receives->taken - 1;
}

static void capsule_read(const struct nvr_receives *receives, const struct nvr_capsule *capsule,
                         uint8_t *out)
{
    const size_t data_bytes = capsule->len_bytes - NVF_SQE_BYTES;
    memcpy(out, receives->capsules + capsule->receive * NVF_SQE_BYTES, NVF_SQE_BYTES);
    if (data_bytes)
        memcpy(out + NVF_SQE_BYTES,
               receives->data + (size_t)capsule->receive * receives->in_capsule_bytes, data_bytes);
}

void nvr_capsule_take(struct nvr_queue *queue, struct nvr_capsule *capsule)
{
    struct nvr_receives *receives = queue->receives;
    capsule->is_there = true;
    if (is_beyond_share(queue) && receives->copied_bytes + capsule->len_bytes <= COPIES_MAX)
        capsule->copy = malloc(capsule->len_bytes);
    if (capsule->copy) {
        capsule_read(receives, capsule, capsule->copy);
        receives->copied_bytes += capsule->len_bytes;
        (void)(nvr_receive_give(receives, NULL, capsule->receive) &&
               nvr_receives_post(receives, NULL));
        return;
    }
    receives->taken++;
    queue->receives_taken++;
}

bool nvr_capsule_give(struct nvr_queue *queue, struct nvr_capsule *capsule)
{
    struct nvr_receives *receives = queue->receives;
    if (!capsule->is_there)
        return true;
    capsule->is_there = false;
    if (capsule->copy) {
        receives->copied_bytes -= capsule->len_bytes;
        free(capsule->copy);
        capsule->copy = NULL;
        return true;
    }
    receives->taken--;
    queue->receives_taken--;
    return nvr_receive_give(receives, queue, capsule->receive);
}

void nvr_capsule_place(const struct nvr_queue *queue, const struct nvr_capsule *capsule,
                       struct nvt_request *request)
{
    static struct nvt_region of_copies = {.fixed_buffer = -1};
    struct nvr_receives *receives = queue->receives;
    const uint8_t *sqe =
        capsule->copy ? capsule->copy : receives->capsules + capsule->receive * NVF_SQE_BYTES;
    memcpy(&request->sqe, sqe, NVF_SQE_BYTES);
    if (!receives->in_capsule_bytes)
        return;
    request->in_capsule =
        capsule->copy ? capsule->copy + NVF_SQE_BYTES
                      : receives->data + (size_t)capsule->receive * receives->in_capsule_bytes;
    request->in_capsule_region = capsule->copy ? &of_copies : &receives->data_region;
    request->in_capsule_bytes = capsule->len_bytes - NVF_SQE_BYTES;
}

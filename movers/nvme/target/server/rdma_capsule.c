/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_capsule.h"

#include <stdlib.h>
#include <string.h>

#include "nvme/target/model/request.h"
#include "nvme/target/model/share.h"
#include "nvme/target/server/rdma_queue.h"
#include "nvme/target/server/rdma_receives.h"

enum { TIMES_OF_RECEIVES = 3 };
enum { COPIES_MAX = 64 << 20 }; /* bytes, of all queues that share receives */

static bool is_beyond_share(const struct nvr_queue *queue)
{
    const struct nvr_receives *receives = queue->receives;
    const struct nvt_share *share = queue->queue.share;
    if (!receives->srq)
        return false;
    const uint32_t left = receives->count - receives->taken - 1;
    return queue->receives_taken + 1 > left ||
           (share && share->address->receives + 1 > TIMES_OF_RECEIVES * left);
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

/* A queue that has none may have one, whatever others have: so its Connect is heard. */
static bool make_copy(struct nvr_queue *queue, struct nvr_capsule *capsule)
{
    struct nvr_receives *receives = queue->receives;
    struct nvt_share *share = queue->has_copy ? queue->queue.share : NULL;
    const size_t left_bytes =
        receives->copied_bytes < COPIES_MAX ? COPIES_MAX - receives->copied_bytes : 0;
    if (queue->has_copy && (!share || !nvt_share_copy(share, capsule->len_bytes, left_bytes)))
        return false;
    capsule->copy = malloc(capsule->len_bytes);
    if (!capsule->copy) {
        if (share)
            nvt_share_drop_copy(share, capsule->len_bytes);
        return false;
    }
    capsule->share = share;
    queue->has_copy = true;
    receives->copied_bytes += capsule->len_bytes;
    return true;
}

static void free_copy(struct nvr_queue *queue, struct nvr_capsule *capsule)
{
    queue->receives->copied_bytes -= capsule->len_bytes;
    if (capsule->share)
        nvt_share_drop_copy(capsule->share, capsule->len_bytes);
    else
        queue->has_copy = false;
    free(capsule->copy);
    capsule->copy = NULL;
}

bool nvr_capsule_take(struct nvr_queue *queue, struct nvr_capsule *capsule)
{
    struct nvr_receives *receives = queue->receives;
    if (!is_beyond_share(queue)) {
        receives->taken++;
        queue->receives_taken++;
        capsule->share = receives->srq ? queue->queue.share : NULL;
        if (capsule->share)
            nvt_share_keep_receive(capsule->share);
    } else if (make_copy(queue, capsule)) {
        capsule_read(receives, capsule, capsule->copy);
        (void)(nvr_receive_give(receives, NULL, capsule->receive) &&
               nvr_receives_post(receives, NULL));
    } else {
        return false;
    }
    return capsule->is_there = true;
}

bool nvr_capsule_give(struct nvr_queue *queue, struct nvr_capsule *capsule)
{
    struct nvr_receives *receives = queue->receives;
    if (!capsule->is_there)
        return true;
    capsule->is_there = false;
    if (capsule->copy) {
        free_copy(queue, capsule);
        return true;
    }
    receives->taken--;
    queue->receives_taken--;
    if (capsule->share)
        nvt_share_give_receive(capsule->share);
    return nvr_receive_give(receives, queue, capsule->receive);
}

void nvr_capsule_place(const struct nvr_queue *queue, const struct nvr_capsule *capsule,
                       struct nvt_request *request)
{
    static struct mover_region of_copies;
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

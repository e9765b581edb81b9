/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/request.h"

#include <string.h>

#include "common/time/units.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/memory.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/send.h"
#include "nvme/wire/sgl.h"

enum {
    RANGE_BYTES = 16,
    RANGES_MAX = 256,
    BLOCKS_MAX = 65536,
    FUA_BIT = 1 << 30,
    DEAC_BIT = 1 << 25,
    IGNORE_KEY_BIT = 1 << 3, /* of reservations, and the type there */
    TYPE_SHIFT = 8
};

int nvh_slot_take(struct sw_nvme_queue *queue, bool is_call)
{
    /* One slot is always left for Connect: a queue of N entries holds N - 1 commands. */
    if (!queue->free_count || (!is_call && queue->used >= queue->size - 1))
        return -1;
    const uint32_t index = queue->free_slots[--queue->free_count];
    struct nvh_slot *slot = &queue->slots[index];
    const uint8_t generation = slot->generation;
    *slot =
        (struct nvh_slot){.generation = generation, .is_call = is_call, .number = queue->number++};
    queue->used += !is_call;
    return (int)index;
}

/* Whether requests fail instead of waiting for a controller that is away. */
static bool fails_fast(struct sw_nvme_queue *queue)
{
    const struct sw_nvme_controller *c = queue->controller;
    if (queue->phase == NVH_UP)
        return false;
    if (queue->phase == NVH_ENDED || atomic_load(&c->state) == SW_NVME_DEAD)
        return true;
    return atomic_load(&c->state) == SW_NVME_LOST && c->options.fast_io_fail_tmo_s >= 0 &&
           queue->port->now_ns() - atomic_load(&c->lost_ns) >
               (uint64_t)c->options.fast_io_fail_tmo_s * NS_PER_S;
}

static enum sw_nvme_status check_data(const struct sw_nvme_queue *queue,
                                      const struct sw_nvme_io *io)
{
    const struct sw_nvme_mem *mem = io->mem;
    if (!mem || mem->controller != queue->controller)
        return SW_NVME_NOT_REGISTERED;
    const uintptr_t first = (uintptr_t)io->data, start = (uintptr_t)mem->data;
    if (!io->bytes || first < start || first - start > mem->bytes ||
        io->bytes > mem->bytes - (first - start))
        return SW_NVME_NOT_REGISTERED;
    if (io->bytes > queue->controller->info.transfer_max_bytes || io->bytes > NVH_KEYED_MAX)
        return SW_NVME_TOO_LONG;
    return SW_NVME_OK;
}

/* A command with no data yet, in a new slot: its index, or -1. */
static int begin_request(struct sw_nvme_queue *queue, const struct sw_nvme_io *io, uint8_t opcode)
{
    const int taken = nvh_slot_take(queue, false);
    if (taken < 0)
        return -1;
    struct nvh_slot *slot = &queue->slots[taken];
    struct nvf_sqe *sqe = &queue->sqes[taken];
    slot->replays = true;
    slot->done = io->done;
    slot->result.arg = io->arg;
    *sqe = (struct nvf_sqe){.opcode = opcode, .nsid = htole32(io->nsid)};
    nvf_sgl_set_none(sqe);
    return taken;
}

static void attach_data(struct sw_nvme_queue *queue, uint32_t index, const struct sw_nvme_io *io,
                        bool to_controller)
{
    struct nvh_slot *slot = &queue->slots[index];
    struct nvf_sqe *sqe = &queue->sqes[index];
    const struct sw_nvme_controller *c = queue->controller;
    if (to_controller && io->bytes <= c->info.in_capsule_bytes) {
        nvf_sgl_set_in_capsule(sqe, io->bytes);
        slot->capsule_bytes = io->bytes;
        slot->data = io->data;
        slot->lkey = io->mem->lkey;
    } else {
        nvf_sgl_set_keyed(sqe, (uintptr_t)io->data, io->bytes, io->mem->rkey, false);
    }
}

static void set_blocks(struct nvf_sqe *sqe, const struct sw_nvme_io *io, uint32_t flags)
{
    sqe->cdw10 = htole32((uint32_t)io->lba);
    sqe->cdw11 = htole32((uint32_t)(io->lba >> 32));
    sqe->cdw12 = htole32((io->blocks - 1) | flags);
}

/* A slot for a request, and its command but for what is its own. */
static enum sw_nvme_status request_take_slot(struct sw_nvme_queue *queue,
                                             const struct sw_nvme_io *io, uint8_t opcode,
                                             uint32_t *slot)
{
    if (nvh_is_forked(queue->controller))
        return SW_NVME_FORKED;
    if (fails_fast(queue))
        return SW_NVME_UNREACHABLE;
    const int taken = begin_request(queue, io, opcode);
    *slot = (uint32_t)taken;
    return taken < 0 ? SW_NVME_AGAIN : SW_NVME_OK;
}

static enum sw_nvme_status submit_data(struct sw_nvme_queue *queue, const struct sw_nvme_io *io,
                                       uint8_t opcode, bool to_controller)
{
    if (!io->blocks || io->blocks > BLOCKS_MAX || io->flags & ~SW_NVME_FUA)
        return SW_NVME_INVALID;
    enum sw_nvme_status status = check_data(queue, io);
    if (status)
        return status;
    uint32_t slot;
    status = request_take_slot(queue, io, opcode, &slot);
    if (status)
        return status;
    attach_data(queue, slot, io, to_controller);
    set_blocks(&queue->sqes[slot], io, io->flags & SW_NVME_FUA ? FUA_BIT : 0);
    nvh_slot_submit(queue, slot);
    return SW_NVME_OK;
}

enum sw_nvme_status sw_nvme_read(struct sw_nvme_queue *queue, const struct sw_nvme_io *io)
{
    if (queue->over)
        return queue->over(queue, NVH_READ, io, NULL);
    return submit_data(queue, io, nvme_cmd_read, false);
}

enum sw_nvme_status sw_nvme_write(struct sw_nvme_queue *queue, const struct sw_nvme_io *io)
{
    if (queue->over)
        return queue->over(queue, NVH_WRITE, io, NULL);
    return submit_data(queue, io, nvme_cmd_write, true);
}

enum sw_nvme_status sw_nvme_compare(struct sw_nvme_queue *queue, const struct sw_nvme_io *io)
{
    if (queue->over)
        return queue->over(queue, NVH_COMPARE, io, NULL);
    return submit_data(queue, io, nvme_cmd_compare, true);
}

enum sw_nvme_status sw_nvme_write_zeroes(struct sw_nvme_queue *queue, const struct sw_nvme_io *io)
{
    if (queue->over)
        return queue->over(queue, NVH_ZEROES, io, NULL);
    if (!io->blocks || io->blocks > BLOCKS_MAX ||
        io->flags & ~(uint32_t)(SW_NVME_FUA | SW_NVME_DEALLOCATE))
        return SW_NVME_INVALID;
    uint32_t slot;
    const enum sw_nvme_status status = request_take_slot(queue, io, nvme_cmd_write_zeroes, &slot);
    if (status)
        return status;
    set_blocks(&queue->sqes[slot], io,
               (io->flags & SW_NVME_FUA ? FUA_BIT : 0u) |
                   (io->flags & SW_NVME_DEALLOCATE ? DEAC_BIT : 0u));
    nvh_slot_submit(queue, slot);
    return SW_NVME_OK;
}

enum sw_nvme_status sw_nvme_flush(struct sw_nvme_queue *queue, const struct sw_nvme_io *io)
{
    if (queue->over)
        return queue->over(queue, NVH_FLUSH, io, NULL);
    uint32_t slot;
    const enum sw_nvme_status status = request_take_slot(queue, io, nvme_cmd_flush, &slot);
    if (status)
        return status;
    nvh_slot_submit(queue, slot);
    return SW_NVME_OK;
}

enum sw_nvme_status sw_nvme_dsm(struct sw_nvme_queue *queue, const struct sw_nvme_io *io)
{
    if (queue->over)
        return queue->over(queue, NVH_DSM, io, NULL);
    enum { DEALLOCATE = 1 << 2 };
    if (io->bytes % RANGE_BYTES || io->bytes / RANGE_BYTES > RANGES_MAX)
        return SW_NVME_INVALID;
    enum sw_nvme_status status = check_data(queue, io);
    if (status)
        return status;
    uint32_t slot;
    status = request_take_slot(queue, io, nvme_cmd_dsm, &slot);
    if (status)
        return status;
    attach_data(queue, slot, io, true);
    queue->sqes[slot].cdw10 = htole32(io->bytes / RANGE_BYTES - 1);
    queue->sqes[slot].cdw11 = htole32(DEALLOCATE);
    nvh_slot_submit(queue, slot);
    return SW_NVME_OK;
}

/* ---- reservations ---- */

/* A command with keys. Its effect depends on what was there before, so it is not sent again. */
static enum sw_nvme_status submit_keys(struct sw_nvme_queue *queue, const struct sw_nvme_io *io,
                                       uint8_t opcode, uint32_t cdw10,
                                       const struct sw_nvme_resv *resv)
{
    const uint64_t keys[] = {htole64(resv->key), htole64(resv->other)};
    struct sw_nvme_io sized = *io;
    sized.bytes = opcode == nvme_cmd_resv_release ? sizeof(*keys) : sizeof(keys);
    enum sw_nvme_status status = check_data(queue, &sized);
    if (status)
        return status;
    uint32_t slot;
    status = request_take_slot(queue, &sized, opcode, &slot);
    if (status)
        return status;
    memcpy(sized.data, keys, sized.bytes);
    attach_data(queue, slot, &sized, true);
    queue->slots[slot].replays = false;
    queue->sqes[slot].cdw10 =
        htole32(cdw10 | resv->action | (resv->ignores_key ? IGNORE_KEY_BIT : 0u));
    nvh_slot_submit(queue, slot);
    return SW_NVME_OK;
}

static bool is_type(uint32_t type)
{
    return type >= SW_NVME_RESV_WRITE_EXCLUSIVE && type <= SW_NVME_RESV_EXCLUSIVE_ACCESS_ALL;
}

enum sw_nvme_status sw_nvme_resv_register(struct sw_nvme_queue *queue, const struct sw_nvme_io *io,
                                          const struct sw_nvme_resv *resv)
{
    if (queue->over)
        return queue->over(queue, NVH_RESV_REGISTER, io, resv);
    enum { POWER_SHIFT = 30 };
    if (resv->action > SW_NVME_RESV_REPLACE || resv->type || resv->power == 1 ||
        resv->power > SW_NVME_RESV_KEEP)
        return SW_NVME_INVALID;
    return submit_keys(queue, io, nvme_cmd_resv_register, resv->power << POWER_SHIFT, resv);
}

enum sw_nvme_status sw_nvme_resv_acquire(struct sw_nvme_queue *queue, const struct sw_nvme_io *io,
                                         const struct sw_nvme_resv *resv)
{
    if (queue->over)
        return queue->over(queue, NVH_RESV_ACQUIRE, io, resv);
    if (resv->action > SW_NVME_RESV_PREEMPT_ABORT || !is_type(resv->type) || resv->power)
        return SW_NVME_INVALID;
    return submit_keys(queue, io, nvme_cmd_resv_acquire, resv->type << TYPE_SHIFT, resv);
}

enum sw_nvme_status sw_nvme_resv_release(struct sw_nvme_queue *queue, const struct sw_nvme_io *io,
                                         const struct sw_nvme_resv *resv)
{
    if (queue->over)
        return queue->over(queue, NVH_RESV_RELEASE, io, resv);
    const bool clears = resv->action == SW_NVME_RESV_CLEAR;
    if (resv->action > SW_NVME_RESV_CLEAR || resv->other || resv->power ||
        !(is_type(resv->type) || (clears && !resv->type)))
        return SW_NVME_INVALID;
    return submit_keys(queue, io, nvme_cmd_resv_release, resv->type << TYPE_SHIFT, resv);
}

enum sw_nvme_status sw_nvme_resv_report(struct sw_nvme_queue *queue, const struct sw_nvme_io *io)
{
    if (queue->over)
        return queue->over(queue, NVH_RESV_REPORT, io, NULL);
    enum { EXTENDED = 1 }; /* over fabrics hosts have IDs of 128 bits */
    if (io->bytes % 4)
        return SW_NVME_INVALID;
    enum sw_nvme_status status = check_data(queue, io);
    if (status)
        return status;
    uint32_t slot;
    status = request_take_slot(queue, io, nvme_cmd_resv_report, &slot);
    if (status)
        return status;
    attach_data(queue, slot, io, false);
    queue->sqes[slot].cdw10 = htole32(io->bytes / 4 - 1);
    queue->sqes[slot].cdw11 = htole32(EXTENDED);
    nvh_slot_submit(queue, slot);
    return SW_NVME_OK;
}

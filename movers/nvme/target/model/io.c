/* SPDX-License-Identifier: BSD-2-Clause */
/* I/O commands. */
#include <string.h>

#include "common/base/minmax.h"
#include "nvme/target/model/command.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/memory.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reservation.h"
#include "nvme/target/model/reserve.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/subsystem.h"

enum { FUA = 1 << 14, DEALLOCATE = 1 << 9, DSM_DEALLOCATE = 1 << 2 };

static uint16_t io_final_status(uint16_t status)
{
    return status | NVME_SC_DNR;
}

static uint16_t ana_status(const struct nvt_ctrl *ctrl, const struct nvt_namespace *ns)
{
    switch (nvt_ctrl_ana_state(ctrl, ns->ana_group)) {
    case NVME_ANA_STATE_INACCESSIBLE:
        return NVF_PATH(NVME_SC_ANA_INACCESSIBLE);
    case NVME_ANA_STATE_PERSISTENT_LOSS:
        return NVF_PATH(NVME_SC_ANA_PERSISTENT_LOSS);
    case NVME_ANA_STATE_CHANGE:
        return NVF_PATH(NVME_SC_ANA_TRANSITION);
    case NVME_ANA_STATE_OPTIMIZED:
    case NVME_ANA_STATE_NONOPTIMIZED:
        break;
    }
    return 0;
}

uint16_t nvt_request_namespace(struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t nsid = le32toh(request->sqe.nsid);
    struct nvt_namespace *ns =
        nsid && nsid <= NVT_NSID_MAX ? ctrl->subsystem->namespaces[nsid] : NULL;
    if (!ns) {
        request->error_offset = 4;
        return io_final_status(NVME_SC_INVALID_NS);
    }
    const uint16_t status = ana_status(ctrl, ns);
    if (status) /* it is not a user: a namespace that hosts ask for in vain comes to rest */
        return status;
    request->ns = ns;
    request->ns_entry = ns->preemptions;
    ns->tallies[request->queue->thread->number].users++;
    return nvt_reservation_allows(&ns->reservation, &ctrl->host_id,
                                  nvt_access_of_io(request->sqe.opcode));
}

static uint64_t first_block(const struct nvt_request *request)
{
    return (uint64_t)le32toh(request->sqe.cdw11) << 32 | le32toh(request->sqe.cdw10);
}

/* Fills request->io with the range of the command. */
static uint16_t take_range(struct nvt_request *request, enum nvt_io_kind kind)
{
    const uint16_t status = nvt_request_namespace(request);
    if (status)
        return status;
    struct nvt_namespace *ns = request->ns;
    const uint64_t first = first_block(request),
                   count = (le32toh(request->sqe.cdw12) & 0xffff) + 1ull;
    const bool writes = kind == NVT_WRITE || kind == NVT_WRITE_ZEROES;
    if (writes && ns->is_read_only)
        return io_final_status(NVME_SC_NS_WRITE_PROTECTED);
    if (first >= ns->blocks || count > ns->blocks - first) {
        request->error_offset = 40;
        return io_final_status(NVME_SC_LBA_RANGE);
    }
    request->io = (struct nvt_io){.kind = kind,
                                  .offset = first << ns->block_shift,
                                  .len_bytes = count << ns->block_shift,
                                  .is_durable = le32toh(request->sqe.cdw12) >> 16 & FUA,
                                  .user = request};
    return 0;
}

/* Data that a backend has in memory moves from and to where it lies. */
static uint16_t use_memory_of_backend(struct nvt_request *request)
{
    struct nvt_namespace *ns = request->ns;
    struct nvt_backend *backend = ns->backend;
    const uint16_t status =
        backend->memory && backend->ops->reach ? backend->ops->reach(backend, &request->io) : 0;
    if (status || !backend->memory)
        return status;
    request->data = backend->memory + request->io.offset;
    request->region = &ns->region;
    return 0;
}

static uint16_t read_measure(struct nvt_request *request, uint64_t *bytes)
{
    const uint16_t status = take_range(request, NVT_READ);
    *bytes = request->io.len_bytes;
    return status ? status : use_memory_of_backend(request);
}

static uint16_t write_measure(struct nvt_request *request, uint64_t *bytes)
{
    const uint16_t status = take_range(request, NVT_WRITE);
    *bytes = request->io.len_bytes;
    if (status)
        return status;
    /* In a group this process alone writes to the medium: what a NIC, or the process of a host,
     * still stores there would outlive the fence, which ends this process. */
    const bool is_direct = !request->queue->ctrl->subsystem->is_grouped;
    if (is_direct && !request->sgl.is_in_capsule && request->sgl.len_bytes >= *bytes)
        return use_memory_of_backend(request);
    return 0;
}

static void io_done(struct nvt_io *io, uint16_t status)
{
    struct nvt_request *request = io->user;
    struct nvt_namespace *ns = request->ns;
    const uint64_t blocks = io->len_bytes >> ns->block_shift;
    struct nvt_tally *tally = &ns->tallies[request->queue->thread->number];
    if (!status && io->kind == NVT_READ) {
        tally->reads++;
        tally->read_blocks += blocks;
    } else if (!status && io->kind == NVT_WRITE) {
        tally->writes++;
        tally->written_blocks += blocks;
    }
    nvt_request_finish(request, status);
}

/* Nobody waits for it: its host or namespace has gone, or a reservation has been preempted. */
static uint16_t io_given_up(const struct nvt_io *io)
{
    const struct nvt_request *request = io->user;
    if (request->is_preempted)
        return NVME_SC_CMD_ABORTED_PREMEPT;
    if (request->queue->is_gone)
        return NVME_SC_ABORT_REQ;
    if (request->ns->is_resting) /* another target serves it from now on */
        return NVF_PATH(NVME_SC_ANA_INACCESSIBLE);
    return request->ns->is_removed ? io_final_status(NVME_SC_INVALID_NS) : 0;
}

/* Its host, in whose turn it is served. */
static void put_owner(struct nvt_request *request)
{
    request->io.host = request->queue->ctrl;
    request->io.address = request->queue->share ? request->queue->share->address : NULL;
    request->io.given_up = io_given_up;
}

static void give_to_backend(struct nvt_request *request)
{
    struct nvt_namespace *ns = request->ns;
    struct nvt_backend *backend = ns->backend;
    request->io.uring = request->queue->thread->uring;
    request->io.slices = &request->queue->thread->slices;
    request->io.memory = backend->memory ? &ns->region : NULL;
    put_owner(request);
    backend->ops->submit(backend, &request->io);
}

static void target_io_submit_io(struct nvt_request *request)
{
    request->io.data = request->data;
    request->io.done = io_done;
    give_to_backend(request);
}

/* ---- flush, write zeroes, verify ---- */

/* From nsid `from` on, the next one that there is; 0: none. */
static uint32_t next_namespace(const struct nvt_ctrl *ctrl, uint32_t from)
{
    for (uint32_t nsid = from; nsid <= NVT_NSID_MAX; nsid++)
        if (ctrl->subsystem->namespaces[nsid])
            return nsid;
    return 0;
}

static void flush_one(struct nvt_request *request);

static void io_flush_done(struct nvt_io *io, uint16_t status)
{
    struct nvt_request *request = io->user;
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t next =
        request->steps_left && !status && ctrl ? next_namespace(ctrl, request->ns->nsid + 1) : 0;
    if (!next)
        return nvt_request_finish(request, status);
    nvt_request_leave(request);
    request->sqe.nsid = htole32(next);
    flush_one(request);
}

static void flush_one(struct nvt_request *request)
{
    const uint16_t status = nvt_request_namespace(request);
    if (status)
        return nvt_request_finish(request, status);
    request->io = (struct nvt_io){.kind = NVT_FLUSH, .done = io_flush_done, .user = request};
    give_to_backend(request);
}

static void run_flush(struct nvt_request *request)
{
    if (le32toh(request->sqe.nsid) == NVME_NSID_ALL) { /* one after the other */
        const uint32_t first = next_namespace(request->queue->ctrl, 1);
        if (!first)
            return nvt_request_finish(request, 0);
        request->sqe.nsid = htole32(first);
        request->steps_left = 1; /* more may follow */
    }
    flush_one(request);
}

static void run_range(struct nvt_request *request, enum nvt_io_kind kind)
{
    const uint16_t status = take_range(request, kind);
    if (status)
        return nvt_request_finish(request, status);
    request->io.deallocates = le32toh(request->sqe.cdw12) >> 16 & DEALLOCATE;
    target_io_submit_io(request);
}

static void run_write_zeroes(struct nvt_request *request)
{
    run_range(request, NVT_WRITE_ZEROES);
}

static void run_verify(struct nvt_request *request)
{
    run_range(request, NVT_VERIFY);
}

/* ---- compare ---- */

static uint16_t compare_measure(struct nvt_request *request, uint64_t *bytes)
{
    const uint16_t status = take_range(request, NVT_READ);
    *bytes = request->io.len_bytes;
    return status;
}

static uint16_t compare_data(const struct nvt_io *io, const uint8_t *expected)
{
    return memcmp(io->data, expected, io->len_bytes)
               ? io_final_status(NVF_MEDIA(NVME_SC_COMPARE_FAILED))
               : 0;
}

static void compare_done(struct nvt_io *io, uint16_t status)
{
    struct nvt_request *request = io->user;
    if (!status)
        status = compare_data(io, request->data);
    nvt_memory_give_piece(request, io->data);
    nvt_request_finish(request, status);
}

static bool compare_begin_part(struct nvt_io *io);

/* Also of one that nobody wants any more while it waits: it has no data then. */
static void compare_end_part(struct nvt_io *io, uint16_t status)
{
    struct nvt_request *request = io->user;
    struct nvt_parts *compares = &request->queue->thread->compares;
    uint8_t *place = io->data;
    if (place && !status)
        status = compare_data(io, request->data + request->data_bytes - request->steps_left);
    request->steps_left -= place ? (uint32_t)io->len_bytes : 0;
    io->offset += io->len_bytes;
    io->data = NULL;
    const bool is_over = status || !request->steps_left;
    if (place)
        nvt_parts_give(compares, place);
    if (is_over)
        nvt_request_finish(request, status);
    else
        nvt_parts_add(compares, request->ns->backend->disk, io, compare_begin_part);
}

static bool compare_begin_part(struct nvt_io *io)
{
    struct nvt_request *request = io->user;
    *io = (struct nvt_io){
        .kind = NVT_READ,
        .offset = io->offset,
        .len_bytes = mover_min_u64(request->steps_left, NVT_PART_BYTES),
        .data = nvt_parts_take(&request->queue->thread->compares),
        .done = compare_end_part,
        .user = request,
    };
    give_to_backend(request);
    return true;
}

/* One that waited for a second piece of the pool, and held the first, could wait for ever. */
static void run_compare(struct nvt_request *request)
{
    struct nvt_thread *thread = request->queue->thread;
    const uint64_t mine_bytes =
        request->pool_bytes ? mover_pool_piece_bytes(request->pool_bytes) : 0;
    request->share = request->queue->share;
    request->io.data = nvt_share_take(request->share, (uint32_t)request->io.len_bytes, mine_bytes);
    if (!request->io.data) {
        request->steps_left = request->data_bytes;
        request->io.done = compare_end_part;
        put_owner(request);
        return nvt_parts_add(&thread->compares, request->ns->backend->disk, &request->io,
                             compare_begin_part);
    }
    request->io.done = compare_done;
    give_to_backend(request);
}

/* ---- dataset management: ranges one after the other ---- */

static uint16_t dsm_measure(struct nvt_request *request, uint64_t *bytes)
{
    const uint32_t ranges = (le32toh(request->sqe.cdw10) & 0xff) + 1;
    *bytes = ranges * sizeof(struct nvme_dsm_range);
    return 0;
}

static void dsm_next(struct nvt_request *request);

static void dsm_done(struct nvt_io *io, uint16_t status)
{
    struct nvt_request *request = io->user;
    if (status && (status & 0xff) != NVME_SC_INVALID_OPCODE) /* a hint that cannot be followed */
        return nvt_request_finish(request, status);
    if (request->queue->is_gone) /* nobody waits for the other ranges */
        return nvt_request_finish(request, NVME_SC_ABORT_REQ);
    dsm_next(request);
}

static void dsm_next(struct nvt_request *request)
{
    const struct nvt_namespace *ns = request->ns;
    const uint32_t ranges = (le32toh(request->sqe.cdw10) & 0xff) + 1;
    request->io.user = request;
    const uint16_t status = io_given_up(&request->io);
    if (status)
        return nvt_request_finish(request, status);
    while (request->steps_left) {
        struct nvme_dsm_range range;
        memcpy(&range, request->data + (ranges - request->steps_left) * sizeof(range),
               sizeof(range));
        request->steps_left--;
        const uint64_t first = le64toh(range.slba), count = le32toh(range.nlb);
        if (!count)
            continue;
        request->io = (struct nvt_io){.kind = NVT_DEALLOCATE,
                                      .offset = first << ns->block_shift,
                                      .len_bytes = count << ns->block_shift,
                                      .done = dsm_done,
                                      .user = request};
        give_to_backend(request);
        return;
    }
    nvt_request_finish(request, 0);
}

static bool ranges_are_valid(const struct nvt_request *request, uint32_t ranges)
{
    for (uint32_t i = 0; i < ranges; i++) {
        struct nvme_dsm_range range;
        memcpy(&range, request->data + i * sizeof(range), sizeof(range));
        const uint64_t first = le64toh(range.slba), count = le32toh(range.nlb);
        if (count && (first >= request->ns->blocks || count > request->ns->blocks - first))
            return false;
    }
    return true;
}

static void run_dsm(struct nvt_request *request)
{
    const uint32_t ranges = (le32toh(request->sqe.cdw10) & 0xff) + 1;
    uint16_t status = nvt_request_namespace(request);
    if (!status && request->ns->is_read_only)
        status = io_final_status(NVME_SC_NS_WRITE_PROTECTED);
    if (!status && !ranges_are_valid(request, ranges))
        status = io_final_status(NVME_SC_LBA_RANGE);
    if (status || !(le32toh(request->sqe.cdw11) & DSM_DEALLOCATE) ||
        !request->ns->backend->can_deallocate)
        return nvt_request_finish(request, status);
    request->steps_left = ranges;
    dsm_next(request);
}

const struct nvt_command *nvt_io_command(uint8_t opcode)
{
    enum { SUPPORTED = NVME_CMD_EFFECTS_CSUPP, CHANGES = SUPPORTED | NVME_CMD_EFFECTS_LBCC };
    static const struct nvt_command commands[256] = {
        [nvme_cmd_flush] = {.name = "flush", .run = run_flush, .effects = SUPPORTED},
        [nvme_cmd_write] = {.name = "write",
                            .direction = NVT_FROM_HOST,
                            .measure = write_measure,
                            .run = target_io_submit_io,
                            .effects = CHANGES},
        [nvme_cmd_read] = {.name = "read",
                           .direction = NVT_TO_HOST,
                           .measure = read_measure,
                           .run = target_io_submit_io,
                           .effects = SUPPORTED},
        [nvme_cmd_compare] = {.name = "compare",
                              .direction = NVT_FROM_HOST,
                              .measure = compare_measure,
                              .run = run_compare,
                              .effects = SUPPORTED},
        [nvme_cmd_write_zeroes] = {.name = "write zeroes",
                                   .run = run_write_zeroes,
                                   .effects = CHANGES},
        [nvme_cmd_dsm] = {.name = "dataset management",
                          .direction = NVT_FROM_HOST,
                          .measure = dsm_measure,
                          .run = run_dsm,
                          .effects = CHANGES},
        [nvme_cmd_resv_register] = {.name = "reservation register",
                                    .direction = NVT_FROM_HOST,
                                    .measure = nvt_resv_measure,
                                    .run = nvt_resv_change,
                                    .effects = SUPPORTED},
        [nvme_cmd_resv_report] = {.name = "reservation report",
                                  .direction = NVT_TO_HOST,
                                  .measure = nvt_resv_measure,
                                  .run = nvt_resv_report,
                                  .effects = SUPPORTED},
        [nvme_cmd_resv_acquire] = {.name = "reservation acquire",
                                   .direction = NVT_FROM_HOST,
                                   .measure = nvt_resv_measure,
                                   .run = nvt_resv_change,
                                   .effects = SUPPORTED},
        [nvme_cmd_resv_release] = {.name = "reservation release",
                                   .direction = NVT_FROM_HOST,
                                   .measure = nvt_resv_measure,
                                   .run = nvt_resv_change,
                                   .effects = SUPPORTED},
        [nvme_cmd_verify] = {.name = "verify", .run = run_verify, .effects = SUPPORTED},
    };
    return commands[opcode].run ? &commands[opcode] : NULL;
}

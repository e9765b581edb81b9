/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/admin.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "nvme/host/completion.h"
#include "nvme/host/controller.h"
#include "nvme/host/group.h"
#include "nvme/host/machine/call.h"
#include "nvme/host/machine/reconnect.h"
#include "nvme/host/queue.h"
#include "nvme/wire/sgl.h"

enum { ADMIN_TIMEOUT_MS = 60000, PAGE_BYTES = 4096, LOG_PIECE_BYTES = 4096 };

struct waiter {
    bool is_done;
    struct sw_nvme_result result;
};

static void wake_waiter(void *arg, const struct sw_nvme_result *result)
{
    struct waiter *waiter = arg;
    waiter->result = *result;
    waiter->is_done = true;
}

static enum sw_nvme_status send_call(struct sw_nvme_controller *c, const struct nvf_sqe *sqe,
                                     struct waiter *waiter)
{
    pthread_mutex_lock(&nvh_host_of(c)->lock);
    const enum sw_nvme_status status = nvh_admin_submit(c, sqe, wake_waiter, waiter);
    pthread_mutex_unlock(&nvh_host_of(c)->lock);
    return status;
}

static bool admin_is_done(struct sw_nvme_controller *c, const struct waiter *waiter)
{
    pthread_mutex_lock(&nvh_host_of(c)->lock);
    nvh_admin_tend(c, mover_now_ns());
    const bool done = waiter->is_done;
    pthread_mutex_unlock(&nvh_host_of(c)->lock);
    return done;
}

static void sleep_call(struct sw_nvme_controller *c, const struct waiter *waiter)
{
    struct nvh_host *host = nvh_host_of(c);
    pthread_mutex_lock(&host->lock);
    const bool sleeps = nvh_queue_arm(&host->admin) && !waiter->is_done;
    struct pollfd fd = {.fd = host->admin.epoll_fd, .events = POLLIN};
    pthread_mutex_unlock(&host->lock);
    if (sleeps)
        poll(&fd, 1, NVH_TEND_NS / 1000000);
}

enum sw_nvme_status nvh_call_wait(struct sw_nvme_controller *controller, const struct nvf_sqe *sqe,
                                  uint64_t deadline_ns, struct sw_nvme_result *result)
{
    struct waiter waiter = {0};
    const enum sw_nvme_status status = send_call(controller, sqe, &waiter);
    *result = (struct sw_nvme_result){.status = status};
    if (status)
        return status;
    while (!admin_is_done(controller, &waiter)) {
        if (mover_now_ns() > deadline_ns) {
            /* Its memory can only be taken back with the queue pair. */
            struct sw_nvme_error error;
            nvh_error(&error, SW_NVME_UNREACHABLE, "%s did not answer admin command 0x%x in time",
                      controller->where, sqe->opcode);
            nvh_lose(controller, atomic_load(&controller->epoch), &error, 0);
            while (!admin_is_done(controller, &waiter))
                ;
            if (waiter.result.status == SW_NVME_MAYBE_DONE)
                waiter.result.status = SW_NVME_TIMEOUT;
            break;
        }
        sleep_call(controller, &waiter);
    }
    *result = waiter.result;
    result->arg = NULL;
    return result->status;
}

static bool make_bounce(struct nvh_host *host)
{
    if (!host->bounce) {
        void *bounce = mmap(NULL, SW_NVME_ADMIN_MAX, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bounce == MAP_FAILED)
            return false;
        host->bounce = bounce;
    }
    if (!host->bounce_mr && host->pd)
        host->bounce_mr =
            ibv_reg_mr(host->pd, host->bounce, SW_NVME_ADMIN_MAX,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    return host->bounce_mr;
}

static enum sw_nvme_status run_admin(struct sw_nvme_controller *c,
                                     const struct sw_nvme_admin *command,
                                     struct sw_nvme_result *result)
{
    struct nvf_sqe sqe = {
        .opcode = command->opcode,
        .nsid = htole32(command->nsid),
        .cdw10 = htole32(command->cdw10),
        .cdw11 = htole32(command->cdw11),
        .cdw12 = htole32(command->cdw12),
        .cdw13 = htole32(command->cdw13),
        .cdw14 = htole32(command->cdw14),
        .cdw15 = htole32(command->cdw15),
    };
    struct nvh_host *host = nvh_host_of(c);
    nvf_sgl_set_none(&sqe);
    if (command->bytes) {
        if (!make_bounce(host))
            return SW_NVME_NO_MEMORY;
        if (command->is_write)
            memcpy(host->bounce, command->data, command->bytes);
        else
            memset(host->bounce, 0, command->bytes);
        nvf_sgl_set_keyed(&sqe, (uintptr_t)host->bounce, command->bytes, host->bounce_mr->rkey,
                          false);
    }
    const uint32_t timeout_ms = command->timeout_ms ? command->timeout_ms : ADMIN_TIMEOUT_MS;
    const enum sw_nvme_status status =
        nvh_call_wait(c, &sqe, sw_nvme_deadline_ms(timeout_ms), result);
    if (!status && command->bytes && !command->is_write)
        memcpy(command->data, host->bounce, command->bytes);
    return status;
}

enum sw_nvme_status sw_nvme_admin(struct sw_nvme_controller *controller,
                                  const struct sw_nvme_admin *command,
                                  struct sw_nvme_result *result)
{
    struct sw_nvme_result unasked;
    if (!result)
        result = &unasked;
    *result = (struct sw_nvme_result){.status = SW_NVME_INVALID};
    if (command->bytes > SW_NVME_ADMIN_MAX || (command->bytes && !command->data))
        return SW_NVME_INVALID;
    if (nvh_is_forked(controller))
        return result->status = SW_NVME_FORKED;
    if (controller->group)
        return nvh_group_admin(controller, command, result);
    pthread_mutex_lock(&nvh_host_of(controller)->bounce_lock);
    const enum sw_nvme_status status = run_admin(controller, command, result);
    pthread_mutex_unlock(&nvh_host_of(controller)->bounce_lock);
    result->status = status;
    return status;
}

enum sw_nvme_status sw_nvme_identify(struct sw_nvme_controller *controller, uint8_t cns,
                                     uint32_t nsid, void *data, struct sw_nvme_result *result)
{
    const struct sw_nvme_admin command = {.opcode = nvme_admin_identify,
                                          .nsid = nsid,
                                          .cdw10 = cns,
                                          .data = data,
                                          .bytes = PAGE_BYTES};
    return sw_nvme_admin(controller, &command, result);
}

enum sw_nvme_status sw_nvme_get_log(struct sw_nvme_controller *controller, uint8_t page,
                                    uint32_t nsid, uint64_t offset, void *data, uint32_t bytes,
                                    struct sw_nvme_result *result)
{
    enum { RETAIN = 1 << 15 };
    enum sw_nvme_status status = bytes && bytes % 4 == 0 ? SW_NVME_OK : SW_NVME_INVALID;
    for (uint32_t at = 0; !status && at < bytes;) {
        const uint32_t piece = mover_min_u32(bytes - at, LOG_PIECE_BYTES);
        const uint32_t dwords = piece / 4 - 1;
        const bool is_last = at + piece == bytes;
        const struct sw_nvme_admin command = {
            .opcode = nvme_admin_get_log_page,
            .nsid = nsid,
            .cdw10 = page | (dwords & 0xffff) << 16 | (is_last ? 0 : RETAIN),
            .cdw11 = dwords >> 16,
            .cdw12 = (uint32_t)(offset + at),
            .cdw13 = (uint32_t)((offset + at) >> 32),
            .data = (uint8_t *)data + at,
            .bytes = piece,
        };
        status = sw_nvme_admin(controller, &command, result);
        at += piece;
    }
    return status;
}

enum sw_nvme_status sw_nvme_get_feature(struct sw_nvme_controller *controller, uint8_t feature,
                                        uint32_t nsid, struct sw_nvme_result *result)
{
    const struct sw_nvme_admin command = {
        .opcode = nvme_admin_get_features, .nsid = nsid, .cdw10 = feature};
    return sw_nvme_admin(controller, &command, result);
}

enum sw_nvme_status sw_nvme_set_feature(struct sw_nvme_controller *controller, uint8_t feature,
                                        uint32_t nsid, uint32_t value,
                                        struct sw_nvme_result *result)
{
    const struct sw_nvme_admin command = {
        .opcode = nvme_admin_set_features, .nsid = nsid, .cdw10 = feature, .cdw11 = value};
    return sw_nvme_admin(controller, &command, result);
}

enum sw_nvme_status sw_nvme_namespace_of(struct sw_nvme_controller *controller, uint32_t nsid,
                                         struct sw_nvme_namespace *out,
                                         struct sw_nvme_result *result)
{
    enum { SHIFT_MIN = 9, SHIFT_MAX = 16 };
    struct nvme_id_ns id;
    struct sw_nvme_result own;
    result = result ? result : &own;
    const enum sw_nvme_status status =
        sw_nvme_identify(controller, NVME_IDENTIFY_CNS_NS, nsid, &id, result);
    if (status)
        return status;
    const uint32_t format = (id.flbas & 0xf) | (id.flbas >> 1 & 0x30);
    const struct nvme_lbaf *lbaf = &id.lbaf[format];
    if (!le64toh(id.nsze)) {
        /* A namespace that is not there is all zeroes. */
        *result = (struct sw_nvme_result){.status = SW_NVME_FAILED,
                                          .nvme_status = NVME_SC_INVALID_NS | NVME_SC_DNR};
        return SW_NVME_FAILED;
    }
    if (lbaf->ds < SHIFT_MIN || lbaf->ds > SHIFT_MAX) {
        result->status = SW_NVME_PROTOCOL;
        return SW_NVME_PROTOCOL;
    }
    *out = (struct sw_nvme_namespace){.nsid = nsid,
                                      .block_bytes = 1u << lbaf->ds,
                                      .metadata_bytes = le16toh(lbaf->ms),
                                      .blocks = le64toh(id.nsze)};
    return SW_NVME_OK;
}

enum sw_nvme_status sw_nvme_list(struct sw_nvme_controller *controller, uint32_t after,
                                 uint32_t *nsids, uint32_t nsids_max, uint32_t *count,
                                 struct sw_nvme_result *result)
{
    struct nvme_ns_list list;
    static_assert(sizeof(list) == PAGE_BYTES, "a list of namespaces");
    const enum sw_nvme_status status =
        sw_nvme_identify(controller, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, after, &list, result);
    if (status)
        return status;
    uint32_t found = 0;
    /* Ascending, or a controller could keep its caller busy for ever. */
    while (found < nsids_max && found < NVME_ID_NS_LIST_MAX && le32toh(list.ns[found]) > after) {
        nsids[found] = le32toh(list.ns[found]);
        after = nsids[found++];
    }
    *count = found;
    return SW_NVME_OK;
}

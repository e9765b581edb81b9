/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/setup.h"

#include <string.h>

#include "common/base/minmax.h"
#include "common/time/units.h"
#include "nvme/host/machine/authenticate.h"
#include "nvme/host/machine/call.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/keepalive.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/send.h"
#include "nvme/wire/sgl.h"

enum {
    CAP = 0x00,
    VERSION = 0x08,
    CC = 0x14,
    CSTS = 0x1c,
    CSTS_READY = 1,
    CSTS_FATAL = 2,
    READY_PERIOD_MS = 10,
    READY_UNIT_MS = 500,
    FEATURE_QUEUES = 7,
    PAGE_BYTES = 4096,
    SGLS_KEYED = 1 << 2,
    SGLS_OFFSET = 1 << 20,
    CTRATT_TBKAS = 1 << 6,
    TRANSFER_DEFAULT = 1 << 20,
    TYPE_DISCOVERY = 2,
};

static bool check_connected(struct sw_nvme_queue *queue, const struct sw_nvme_result *result)
{
    struct sw_nvme_controller *c = queue->controller;
    if (result->status == SW_NVME_FAILED) {
        nvh_queue_break(queue, SW_NVME_FAILED, "%s refuses Connect of queue %u of %s: %s", c->where,
                        queue->qid, c->subsysnqn, sw_nvme_code_text(result->nvme_status));
        queue->error.nvme_status = result->nvme_status;
        return false;
    }
    return true;
}

void nvh_queue_up(struct sw_nvme_queue *queue)
{
    struct sw_nvme_controller *c = queue->controller;
    queue->phase = NVH_UP;
    queue->was_live = true;
    queue->tries_since_ns = 0;
    if (queue->qid) {
        atomic_store(&c->was_lost, false);
        return nvh_pending_send(queue);
    }
    c->setup.stage = NVH_SETUP_CAP;
    c->setup.waits = false;
}

static void admin_connected(void *arg, const struct sw_nvme_result *result)
{
    struct sw_nvme_queue *queue = arg;
    struct sw_nvme_controller *c = queue->controller;
    if (!check_connected(queue, result)) {
        c->gives_up = result->nvme_status & NVME_SC_DNR;
        return;
    }
    c->info.cntlid = (uint16_t)result->value;
    nvh_auth_start(queue, (uint32_t)result->value);
}

static void queue_connected(void *arg, const struct sw_nvme_result *result)
{
    struct sw_nvme_queue *queue = arg;
    if (check_connected(queue, result))
        nvh_auth_start(queue, (uint32_t)result->value);
}

void nvh_connect_send(struct sw_nvme_queue *queue)
{
    struct sw_nvme_controller *c = queue->controller;
    struct nvmf_connect_data data = {0};
    struct nvf_sqe sqe = nvh_fabrics_command(NVF_CONNECT);
    memcpy(data.hostid, c->hostid, sizeof(data.hostid));
    data.cntlid = htole16(queue->qid ? queue->cntlid : 0xffff);
    memcpy(data.subsysnqn, c->subsysnqn, strlen(c->subsysnqn));
    memcpy(data.hostnqn, c->hostnqn, strlen(c->hostnqn));
    memcpy(queue->scratch, &data, sizeof(data));
    nvf_sgl_set_keyed(&sqe, (uintptr_t)queue->scratch, sizeof(data), queue->scratch_key, false);
    sqe.cdw10 = htole32((uint32_t)queue->qid << 16);
    sqe.cdw11 = htole32(queue->size - 1);
    sqe.cdw12 = htole32(queue->qid ? 0 : c->options.keep_alive_ms);
    queue->phase = NVH_CONNECTING;
    if (!nvh_own_command(queue, &sqe, queue->qid ? queue_connected : admin_connected, queue))
        nvh_queue_break(queue, SW_NVME_SYSTEM, "no slot is left for Connect");
}

/* Terms of a controller that comes back must bear the requests and queues that are there. */
static bool own_terms(struct sw_nvme_controller *c, const struct sw_nvme_info *info)
{
    if (!c->was_live) {
        c->info = *info;
        return true;
    }
    if (info->queue_size >= c->info.queue_size &&
        info->transfer_max_bytes >= c->info.transfer_max_bytes &&
        info->in_capsule_bytes >= c->info.in_capsule_bytes)
        return true;
    c->gives_up = true;
    nvh_queue_break(c->admin, SW_NVME_UNSUPPORTED,
                    "%s came back with smaller limits than those of the requests in flight",
                    c->where);
    return false;
}

static bool identify_controller(struct sw_nvme_controller *c)
{
    struct sw_nvme_info info = c->info;
    static_assert(sizeof(struct nvme_id_ctrl) == PAGE_BYTES, "identify data");
    const struct nvme_id_ctrl *id = c->admin->scratch;
    const uint32_t sgls = le32toh(id->sgls), capsule = le32toh(id->ioccsz);
    const uint32_t maxcmd = le16toh(id->maxcmd), unit = 12 + (uint32_t)(c->setup.cap >> 48 & 0xf);
    info.is_discovery = id->cntrltype == TYPE_DISCOVERY || !strcmp(c->subsysnqn, NVF_DISCOVERY_NQN);
    if (!(sgls & SGLS_KEYED)) {
        nvh_queue_break(c->admin, SW_NVME_UNSUPPORTED, "%s has no keyed SGLs (SGLS 0x%x)", c->where,
                        sgls);
        return false;
    }
    if (!info.is_discovery && (capsule < 4 || le32toh(id->iorcsz) != 1)) {
        nvh_queue_break(c->admin, SW_NVME_PROTOCOL,
                        "%s has capsules of %u and responses of %u units of 16 bytes", c->where,
                        capsule, le32toh(id->iorcsz));
        return false;
    }
    info.queue_size = c->options.queue_size;
    if (info.queue_size > (c->setup.cap & 0xffff) + 1)
        info.queue_size = (uint32_t)(c->setup.cap & 0xffff) + 1;
    if (maxcmd > 1 && info.queue_size > maxcmd)
        info.queue_size = maxcmd;
    const uint32_t shift = unit + id->mdts;
    info.transfer_max_bytes = !id->mdts ? TRANSFER_DEFAULT : shift < 24 ? 1u << shift : 1u << 23;
    info.in_capsule_bytes = 0;
    if (sgls & SGLS_OFFSET && !le16toh(id->icdoff) && capsule > 4 && !c->options.no_in_capsule)
        info.in_capsule_bytes = capsule > 4096 ? 65536 - 64 : capsule * 16 - NVF_SQE_BYTES;
    info.traffic_keeps_alive = le32toh(id->ctratt) & CTRATT_TBKAS;
    info.keep_alive_ms = le16toh(id->kas) || info.is_discovery ? c->options.keep_alive_ms : 0;
    c->setup.takes_events = le32toh(id->oaes) != 0;
    return own_terms(c, &info);
}

static void grant_queues(struct sw_nvme_controller *c, uint32_t value)
{
    const uint32_t sqs = (value & 0xffff) + 1, cqs = (value >> 16) + 1;
    const uint32_t granted = mover_min_u32(sqs, cqs);
    if (!c->was_live)
        c->info.nr_io_queues = mover_min_u32(granted, c->options.nr_io_queues);
}

static void handle_ready(struct sw_nvme_controller *c, uint32_t csts)
{
    const uint64_t now = c->admin->port->now_ns();
    if (csts & CSTS_READY) {
        c->setup.stage = NVH_SETUP_IDENTIFY;
        c->setup.next_ns = 0;
    } else if (csts & CSTS_FATAL) {
        nvh_queue_break(c->admin, SW_NVME_PROTOCOL, "%s says that it has failed (CSTS.CFS)",
                        c->where);
    } else if (now > c->setup.ready_deadline_ns) {
        nvh_queue_break(c->admin, SW_NVME_TIMEOUT, "%s does not get ready in %u ms (CAP.TO)",
                        c->where, (unsigned)(c->setup.cap >> 24 & 0xff) * READY_UNIT_MS);
    } else {
        c->setup.next_ns = now + READY_PERIOD_MS * NS_PER_MS;
    }
}

static void setup_answered(void *arg, const struct sw_nvme_result *result)
{
    struct sw_nvme_controller *c = arg;
    static const char *const names[] = {"Connect",          "CAP", "VS", "CC", "CSTS", "Identify",
                                        "Number of Queues", ""};
    c->setup.waits = false;
    if (result->status) {
        nvh_queue_break(c->admin, SW_NVME_FAILED, "%s fails at %s: %s", c->where,
                        names[c->setup.stage], sw_nvme_code_text(result->nvme_status));
        c->admin->error.nvme_status = result->nvme_status;
        return;
    }
    switch (c->setup.stage) {
    case NVH_SETUP_CAP:
        c->setup.cap = result->value;
        c->setup.stage = NVH_SETUP_VERSION;
        return;
    case NVH_SETUP_VERSION:
        c->setup.version = (uint32_t)result->value;
        c->setup.stage = NVH_SETUP_ENABLE;
        return;
    case NVH_SETUP_ENABLE:
        c->setup.ready_deadline_ns = c->admin->port->now_ns() +
                                     ((c->setup.cap >> 24 & 0xff) + 1) * READY_UNIT_MS * NS_PER_MS;
        c->setup.stage = NVH_SETUP_READY;
        return;
    case NVH_SETUP_READY:
        return handle_ready(c, (uint32_t)result->value);
    case NVH_SETUP_IDENTIFY:
        if (identify_controller(c))
            c->setup.stage = c->info.is_discovery ? NVH_SETUP_DONE : NVH_SETUP_QUEUES;
        return;
    case NVH_SETUP_QUEUES:
        grant_queues(c, (uint32_t)result->value);
        c->setup.stage = NVH_SETUP_DONE;
        return;
    case NVH_SETUP_LINK:
    case NVH_SETUP_DONE:
        return;
    }
}

static struct nvf_sqe identify_command(struct sw_nvme_controller *c)
{
    struct nvf_sqe sqe = {.opcode = nvme_admin_identify, .cdw10 = htole32(1)};
    memset(c->admin->scratch, 0, PAGE_BYTES);
    nvf_sgl_set_keyed(&sqe, (uintptr_t)c->admin->scratch, PAGE_BYTES, c->admin->scratch_key, false);
    return sqe;
}

static struct nvf_sqe queues_command(const struct sw_nvme_controller *c)
{
    const uint32_t count = c->options.nr_io_queues - 1;
    struct nvf_sqe sqe = {.opcode = nvme_admin_set_features,
                          .cdw10 = htole32(FEATURE_QUEUES),
                          .cdw11 = htole32(count | count << 16)};
    nvf_sgl_set_none(&sqe);
    return sqe;
}

static void become_live(struct sw_nvme_controller *c, uint64_t now_ns)
{
    c->info.cap = c->setup.cap;
    c->info.version = c->setup.version;
    c->info.reconnects += c->was_live;
    c->was_live = true;
    if (c->info.is_discovery)
        atomic_store(&c->was_lost, false);
    c->keep_alive.sent_ns = 0;
    c->keep_alive.next_ns = now_ns;
    atomic_store(&c->state, SW_NVME_LIVE);
    if (c->setup.takes_events)
        nvh_events_ask(c);
}

void nvh_setup_step(struct sw_nvme_controller *controller, uint64_t now_ns)
{
    struct sw_nvme_controller *c = controller;
    if (c->setup.waits || c->admin->phase != NVH_UP || now_ns < c->setup.next_ns)
        return;
    struct nvf_sqe sqe;
    switch (c->setup.stage) {
    case NVH_SETUP_LINK:
        return;
    case NVH_SETUP_CAP:
        sqe = nvh_property_get(CAP, true);
        break;
    case NVH_SETUP_VERSION:
        sqe = nvh_property_get(VERSION, false);
        break;
    case NVH_SETUP_ENABLE:
        sqe = nvh_property_set(CC, nvh_cc(false));
        break;
    case NVH_SETUP_READY:
        sqe = nvh_property_get(CSTS, false);
        break;
    case NVH_SETUP_IDENTIFY:
        sqe = identify_command(c);
        break;
    case NVH_SETUP_QUEUES:
        sqe = queues_command(c);
        break;
    case NVH_SETUP_DONE:
        if (atomic_load(&c->state) != SW_NVME_LIVE)
            become_live(c, now_ns);
        return;
    }
    c->setup.waits = true;
    nvh_call(c, &sqe, false, setup_answered);
}

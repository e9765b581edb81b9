/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/discovery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/wire/bytes.h"

enum { ENTRY_BYTES = 1024, FLOW_MAY_BE_OFF = NVMF_TREQ_DISABLE_SQFLOW };

/* What is written of the log: the host's window of it. */
struct window {
    struct nvt_request *request;
    uint64_t offset, count;
};

static void discovery_put_bytes(struct window *window, uint64_t at, const void *from,
                                size_t len_bytes)
{
    const struct nvt_request *request = window->request;
    const uint64_t begin = window->offset, end = begin + request->data_bytes;
    const uint64_t low = at > begin ? at : begin;
    const uint64_t high = mover_min_u64(at + len_bytes, end);
    if (low < high)
        memcpy(request->data + (low - begin), (const uint8_t *)from + (low - at), high - low);
}

static void discovery_add_entry(struct window *window, struct nvmf_disc_log_entry *entry,
                                const char *traddr, const char *trsvcid, const char *nqn)
{
    entry->cntlid = htole16(0xffff); /* dynamic */
    entry->asqsz = htole16(NVF_ADMIN_DEPTH_MIN);
    if (entry->trtype == NVMF_TRTYPE_RDMA) {
        entry->tsas.rdma.qptype = NVMF_RDMA_QPTYPE_CONNECTED;
        entry->tsas.rdma.prtype = NVMF_RDMA_PRTYPE_NOT_SPECIFIED;
        entry->tsas.rdma.cms = NVMF_RDMA_CMS_RDMA_CM;
    }
    nvf_pad(entry->trsvcid, sizeof(entry->trsvcid), trsvcid);
    nvf_pad(entry->traddr, sizeof(entry->traddr), traddr);
    memcpy(entry->subnqn, nqn, strlen(nqn));
    discovery_put_bytes(window, ENTRY_BYTES * (1 + window->count), entry, sizeof(*entry));
    window->count++;
}

/* A port that listens everywhere is where this host has found it. */
static const char *discovery_address_of(const struct nvt_port *port, const struct nvt_queue *queue)
{
    const bool is_anywhere = !strcmp(port->traddr, "0.0.0.0") || !strcmp(port->traddr, "::");
    return is_anywhere ? queue->local_address : port->traddr;
}

static void discovery_add_port(struct window *window, const struct nvt_port *port)
{
    const struct nvt_ctrl *ctrl = window->request->queue->ctrl;
    const struct nvt_target *target = ctrl->subsystem->target;
    for (struct list_node *node = list_first(&target->subsystems); node;
         node = list_after(&target->subsystems, node)) {
        const struct nvt_subsystem *subsystem = LIST_MEMBER(node, struct nvt_subsystem, node);
        if (!nvt_subsystem_admits(subsystem, ctrl->host_nqn) || !nvt_port_serves(port, subsystem) ||
            (subsystem->is_discovery && port != ctrl->port))
            continue;
        struct nvmf_disc_log_entry entry = {.trtype = NVMF_TRTYPE_RDMA,
                                            .treq = port->treq | FLOW_MAY_BE_OFF,
                                            .adrfam = port->adrfam,
                                            .subtype = subsystem->is_discovery ? NVME_NQN_CURR
                                                                               : NVME_NQN_NVME,
                                            .portid = htole16(port->id)};
        discovery_add_entry(window, &entry, discovery_address_of(port, window->request->queue),
                            port->trsvcid, subsystem->nqn);
    }
    for (size_t i = 0; i < port->referral_count; i++) {
        const struct nvt_referral *referral = &port->referrals[i];
        if (!referral->enable)
            continue;
        struct nvmf_disc_log_entry entry = {.trtype = referral->trtype,
                                            .adrfam = referral->adrfam,
                                            .subtype = NVME_NQN_DISC,
                                            .portid = htole16(referral->portid)};
        discovery_add_entry(window, &entry, referral->traddr, referral->trsvcid,
                            referral->subsysnqn.text);
    }
}

/* Other targets that serve the same subsystem. */
static void discovery_add_peers(struct window *window)
{
    const struct nvt_ctrl *ctrl = window->request->queue->ctrl;
    const struct nvt_target *target = ctrl->subsystem->target;
    for (size_t i = 0; i < target->peer_count; i++) {
        const struct nvt_referral *peer = &target->peers[i];
        const struct nvt_subsystem *subsystem =
            nvt_subsystem_find(window->request->queue->target, peer->subsysnqn.text);
        if (!subsystem || !nvt_subsystem_admits(subsystem, ctrl->host_nqn))
            continue;
        struct nvmf_disc_log_entry entry = {.trtype = peer->trtype,
                                            .treq = FLOW_MAY_BE_OFF,
                                            .adrfam = peer->adrfam,
                                            .subtype = NVME_NQN_NVME,
                                            .portid = htole16(peer->portid)};
        discovery_add_entry(window, &entry, peer->traddr, peer->trsvcid, peer->subsysnqn.text);
    }
}

int nvt_discovery_set_peers(struct nvt_target *target, const struct nvt_referral *peers,
                            size_t count)
{
    if (count == target->peer_count &&
        (!count || !memcmp(target->peers, peers, count * sizeof(*peers))))
        return 0;
    struct nvt_referral *copy = calloc(count + 1, sizeof(*copy)); /* + 1: never of no size */
    if (!copy)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        copy[i] = peers[i];
    free(target->peers);
    target->peers = copy;
    target->peer_count = count;
    nvt_discovery_changed(target);
    return 0;
}

void nvt_discovery_log(struct nvt_request *request, uint64_t offset)
{
    const struct nvt_target *target = request->queue->target;
    struct window window = {.request = request, .offset = offset};
    struct nvmf_discovery_log header = {0};
    memset(request->data, 0, request->data_bytes);
    for (struct list_node *node = list_first(&target->ports); node;
         node = list_after(&target->ports, node))
        discovery_add_port(&window, LIST_MEMBER(node, struct nvt_port, node));
    discovery_add_peers(&window);
    header.genctr = htole64(target->genctr);
    header.numrec = htole64(window.count);
    discovery_put_bytes(&window, 0, &header, ENTRY_BYTES);
}

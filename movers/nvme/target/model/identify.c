/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/identify.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/config/config.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reservation.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"
#include "nvme/wire/bytes.h"
#include "nvme/wire/quiesce.h"

enum {
    ANA_TRANSITION_S = 10,
    KEEP_ALIVE_GRANULARITY = 10, /* units of 100 ms */
    SQES = 6 << 4 | 6,
    CQES = 4 << 4 | 4,
    LPA = 1 << 0 /* SMART by namespace */ | 1 << 1 /* effects */ | 1 << 2 /* extended */,
    OAES_NAMESPACE = 1 << 8,
    OAES_ANA = 1 << 11,
    CTRATT_HOST_ID_128 = 1 << 0,
    CTRATT_TBKAS = 1 << 6,
    ANACAP = 0x1f | 1 << 6, /* all states; the group of a namespace does not change */
    SGLS = 1 << 0 | 1 << 2 /* keyed */ | 1 << 18 /* longer than data */ |
           1 << 20 /* offsets in capsules */,
    NMIC_SHARED = 1,
    FENCED_BYTES = sizeof(NVF_FENCED_WORD) - 1,
    SIZE_LIMIT_SHIFT = 13,                 /* of Write Zeroes and Verify: 2^13 pages, 32 MiB */
    RANGE_LIMIT_BLOCKS = (1 << 30) / 4096, /* of a range to be deallocated */
    RANGES_LIMIT_BLOCKS = 4 * RANGE_LIMIT_BLOCKS, /* of all ranges of a command */
};

static void describe_ctrl(const struct nvt_ctrl *ctrl, struct nvme_id_ctrl *id)
{
    const struct nvt_subsystem *subsystem = ctrl->subsystem;
    nvf_pad(id->sn, sizeof(id->sn), subsystem->serial);
    nvf_pad(id->mn, sizeof(id->mn), subsystem->model);
    nvf_pad(id->fr, sizeof(id->fr), subsystem->firmware);
    id->rab = 6;
    id->cntlid = htole16(ctrl->instance.cntlid);
    id->ver = htole32(NVT_VERSION);
    id->mdts = NVT_TRANSFER_SHIFT;
    id->lpa = LPA;
    id->elpe = NVT_ERRORS_KEPT - 1;
    id->aerl = NVT_AER_MAX - 1;
    id->acl = 3;
    id->kas = htole16(KEEP_ALIVE_GRANULARITY);
    id->ctratt = htole32(CTRATT_HOST_ID_128 | CTRATT_TBKAS);
    id->maxcmd = htole16(NVT_DEPTH_MAX);
    id->sgls = htole32(SGLS);
    memcpy(id->subnqn, subsystem->nqn, strlen(subsystem->nqn));
    id->cntrltype =
        subsystem->is_discovery ? NVME_CTRL_CNTRLTYPE_DISCOVERY : NVME_CTRL_CNTRLTYPE_IO;
    id->ioccsz = htole32(NVF_SQE_BYTES / 16);
    id->iorcsz = htole32(NVF_CQE_BYTES / 16);
    id->msdbd = NVF_SGL_MAX;
    if (subsystem->is_discovery)
        id->oaes = htole32(1u << 31);
}

static void describe_io_ctrl(const struct nvt_ctrl *ctrl, struct nvme_id_ctrl *id)
{
    const uint32_t in_capsule = ctrl->port->in_capsule_bytes;
    id->cmic = 1 << 0 | 1 << 1 | 1 << 3; /* several ports, several controllers, ANA */
    id->oaes = htole32(OAES_NAMESPACE | OAES_ANA | NVF_OAES_CCR_COMPLETED);
    id->frmw = 1 << 0 | 1 << 1; /* one slot, read-only */
    id->wctemp = htole16(343);
    id->cctemp = htole16(373);
    id->sqes = SQES;
    id->cqes = CQES;
    id->nn = htole32(NVT_NSID_MAX);
    id->mnan = htole32(NVT_NSID_MAX);
    id->oncs = htole16(NVME_CTRL_ONCS_COMPARE | NVME_CTRL_ONCS_DSM | NVME_CTRL_ONCS_WRITE_ZEROES |
                       NVME_CTRL_ONCS_RESERVATIONS | NVME_CTRL_ONCS_VERIFY);
    id->vwc = NVME_CTRL_VWC_PRESENT | 3 << 1; /* flush takes one namespace or all */
    id->nwpc = 1;
    id->awun = id->awupf = 0;
    id->anatt = ANA_TRANSITION_S;
    id->anacap = ANACAP;
    id->anagrpmax = htole32(NVT_ANA_GROUPS_MAX);
    id->nanagrpid = htole32(NVT_ANA_GROUPS_MAX);
    id->ioccsz = htole32((NVF_SQE_BYTES + in_capsule) / 16);
    id->psd[0].mp = htole16(2500);
    if (ctrl->subsystem->is_grouped) { /* our host's rule for writes that may have been done */
        memcpy(id->vs, NVF_FENCED_WORD, FENCED_BYTES);
        id->vs[FENCED_BYTES] = ctrl->subsystem->slot;
    }
}

/* No command quiesce time (NVF_ID_CQT stays 0): a process that was stopped keeps no promise of
 * time. What proves that a lost controller is quiet is a reset, and in a group the fence. */
static void describe_instance(const struct nvt_ctrl *ctrl, uint8_t *page)
{
    const __le64 cirn = htole64(ctrl->instance.cirn);
    page[NVF_ID_CIU] = ctrl->instance.ciu;
    memcpy(page + NVF_ID_CIRN, &cirn, sizeof(cirn));
    page[NVF_ID_CCRL] = NVT_RESETS_AT_ONCE;
}

static uint16_t identify_ctrl(struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    struct nvme_id_ctrl *id = (struct nvme_id_ctrl *)request->data;
    describe_ctrl(ctrl, id);
    if (ctrl->subsystem->is_discovery)
        return 0;
    describe_io_ctrl(ctrl, id);
    describe_instance(ctrl, request->data);
    return 0;
}

static const struct nvt_namespace *namespace_of(const struct nvt_request *request, uint16_t *status)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t nsid = le32toh(request->sqe.nsid);
    *status = NVME_SC_INVALID_NS | NVME_SC_DNR;
    if (!nsid || (nsid > NVT_NSID_MAX && nsid != NVME_NSID_ALL))
        return NULL;
    *status = 0; /* an inactive one is all zeroes */
    const struct nvt_namespace *ns =
        nsid == NVME_NSID_ALL ? NULL : ctrl->subsystem->namespaces[nsid];
    return nvt_ctrl_sees(ctrl, ns) ? ns : NULL;
}

static uint8_t reservation_capabilities(const struct nvt_namespace *ns)
{
    return NVT_RESERVATION_CAPABILITIES | (ns->reservation.persists ? NVT_RESERVATION_PERSISTS : 0);
}

static uint16_t identify_namespace(struct nvt_request *request)
{
    struct nvme_id_ns *id = (struct nvme_id_ns *)request->data;
    uint16_t status;
    const struct nvt_namespace *ns = namespace_of(request, &status);
    if (!ns && le32toh(request->sqe.nsid) == NVME_NSID_ALL) { /* what all have in common */
        id->lbaf[0].ds = 12;
        return 0;
    }
    if (!ns)
        return status;
    id->nsze = id->ncap = id->nuse = htole64(ns->blocks);
    id->nsfeat = ns->backend->can_deallocate ? 1 << 4 : 0; /* the preferred sizes are valid */
    id->nmic = NMIC_SHARED;
    id->rescap = reservation_capabilities(ns);
    id->dlfeat = ns->backend->frees_to_zeroes ? 1 | 1 << 3 : 0; /* by Write Zeroes, too */
    id->anagrpid = htole32(ns->ana_group);
    id->nsattr = ns->is_read_only;
    id->lbaf[0].ds = ns->block_shift;
    memcpy(id->nguid, ns->nguid, sizeof(id->nguid));
    uint32_t page_blocks = 1; /* of 4 KiB: what is written and freed best */
    if (ns->block_shift < 12)
        page_blocks = 1u << (12 - ns->block_shift);
    id->npwg = id->npwa = id->npdg = id->npda = id->nows = htole16((uint16_t)(page_blocks - 1));
    return 0;
}

static uint16_t identify_list_namespaces(struct nvt_request *request)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    struct nvme_ns_list *list = (struct nvme_ns_list *)request->data;
    const uint32_t after = le32toh(request->sqe.nsid);
    uint32_t count = 0;
    if (after >= NVME_NSID_ALL - 1)
        return NVME_SC_INVALID_NS | NVME_SC_DNR;
    for (uint64_t nsid = (uint64_t)after + 1; nsid <= NVT_NSID_MAX && count < NVME_ID_NS_LIST_MAX;
         nsid++)
        if (nvt_ctrl_sees(ctrl, ctrl->subsystem->namespaces[nsid]))
            list->ns[count++] = htole32((uint32_t)nsid);
    return 0;
}

static uint8_t *add_descriptor(uint8_t *at, uint8_t type, const void *from, uint8_t len)
{
    struct nvme_ns_id_desc *descriptor = (struct nvme_ns_id_desc *)at;
    descriptor->nidt = type;
    descriptor->nidl = len;
    memcpy(descriptor->nid, from, len);
    return at + sizeof(*descriptor) + len;
}

static uint16_t describe_namespace(struct nvt_request *request)
{
    static const uint8_t nvm_commands = NVME_CSI_NVM;
    uint16_t status;
    const struct nvt_namespace *ns = namespace_of(request, &status);
    if (!ns)
        return NVME_SC_INVALID_NS | NVME_SC_DNR;
    uint8_t *at = request->data;
    at = add_descriptor(at, NVME_NIDT_UUID, ns->uuid, sizeof(ns->uuid));
    at = add_descriptor(at, NVME_NIDT_NGUID, ns->nguid, sizeof(ns->nguid));
    add_descriptor(at, NVME_NIDT_CSI, &nvm_commands, 1);
    return 0;
}

static int compare_cntlids(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

/* In order of their numbers: the list of a subsystem is in order of arrival. */
static uint16_t list_ctrls(struct nvt_request *request)
{
    const struct list *ctrls = &request->queue->ctrl->subsystem->ctrls;
    struct nvme_ctrl_list *list = (struct nvme_ctrl_list *)request->data;
    const uint32_t from = le32toh(request->sqe.cdw10) >> 16;
    uint16_t numbers[NVT_CTRLS_MAX];
    uint32_t count = 0;
    static_assert(NVT_CTRLS_MAX <= sizeof(list->identifier) / sizeof(*list->identifier), "all");
    for (struct list_node *node = list_first(ctrls); node && count < NVT_CTRLS_MAX;
         node = list_after(ctrls, node)) {
        const struct nvt_ctrl *ctrl = LIST_MEMBER(node, struct nvt_ctrl, node);
        if (ctrl->instance.cntlid >= from)
            numbers[count++] = ctrl->instance.cntlid;
    }
    qsort(numbers, count, sizeof(*numbers), compare_cntlids);
    for (uint32_t i = 0; i < count; i++)
        list->identifier[i] = htole16(numbers[i]);
    list->num = htole16((uint16_t)count);
    return 0;
}

static uint8_t command_set_of(const struct nvt_request *request)
{
    return (uint8_t)(le32toh(request->sqe.cdw11) >> 24);
}

static uint16_t identify_by_command_set(struct nvt_request *request)
{
    return command_set_of(request) == NVME_CSI_NVM ? 0 : NVME_SC_INVALID_FIELD | NVME_SC_DNR;
}

/* Limits of commands that move no data. A longer command is served, too, in slices (slices.h); a
 * host that keeps to them gets its answers sooner, and other commands of its own are served
 * between. */
static uint16_t identify_limits(struct nvt_request *request)
{
    struct nvme_id_ctrl_nvm *id = (struct nvme_id_ctrl_nvm *)request->data;
    if (command_set_of(request) != NVME_CSI_NVM)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    id->vsl = id->wzsl = SIZE_LIMIT_SHIFT;
    id->dmrl = UINT8_MAX; /* ranges */
    id->dmrsl = htole32(RANGE_LIMIT_BLOCKS);
    id->dmsl = htole64(RANGES_LIMIT_BLOCKS);
    return 0;
}

static uint16_t list_command_sets(struct nvt_request *request)
{
    request->data[0] = 1; /* combination 0: the NVM command set */
    return 0;
}

static uint16_t identify_independent(struct nvt_request *request)
{
    struct nvme_id_independent_id_ns *id = (struct nvme_id_independent_id_ns *)request->data;
    uint16_t status;
    const struct nvt_namespace *ns = namespace_of(request, &status);
    if (!ns)
        return status;
    id->nmic = NMIC_SHARED;
    id->rescap = reservation_capabilities(ns);
    id->anagrpid = htole32(ns->ana_group);
    id->nsattr = ns->is_read_only;
    id->nstat = 1; /* ready */
    return 0;
}

static uint16_t identify_what(struct nvt_request *request)
{
    const uint8_t cns = (uint8_t)le32toh(request->sqe.cdw10);
    const bool is_discovery = request->queue->ctrl->subsystem->is_discovery;
    if (cns == NVME_IDENTIFY_CNS_CTRL)
        return identify_ctrl(request);
    if (is_discovery)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    switch (cns) {
    case NVME_IDENTIFY_CNS_NS:
    case NVME_IDENTIFY_CNS_ALLOCATED_NS:
        return identify_namespace(request);
    case NVME_IDENTIFY_CNS_NS_ACTIVE_LIST:
    case NVME_IDENTIFY_CNS_ALLOCATED_NS_LIST:
        return identify_list_namespaces(request);
    case NVME_IDENTIFY_CNS_NS_DESC_LIST:
        return describe_namespace(request);
    case NVME_IDENTIFY_CNS_CSI_CTRL:
        return identify_limits(request);
    case NVME_IDENTIFY_CNS_CSI_NS:
        return identify_by_command_set(request);
    case NVME_IDENTIFY_CNS_CSI_INDEPENDENT_ID_NS:
        return identify_independent(request);
    case NVME_IDENTIFY_CNS_CTRL_LIST:
    case NVME_IDENTIFY_CNS_NS_CTRL_LIST:
        return list_ctrls(request);
    case NVME_IDENTIFY_CNS_COMMAND_SET_STRUCTURE:
        return list_command_sets(request);
    default:
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    }
}

void nvt_identify(struct nvt_request *request)
{
    memset(request->data, 0, request->data_bytes);
    nvt_request_finish(request, identify_what(request));
}

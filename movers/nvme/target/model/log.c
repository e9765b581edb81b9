/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/log.h"

#include <stdlib.h>
#include <string.h>

#include "nvme/target/config/config.h"
#include "nvme/target/model/command.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/discovery.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/reservation.h"
#include "nvme/target/model/reset.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

enum { RETAIN = 1 << 15, KELVIN = 300, KIB_500 = 1000 };

static uint64_t log_offset_of(const struct nvt_request *request)
{
    return (uint64_t)le32toh(request->sqe.cdw13) << 32 | le32toh(request->sqe.cdw12);
}

static uint32_t log_id(const struct nvt_request *request)
{
    return le32toh(request->sqe.cdw10) & 0xff;
}

uint16_t nvt_log_measure(struct nvt_request *request, uint64_t *bytes)
{
    const uint64_t dwords =
        (uint64_t)(le32toh(request->sqe.cdw11) & 0xffff) << 16 | le32toh(request->sqe.cdw10) >> 16;
    *bytes = (dwords + 1) * 4;
    if (log_offset_of(request) % 4)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    return 0;
}

static void error_log(struct nvt_request *request, uint64_t offset)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    struct nvme_error_log_page pages[NVT_ERRORS_KEPT] = {0};
    for (uint64_t i = 0; i < NVT_ERRORS_KEPT && i < ctrl->error_count; i++) {
        const struct nvt_error_entry *from =
            &ctrl->errors[(ctrl->error_count - i) % NVT_ERRORS_KEPT];
        pages[i] = (struct nvme_error_log_page){
            .error_count = htole64(from->count),
            .sqid = htole16(from->qid),
            .cmdid = htole16(from->cid),
            .status_field = htole16(from->status),
            .parm_error_location = htole16(from->location),
            .lba = htole64(from->lba),
            .nsid = htole32(from->nsid),
        };
    }
    nvt_request_put(request, pages, sizeof(pages), offset);
}

static uint16_t smart_log(struct nvt_request *request, uint64_t offset)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t wanted = le32toh(request->sqe.nsid);
    struct nvme_smart_log page = {.avail_spare = 100, .spare_thresh = 5};
    uint64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0;
    for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX; nsid++) {
        const struct nvt_namespace *ns = ctrl->subsystem->namespaces[nsid];
        if (!ns || (wanted && wanted != NVME_NSID_ALL && wanted != nsid))
            continue;
        const struct nvt_tally sum = nvt_namespace_sum(ns);
        reads += sum.reads;
        writes += sum.writes;
        read_bytes += sum.read_blocks << ns->block_shift;
        written_bytes += sum.written_blocks << ns->block_shift;
    }
    if (wanted && wanted != NVME_NSID_ALL &&
        (wanted > NVT_NSID_MAX || !ctrl->subsystem->namespaces[wanted]))
        return NVME_SC_INVALID_NS | NVME_SC_DNR;
    const __le64 figures[] = {htole64((read_bytes / 512 + KIB_500 - 1) / KIB_500),
                              htole64((written_bytes / 512 + KIB_500 - 1) / KIB_500),
                              htole64(reads), htole64(writes), htole64(ctrl->error_count)};
    page.temperature[0] = KELVIN & 0xff;
    page.temperature[1] = KELVIN >> 8;
    memcpy(page.data_units_read, &figures[0], 8);
    memcpy(page.data_units_written, &figures[1], 8);
    memcpy(page.host_reads, &figures[2], 8);
    memcpy(page.host_writes, &figures[3], 8);
    memcpy(page.num_err_log_entries, &figures[4], 8);
    nvt_request_put(request, &page, sizeof(page), offset);
    return 0;
}

static void firmware_log(struct nvt_request *request, uint64_t offset)
{
    struct nvme_firmware_slot page = {.afi = 1};
    memset(page.frs[0], ' ', sizeof(page.frs[0]));
    const char *firmware = request->queue->ctrl->subsystem->firmware;
    memcpy(page.frs[0], firmware, strnlen(firmware, sizeof(page.frs[0])));
    nvt_request_put(request, &page, sizeof(page), offset);
}

static void changed_log(struct nvt_request *request, uint64_t offset)
{
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    __le32 page[NVT_NSID_MAX] = {0};
    if (ctrl->changed_count > NVT_NSID_MAX)
        page[0] = htole32(NVME_NSID_ALL);
    else
        for (uint32_t i = 0; i < ctrl->changed_count; i++)
            page[i] = htole32(ctrl->changed[i]);
    nvt_request_put(request, page, sizeof(page), offset);
    ctrl->changed_count = 0;
}

static void effects_log(struct nvt_request *request, uint64_t offset)
{
    struct nvme_cmd_effects_log page = {0};
    for (int opcode = 0; opcode < 256; opcode++) {
        const struct nvt_command *admin = nvt_admin_command((uint8_t)opcode),
                                 *io = nvt_io_command((uint8_t)opcode);
        page.acs[opcode] = htole32(admin ? admin->effects : 0);
        page.iocs[opcode] = htole32(io ? io->effects : 0);
    }
    nvt_request_put(request, &page, sizeof(page), offset);
}

/* The groups that are told of: the first, and those that hold a namespace. */
static bool is_in_use(const struct nvt_ctrl *ctrl, uint32_t group)
{
    for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX; nsid++) {
        const struct nvt_namespace *ns = ctrl->subsystem->namespaces[nsid];
        if (nvt_ctrl_sees(ctrl, ns) && ns->ana_group == group)
            return true;
    }
    return group == 1;
}

/* A group and the namespaces in it, as this controller's port reaches them. */
static size_t put_group(const struct nvt_ctrl *ctrl, uint32_t group, bool with_namespaces,
                        uint8_t *at)
{
    uint8_t *nsids = at + sizeof(struct nvme_ana_group_desc); /* where no alignment is certain */
    uint32_t count = 0;
    for (uint32_t nsid = 1; nsid <= NVT_NSID_MAX && with_namespaces; nsid++) {
        const struct nvt_namespace *ns = ctrl->subsystem->namespaces[nsid];
        const __le32 entry = htole32(nsid);
        if (nvt_ctrl_sees(ctrl, ns) && ns->ana_group == group)
            memcpy(nsids + sizeof(entry) * count++, &entry, sizeof(entry));
    }
    const uint64_t epoch =
        ctrl->subsystem->homes.came ? ctrl->home_epoch : ctrl->subsystem->ana_epochs[group];
    const struct nvme_ana_group_desc descriptor = {
        .grpid = htole32(group),
        .nnsids = htole32(count),
        .chgcnt = htole64(epoch ? epoch : ctrl->subsystem->target->ana_changes),
        .state = (uint8_t)nvt_ctrl_ana_state(ctrl, group)};
    memcpy(at, &descriptor, sizeof(descriptor));
    return sizeof(descriptor) + count * sizeof(__le32);
}

static uint16_t ana_log(struct nvt_request *request, uint64_t offset)
{
    const struct nvt_ctrl *ctrl = request->queue->ctrl;
    const bool groups_only = le32toh(request->sqe.cdw10) >> 8 & 1;
    const size_t most = sizeof(struct nvme_ana_log) +
                        NVT_ANA_GROUPS_MAX * sizeof(struct nvme_ana_group_desc) +
                        NVT_NSID_MAX * sizeof(__le32);
    uint8_t *page = calloc(1, most);
    if (!page)
        return NVME_SC_INTERNAL;
    struct nvme_ana_log *header = (struct nvme_ana_log *)page;
    size_t at = sizeof(*header);
    uint16_t groups = 0;
    for (uint32_t group = 1; group <= NVT_ANA_GROUPS_MAX; group++)
        if (is_in_use(ctrl, group)) {
            at += put_group(ctrl, group, !groups_only, page + at);
            groups++;
        }
    header->chgcnt = htole64(ctrl->subsystem->target->ana_changes);
    header->ngrps = htole16(groups);
    nvt_request_put(request, page, at, offset);
    free(page);
    return 0;
}

static void reservation_log(struct nvt_request *request, uint64_t offset)
{
    struct nvme_resv_notification_log page;
    nvt_reservation_log_take(&request->queue->ctrl->reservation_log,
                             le32toh(request->sqe.cdw10) & RETAIN, &page);
    nvt_request_put(request, &page, sizeof(page), offset);
}

static uint16_t get_log(struct nvt_request *request, uint32_t id, uint64_t offset)
{
    switch (id) {
    case NVME_LOG_LID_ERROR:
        error_log(request, offset);
        return 0;
    case NVME_LOG_LID_SMART:
        return smart_log(request, offset);
    case NVME_LOG_LID_FW_SLOT:
        firmware_log(request, offset);
        return 0;
    case NVME_LOG_LID_CHANGED_NS:
        changed_log(request, offset);
        return 0;
    case NVME_LOG_LID_CMD_EFFECTS:
        effects_log(request, offset);
        return 0;
    case NVME_LOG_LID_RESERVATION:
        reservation_log(request, offset);
        return 0;
    case NVME_LOG_LID_ANA:
        return ana_log(request, offset);
    case NVF_LOG_CROSS_CTRL_RESET:
        nvt_reset_log(request, offset);
        return 0;
    default:
        return NVF_SPECIFIC(NVME_SC_INVALID_LOG_PAGE) | NVME_SC_DNR;
    }
}

/* A host that has read the page of an event may be told of the next. */
static void note_read(struct nvt_ctrl *ctrl, uint32_t id)
{
    if (id == NVME_LOG_LID_CHANGED_NS)
        ctrl->unread &= ~(uint32_t)NVT_EVENT_NAMESPACES;
    if (id == NVME_LOG_LID_ANA)
        ctrl->unread &= ~(uint32_t)NVT_EVENT_ANA;
    if (id == NVME_LOG_LID_DISCOVER)
        ctrl->unread &= ~(uint32_t)NVT_EVENT_DISCOVERY;
    if (id == NVME_LOG_LID_RESERVATION)
        ctrl->unread &= ~(uint32_t)NVT_EVENT_RESERVATION;
    if (id == NVF_LOG_CROSS_CTRL_RESET)
        ctrl->unread &= ~(uint32_t)NVT_EVENT_RESET;
    nvt_ctrl_tell(ctrl);
}

void nvt_get_log(struct nvt_request *request)
{
    struct nvt_ctrl *ctrl = request->queue->ctrl;
    const uint32_t id = log_id(request);
    uint16_t status;
    if (ctrl->subsystem->is_discovery) {
        status = NVF_SPECIFIC(NVME_SC_INVALID_LOG_PAGE) | NVME_SC_DNR;
        if (id == NVME_LOG_LID_DISCOVER) {
            nvt_discovery_log(request, log_offset_of(request));
            status = 0;
        }
    } else {
        status = get_log(request, id, log_offset_of(request));
    }
    const bool retains = le32toh(request->sqe.cdw10) & RETAIN;
    nvt_request_finish(request, status);
    if (!status && !retains)
        note_read(ctrl, id);
}

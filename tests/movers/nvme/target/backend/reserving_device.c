/* SPDX-License-Identifier: BSD-2-Clause */
#include "reserving_device.h"

#include <endian.h>
#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <linux/pr.h>
#include <scsi/sg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <nvme/types.h>

#include "common/base/minmax.h"

static int refuse_ioctl(int error_number)
{
    errno = error_number;
    return -1;
}

static int answer_host(struct reserving_device *device, uint16_t status)
{
    device->aborted += (uint32_t)device->effect.abort_count;
    device->effect.abort_count = 0;
    if ((status & 0x7ff) == NVME_SC_RESERVATION_CONFLICT && device->answers_as_scsi)
        return 0x18;
    return status;
}

static bool is_of_all_registrants(uint8_t type)
{
    return type == NVME_RESERVATION_RTYPE_WEAR || type == NVME_RESERVATION_RTYPE_EAAR;
}

static uint16_t acquire_device(struct reserving_device *device, uint32_t cdw10, const uint8_t *data)
{
    const bool preempts = cdw10 & 7,
               is_second = device->state.rtype &&
                           memcmp(&device->state.holder, &device->host, sizeof(device->host)) != 0;
    if (is_of_all_registrants((uint8_t)(cdw10 >> 8)) && device->lacks_all_registrants)
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    if (!preempts && is_second && device->names_one_holder)
        return NVME_SC_RESERVATION_CONFLICT | NVME_SC_DNR;
    if (preempts && device->ignores_preempt)
        return 0;
    return nvt_reservation_acquire(&device->state, &device->host, cdw10, data, &device->effect);
}

static int change_device(struct reserving_device *device, uint8_t opcode, uint32_t cdw10,
                         uint64_t first, uint64_t second)
{
    uint64_t keys[2] = {htole64(first), htole64(second)};
    const uint8_t *data = (const uint8_t *)keys;
    if (device->lacks_reservations)
        return NVME_SC_INVALID_OPCODE | NVME_SC_DNR;
    if (opcode != nvme_cmd_resv_register)
        return answer_host(device, acquire_device(device, cdw10, data));
    return answer_host(device, nvt_reservation_register(&device->state, &device->host, cdw10, data,
                                                        &device->effect));
}

/* As sd_pr_register() and others of Linux put it. A new key of 0 is none. */
static int block_ioctl(struct reserving_device *device, unsigned long request, void *argument)
{
    if (device->lacks_reservations)
        return refuse_ioctl(EOPNOTSUPP);
    if (request == IOC_PR_REGISTER) {
        const struct pr_registration *r = argument;
        const uint32_t action = !r->old_key  ? NVME_RESERVATION_RREGA_REGISTER_KEY
                                : r->new_key ? NVME_RESERVATION_RREGA_REPLACE_KEY
                                             : NVME_RESERVATION_RREGA_UNREGISTER_KEY;
        const uint32_t cdw10 = action | (r->flags & PR_FL_IGNORE_KEY ? 1u << 3 : 0);
        return change_device(device, nvme_cmd_resv_register, cdw10 | 3u << 30, r->old_key,
                             r->new_key);
    }
    if (request == IOC_PR_RESERVE) {
        const struct pr_reservation *r = argument;
        return change_device(device, nvme_cmd_resv_acquire, r->type << 8, r->key, 0);
    }
    if (request != IOC_PR_PREEMPT_ABORT)
        return refuse_ioctl(ENOTTY);
    const struct pr_preempt *r = argument;
    return change_device(device, nvme_cmd_resv_acquire, r->type << 8 | 2, r->new_key, r->old_key);
}

static int identify_device(const struct reserving_device *device,
                           const struct nvme_admin_cmd *command)
{
    uint8_t *page = (uint8_t *)(uintptr_t)command->addr; // NOLINT
    memset(page, 0, command->data_len);
    if (command->cdw10 == NVME_IDENTIFY_CNS_CTRL) {
        ((struct nvme_id_ctrl *)page)->oncs =
            htole16(device->lacks_reservations ? 0 : NVME_CTRL_ONCS_RESERVATIONS);
        return 0;
    }
    struct nvme_id_ns *ns = (struct nvme_id_ns *)page;
    ns->nsze = htole64(device->blocks);
    ns->lbaf[0].ds = RESERVING_BLOCK_SHIFT;
    ns->nguid[0] = 0xab;
    ns->rescap = device->lacks_reservations      ? 0
                 : device->lacks_memory          ? 0xfe
                 : device->lacks_all_registrants ? 0x9f
                                                 : 0xff;
    return 0;
}

static int report_by_nvme(const struct reserving_device *device,
                          const struct nvme_passthru_cmd *command)
{
    uint8_t report[NVT_REPORT_BYTES];
    size_t bytes = 0;
    const uint16_t status =
        device->lacks_reports
            ? NVME_SC_INVALID_OPCODE
            : nvt_reservation_report(&device->state, command->cdw11, report, &bytes);
    if (!status)
        memcpy((uint8_t *)(uintptr_t)command->addr, report, // NOLINT
               mover_min_u64(bytes, command->data_len));
    return status;
}

static void put_scsi(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

/* PERSISTENT RESERVE IN, SPC-4 s6.15. */
static int report_by_scsi(const struct reserving_device *device, struct sg_io_hdr *order)
{
    static const uint8_t scsi_types[] = {0, 1, 3, 5, 6, 7, 8};
    uint8_t *page = order->dxferp;
    if (device->lacks_reports)
        return refuse_ioctl(ENOTTY);
    const struct nvt_reservation *state = &device->state;
    switch (order->cmdp[1]) {
    case 0:
        put_scsi(page + 4, 8 * state->count, 4);
        for (size_t i = 0; i < state->count; i++)
            put_scsi(page + 8 + 8 * i, state->registrants[i].key, 8);
        return 0;
    case 1:
        put_scsi(page + 4, state->rtype ? 16 : 0, 4);
        page[21] = scsi_types[state->rtype];
        return 0;
    default:
        put_scsi(page, 8, 2);
        page[2] = !device->lacks_memory;
        page[3] = 0x80;
        put_scsi(page + 4, device->lacks_all_registrants ? 0x6a00 : 0xea01, 2);
        return 0;
    }
}

int reserving_ioctl(struct reserving_device *device, unsigned long request, void *argument)
{
    if (request == NVME_IOCTL_ID)
        return device->takes_commands ? RESERVING_NSID : refuse_ioctl(ENOTTY);
    if (request == NVME_IOCTL_ADMIN_CMD)
        return identify_device(device, argument);
    if (request == SG_IO)
        return report_by_scsi(device, argument);
    if (request != NVME_IOCTL_IO_CMD)
        return block_ioctl(device, request, argument);
    const struct nvme_passthru_cmd *command = argument;
    const uint64_t *keys = (const uint64_t *)(uintptr_t)command->addr; // NOLINT
    if (command->nsid != RESERVING_NSID)
        return NVME_SC_INVALID_NS;
    if (command->opcode == nvme_cmd_resv_report)
        return report_by_nvme(device, command);
    return change_device(device, command->opcode, command->cdw10, le64toh(keys[0]),
                         le64toh(keys[1]));
}

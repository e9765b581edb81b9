/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels tell a conflict in several ways: the status of NVMe, that of SCSI, or EBADE.
 */
#include "nvme/target/backend/device_pr.h"

#include <endian.h>
#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <linux/pr.h>
#include <scsi/sg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <nvme/types.h>

#include "common/base/bytes.h"

enum {
    IGNORE_KEY = 1 << 3,
    RTYPE_SHIFT = 8,
    STATUS_MASK = 0x7ff,
    SCSI_CONFLICT = 0x18, /* SAM_STAT_RESERVATION_CONFLICT, PR_STS_RESERVATION_CONFLICT */
    EXTENDED = 1 << 0,    /* a report with host IDs of 128 bits */
    REPORT_BYTES =
        sizeof(struct nvme_resv_status) + NVT_PR_KEYS_MAX * sizeof(struct nvme_registered_ctrl_ext),
};
/* PERSISTENT RESERVE IN, SPC-4 s6.15. */
enum {
    SCSI_PR_IN = 0x5e,
    SCSI_PR_IN_BYTES = 10,
    READ_KEYS = 0,
    READ_RESERVATION = 1,
    REPORT_CAPABILITIES = 2,
    PR_HEADER_BYTES = 8,
    PR_PAGE_BYTES = PR_HEADER_BYTES + 8 * NVT_PR_KEYS_MAX,
    PR_TYPE_AT = 21,
    SG_TIMEOUT_MS = 10000,
};
static const uint32_t persist = (uint32_t)NVME_RESERVATION_CPTPL_PERSIST << 30;

/* 0, -EBADE for a conflict, or another negative errno. */
static int result_of_device(int rc)
{
    if (rc <= 0)
        return rc ? -errno : 0;
    switch (rc & STATUS_MASK) {
    case NVME_SC_RESERVATION_CONFLICT:
    case SCSI_CONFLICT:
        return -EBADE;
    case NVME_SC_INVALID_OPCODE:
    case NVME_SC_INVALID_FIELD:
        return -EOPNOTSUPP;
    default:
        return -EIO;
    }
}

static int send_reservation(int fd, uint32_t nsid, uint8_t opcode, uint32_t cdw10, uint64_t first,
                            uint64_t second)
{
    uint64_t keys[2] = {htole64(first), htole64(second)};
    struct nvme_passthru_cmd command = {.opcode = opcode,
                                        .nsid = nsid,
                                        .addr = (uintptr_t)keys,
                                        .data_len = sizeof(keys),
                                        .cdw10 = cdw10};
    return result_of_device(ioctl(fd, NVME_IOCTL_IO_CMD, &command));
}

/* The namespace's number where it takes commands, also by an NVMe disk's block device; 0: ioctls
 * are for it. Linux' own for NVMe lack a way to end a registration (6.1 makes it key 0). */
static uint32_t nsid_of_device(int fd)
{
    const int nsid = ioctl(fd, NVME_IOCTL_ID);
    return nsid > 0 ? (uint32_t)nsid : 0;
}

/* ---- the commands, by either way ---- */

int nvt_pr_register(int fd, uint64_t old, uint64_t key)
{
    const uint32_t nsid = nsid_of_device(fd);
    const struct pr_registration change = {.old_key = old, .new_key = key};
    const struct pr_registration first = {.new_key = key, .flags = PR_FL_IGNORE_KEY};
    const struct pr_registration any = {.old_key = key, .new_key = key, .flags = PR_FL_IGNORE_KEY};
    const uint32_t replace = NVME_RESERVATION_RREGA_REPLACE_KEY | persist;
    int rc;
    if (old && nsid)
        return send_reservation(fd, nsid, nvme_cmd_resv_register, replace, old, key);
    if (old)
        return result_of_device(ioctl(fd, IOC_PR_REGISTER, &change));
    rc = nsid ? send_reservation(fd, nsid, nvme_cmd_resv_register, persist, 0, key)
              : result_of_device(ioctl(fd, IOC_PR_REGISTER, &first));
    if (rc != -EBADE)
        return rc;
    /* NVMe: this host has a key already, and only a replacement changes it. */
    return nsid ? send_reservation(fd, nsid, nvme_cmd_resv_register, replace | IGNORE_KEY, 0, key)
                : result_of_device(ioctl(fd, IOC_PR_REGISTER, &any));
}

void nvt_pr_unregister(int fd, uint64_t key)
{
    const struct pr_registration none = {.old_key = key};
    const uint32_t nsid = nsid_of_device(fd);
    if (nsid)
        send_reservation(fd, nsid, nvme_cmd_resv_register, NVME_RESERVATION_RREGA_UNREGISTER_KEY,
                         key, 0);
    else
        (void)ioctl(fd, IOC_PR_REGISTER, &none);
}

/* By ioctls also of a device that takes commands, to learn whether it has any at all. */
static int acquire_by_ioctl(int fd, uint8_t type, uint64_t key)
{
    const struct pr_reservation wanted = {.key = key, .type = type};
    return result_of_device(ioctl(fd, IOC_PR_RESERVE, &wanted));
}

int nvt_pr_acquire(int fd, uint8_t type, uint64_t key)
{
    const uint32_t nsid = nsid_of_device(fd);
    return nsid ? send_reservation(fd, nsid, nvme_cmd_resv_acquire,
                                   NVME_RESERVATION_RACQA_ACQUIRE | (uint32_t)type << RTYPE_SHIFT,
                                   key, 0)
                : acquire_by_ioctl(fd, type, key);
}

int nvt_pr_preempt(int fd, uint8_t type, uint64_t key, uint64_t former)
{
    const uint32_t nsid = nsid_of_device(fd);
    const struct pr_preempt order = {.old_key = former, .new_key = key, .type = type};
    return nsid ? send_reservation(fd, nsid, nvme_cmd_resv_acquire,
                                   NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT | (uint32_t)type
                                                                                  << RTYPE_SHIFT,
                                   key, former)
                : result_of_device(ioctl(fd, IOC_PR_PREEMPT_ABORT, &order));
}

/* ---- what is registered ---- */

static int read_nvme_report(int fd, uint32_t nsid, bool is_extended, uint8_t *page)
{
    struct nvme_passthru_cmd command = {.opcode = nvme_cmd_resv_report,
                                        .nsid = nsid,
                                        .addr = (uintptr_t)page,
                                        .data_len = REPORT_BYTES,
                                        .cdw10 = REPORT_BYTES / 4 - 1,
                                        .cdw11 = is_extended ? EXTENDED : 0};
    memset(page, 0, REPORT_BYTES);
    return result_of_device(ioctl(fd, NVME_IOCTL_IO_CMD, &command));
}

/* A device that knows its hosts by 64 bits has reports of its own form. */
static int report_of_nvme(int fd, uint32_t nsid, struct nvt_pr_report *out)
{
    struct nvme_resv_status *status = malloc(REPORT_BYTES);
    if (!status)
        return -ENOMEM;
    bool is_extended = true;
    int rc = read_nvme_report(fd, nsid, true, (uint8_t *)status);
    if (rc) {
        is_extended = false;
        rc = read_nvme_report(fd, nsid, false, (uint8_t *)status);
    }
    const size_t count = get_le16(status->regctl);
    if (!rc && count > NVT_PR_KEYS_MAX)
        rc = -EOVERFLOW;
    if (!rc) {
        *out = (struct nvt_pr_report){.type = status->rtype, .count = count};
        for (size_t i = 0; i < count; i++)
            out->keys[i] =
                le64toh(is_extended ? status->regctl_eds[i].rkey : status->regctl_ds[i].rkey);
    }
    free(status);
    return rc;
}

/* SCSI is big-endian. */
static uint32_t scsi_be16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t scsi_be32(const uint8_t *at)
{
    return scsi_be16(at) << 16 | scsi_be16(at + 2);
}

static uint64_t scsi_be64(const uint8_t *at)
{
    return (uint64_t)scsi_be32(at) << 32 | scsi_be32(at + 4);
}

static int read_scsi_page(int fd, uint8_t action, uint8_t page[PR_PAGE_BYTES])
{
    uint8_t cdb[SCSI_PR_IN_BYTES] = {SCSI_PR_IN,
                                     action, [7] = PR_PAGE_BYTES >> 8, [8] = PR_PAGE_BYTES & 0xff};
    struct sg_io_hdr order = {.interface_id = 'S',
                              .dxfer_direction = SG_DXFER_FROM_DEV,
                              .cmd_len = sizeof(cdb),
                              .cmdp = cdb,
                              .dxfer_len = PR_PAGE_BYTES,
                              .dxferp = page,
                              .timeout = SG_TIMEOUT_MS};
    memset(page, 0, PR_PAGE_BYTES);
    if (ioctl(fd, SG_IO, &order))
        return errno == ENOTTY ? -EOPNOTSUPP : -errno;
    return order.status || order.host_status || order.driver_status ? -EOPNOTSUPP : 0;
}

/* SCSI's numbers leave some out. */
static uint8_t type_of_scsi(uint8_t type)
{
    static const uint8_t types[] = {0,
                                    PR_WRITE_EXCLUSIVE,
                                    0,
                                    PR_EXCLUSIVE_ACCESS,
                                    0,
                                    PR_WRITE_EXCLUSIVE_REG_ONLY,
                                    PR_EXCLUSIVE_ACCESS_REG_ONLY,
                                    PR_WRITE_EXCLUSIVE_ALL_REGS,
                                    PR_EXCLUSIVE_ACCESS_ALL_REGS};
    const uint8_t number = type & 0xf;
    return number < sizeof(types) ? types[number] : 0;
}

static int report_of_scsi(int fd, struct nvt_pr_report *out)
{
    uint8_t *page = malloc(PR_PAGE_BYTES);
    if (!page)
        return -ENOMEM;
    int rc = read_scsi_page(fd, READ_KEYS, page);
    const uint32_t key_bytes = scsi_be32(page + 4);
    if (!rc && key_bytes > 8 * NVT_PR_KEYS_MAX)
        rc = -EOVERFLOW;
    if (!rc) {
        *out = (struct nvt_pr_report){.count = key_bytes / 8};
        for (size_t i = 0; i < out->count; i++)
            out->keys[i] = scsi_be64(page + PR_HEADER_BYTES + 8 * i);
        rc = read_scsi_page(fd, READ_RESERVATION, page);
    }
    if (!rc && scsi_be32(page + 4) > PR_TYPE_AT - PR_HEADER_BYTES)
        out->type = type_of_scsi(page[PR_TYPE_AT]);
    free(page);
    return rc;
}

int nvt_pr_report(int fd, struct nvt_pr_report *out)
{
    const uint32_t nsid = nsid_of_device(fd);
    return nsid ? report_of_nvme(fd, nsid, out) : report_of_scsi(fd, out);
}

bool nvt_pr_has_key(const struct nvt_pr_report *report, uint64_t key)
{
    for (size_t i = 0; i < report->count; i++)
        if (report->keys[i] == key)
            return true;
    return false;
}

/* ---- what a device can do ---- */

static int identify_reservations(int fd, uint32_t nsid, uint8_t type, bool *has, bool *persists)
{
    uint8_t *page = malloc(NVME_IDENTIFY_DATA_SIZE);
    if (!page)
        return -ENOMEM;
    struct nvme_admin_cmd command = {.opcode = nvme_admin_identify,
                                     .nsid = nsid,
                                     .addr = (uintptr_t)page,
                                     .data_len = NVME_IDENTIFY_DATA_SIZE,
                                     .cdw10 = NVME_IDENTIFY_CNS_NS};
    int rc = result_of_device(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command));
    const uint8_t rescap = ((const struct nvme_id_ns *)page)->rescap;
    *has = rescap & 1 << type;
    *persists = rescap & 1;
    command.nsid = 0;
    command.cdw10 = NVME_IDENTIFY_CNS_CTRL;
    if (!rc)
        rc = result_of_device(ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command));
    *has = *has && le16toh(((const struct nvme_id_ctrl *)page)->oncs) & NVME_CTRL_ONCS_RESERVATIONS;
    free(page);
    return rc;
}

/* A host that has not registered is refused where there are reservations, and nothing changes. */
static int try_reserving(int fd, uint8_t type, bool *has)
{
    static const uint64_t nobody = UINT64_MAX;
    const int rc = acquire_by_ioctl(fd, type, nobody);
    *has = !rc || rc == -EBADE;
    return rc == -EPERM || rc == -EACCES ? rc : 0;
}

/* The mask of types is valid where the disk says so. Disks that lack this command are tried. */
static void ask_scsi_for_types(int fd, uint8_t type, bool *has, bool *persists)
{
    enum { PERSISTS = 1 << 0, IS_VALID = 1 << 7 };
    static const uint16_t bits[] = {
        [PR_WRITE_EXCLUSIVE] = 1 << 9,           [PR_EXCLUSIVE_ACCESS] = 1 << 11,
        [PR_WRITE_EXCLUSIVE_REG_ONLY] = 1 << 13, [PR_EXCLUSIVE_ACCESS_REG_ONLY] = 1 << 14,
        [PR_WRITE_EXCLUSIVE_ALL_REGS] = 1 << 15, [PR_EXCLUSIVE_ACCESS_ALL_REGS] = 1 << 0};
    uint8_t *page = malloc(PR_PAGE_BYTES);
    if (page && !read_scsi_page(fd, REPORT_CAPABILITIES, page) && scsi_be16(page) >= 8) {
        *persists = *persists && page[2] & PERSISTS;
        *has = *has && (!(page[3] & IS_VALID) || scsi_be16(page + 4) & bits[type]);
    }
    free(page);
}

int nvt_pr_look(int fd, uint8_t type, bool *has, bool *persists)
{
    const uint32_t nsid = nsid_of_device(fd);
    *has = false;
    *persists = true;
    if (nsid)
        return identify_reservations(fd, nsid, type, has, persists);
    const int rc = try_reserving(fd, type, has);
    if (!rc && *has)
        ask_scsi_for_types(fd, type, has, persists);
    return rc;
}

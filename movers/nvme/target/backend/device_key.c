/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Namespaces of NVMe devices take commands (/dev/ng0n1, /dev/nvme0n1). Other block devices take
 * ioctls of Linux, which SCSI and device mapper carry out (linux/pr.h). Kernels tell a conflict in
 * several ways: the status of NVMe, that of SCSI, or EBADE.
 */
#include "nvme/target/backend/device_key.h"

#include <endian.h>
#include <errno.h>
#include <linux/nvme_ioctl.h>
#include <linux/pr.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <nvme/types.h>

#include "common/base/bytes.h"
#include "nvme/target/config/spec.h"
#include "nvme/wire/fabrics.h"

enum {
    SLOT_SHIFT = 24,
    IDLE_SLOT = 0xff,
    EPOCH_MASK = 0xffffff,
    IGNORE_KEY = 1 << 3,
    RTYPE_SHIFT = 8,
    STATUS_MASK = 0x7ff,
    SCSI_CONFLICT = 0x18, /* SAM_STAT_RESERVATION_CONFLICT, PR_STS_RESERVATION_CONFLICT */
    TYPE = PR_WRITE_EXCLUSIVE_REG_ONLY,
};
static const uint32_t persist = (uint32_t)NVME_RESERVATION_CPTPL_PERSIST << 30;

uint64_t nvt_device_key(const uint8_t identity[16], uint8_t slot, uint64_t epoch)
{
    return (uint64_t)get_le32(identity) << 32 | (uint64_t)(slot + 1u) << SLOT_SHIFT |
           (epoch & EPOCH_MASK);
}

uint64_t nvt_device_idle_key(const uint8_t identity[16])
{
    return (uint64_t)get_le32(identity) << 32 | (uint64_t)IDLE_SLOT << SLOT_SHIFT;
}

/* ---- what a device has answered ---- */

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

/* In place of `old`; of 0: of no key, or of whatever key this host has. */
static int register_key(int fd, uint32_t nsid, uint64_t old, uint64_t key)
{
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

static void unregister_key(int fd, uint32_t nsid, uint64_t key)
{
    const struct pr_registration none = {.old_key = key};
    if (nsid)
        send_reservation(fd, nsid, nvme_cmd_resv_register, NVME_RESERVATION_RREGA_UNREGISTER_KEY,
                         key, 0);
    else
        (void)ioctl(fd, IOC_PR_REGISTER, &none);
}

static int acquire_device(int fd, uint32_t nsid, uint64_t key)
{
    const struct pr_reservation wanted = {.key = key, .type = TYPE};
    return nsid ? send_reservation(fd, nsid, nvme_cmd_resv_acquire,
                                   NVME_RESERVATION_RACQA_ACQUIRE |
                                       (uint32_t)NVME_RESERVATION_RTYPE_WERO << RTYPE_SHIFT,
                                   key, 0)
                : result_of_device(ioctl(fd, IOC_PR_RESERVE, &wanted));
}

/* A conflict says that nobody has that key. */
static int preempt_device(int fd, uint32_t nsid, uint64_t key, uint64_t former)
{
    const struct pr_preempt order = {.old_key = former, .new_key = key, .type = TYPE};
    const int rc = nsid ? send_reservation(fd, nsid, nvme_cmd_resv_acquire,
                                           NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT |
                                               (uint32_t)NVME_RESERVATION_RTYPE_WERO << RTYPE_SHIFT,
                                           key, former)
                        : result_of_device(ioctl(fd, IOC_PR_PREEMPT_ABORT, &order));
    return rc == -EBADE ? 0 : rc;
}

/* ---- what a group does ---- */

static int identify_reservations(int fd, uint32_t nsid, bool *has, bool *persists)
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
    *has = rescap & 1 << NVME_RESERVATION_RTYPE_WERO;
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
static int try_reserving(int fd, bool *has)
{
    static const uint8_t nobody[16] = {0xff, 0xff, 0xff, 0xff};
    const int rc = acquire_device(fd, 0, nvt_device_idle_key(nobody));
    *has = !rc || rc == -EBADE;
    return rc == -EPERM || rc == -EACCES ? rc : 0;
}

int nvt_device_may_reserve(int fd, const char *path, char *error, size_t error_bytes)
{
    bool has = false, persists = true;
    const uint32_t nsid = nsid_of_device(fd);
    int rc = nsid ? identify_reservations(fd, nsid, &has, &persists) : 0;
    if (!rc && !nsid)
        rc = try_reserving(fd, &has);
    if (rc) {
        snprintf(error, error_bytes, "%.150s: cannot be asked for its reservations: %s%s", path,
                 strerror(-rc),
                 rc == -EACCES || rc == -EPERM ? "; it wants root, or a right to the device" : "");
        return rc;
    }
    if (has && persists)
        return 0;
    snprintf(error, error_bytes,
             "%.150s: the device has no reservations%s, so nothing here fences a target that was "
             "cut off from it: no group can serve it",
             path, has ? " that outlast a loss of power" : "");
    return -EOPNOTSUPP;
}

int nvt_device_reserve(const struct nvt_device *device, const uint64_t *formers, size_t count,
                       char *error, size_t error_bytes)
{
    const int fd = device->fd;
    const uint32_t nsid = nsid_of_device(fd);
    const char *what = "register there";
    int rc = register_key(fd, nsid, 0, device->key);
    const bool is_registered = !rc;
    for (size_t i = 0; !rc && i <= count; i++) {
        what = "end the registration of its former owner";
        rc = preempt_device(fd, nsid, device->key, i < count ? formers[i] : device->idle_key);
    }
    if (!rc) {
        what = "reserve it";
        rc = acquire_device(fd, nsid, device->key);
    }
    if (!rc)
        return 0;
    if (is_registered)
        unregister_key(fd, nsid, device->key);
    if (rc == -EBADE)
        snprintf(error, error_bytes,
                 "%.150s: a host that is not of this group has reserved the device; 'nvme "
                 "resv-report' and 'sg_persist --in -k' show its key",
                 device->path);
    else
        snprintf(error, error_bytes, "%.150s: cannot %s: %s", device->path, what, strerror(-rc));
    return rc == -EBADE ? -EBUSY : rc;
}

void nvt_device_leave(const struct nvt_device *device)
{
    (void)register_key(device->fd, nsid_of_device(device->fd), device->key, device->idle_key);
}

/* ---- of a backend ---- */

void nvt_device_hold_begin(struct nvt_device_hold *hold, const struct nvt_backend_setup *setup,
                           int fd, struct nvt_backend *backend)
{
    if (!setup->spec || !setup->spec->reserve_key)
        return;
    hold->device = (struct nvt_device){
        .path = "", .fd = fd, .key = setup->spec->reserve_key, .idle_key = setup->spec->idle_key};
    backend->lost = &hold->lost;
}

void nvt_device_hold_end(const struct nvt_device_hold *hold)
{
    if (hold->device.key && !hold->lost)
        nvt_device_leave(&hold->device);
}

uint16_t nvt_device_lost_status(const struct nvt_device_hold *hold)
{
    return atomic_load_explicit(&hold->lost, memory_order_relaxed)
               ? NVF_PATH(NVME_SC_ANA_INTERNAL_PATH_ERROR)
               : 0;
}

uint16_t nvt_device_note_conflict(struct nvt_device_hold *hold)
{
    if (hold->device.key)
        atomic_store_explicit(&hold->lost, EBADE, memory_order_relaxed);
    return nvt_device_lost_status(hold);
}

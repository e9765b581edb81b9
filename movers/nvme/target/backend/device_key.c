/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/device_key.h"

#include <errno.h>
#include <linux/pr.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/serve/served.h"
#include "common/time/clock.h"
#include "nvme/target/backend/device_pr.h"
#include "nvme/target/config/spec.h"
#include "nvme/wire/fabrics.h"

enum {
    SLOT_SHIFT = 24,
    IDLE_SLOT = 0xff,
    NUMBER_MASK = 0xffffff,
    TYPE_OF_ONE = PR_WRITE_EXCLUSIVE_REG_ONLY,
    TYPE_OF_ALL = PR_EXCLUSIVE_ACCESS_ALL_REGS,
    REST_MS = 5000,
    LOOK_AGAIN_US = 2000,
};

static uint64_t make_key(const uint8_t identity[16], uint8_t slot, uint64_t number)
{
    return (uint64_t)get_le32(identity) << 32 | (uint64_t)slot << SLOT_SHIFT |
           (number & NUMBER_MASK);
}

uint64_t nvt_device_key(const uint8_t identity[16], uint8_t slot, uint64_t epoch)
{
    return make_key(identity, (uint8_t)(slot + 1), epoch);
}

uint64_t nvt_device_member_key(const uint8_t identity[16], uint8_t slot, uint64_t incarnation)
{
    return make_key(identity, (uint8_t)(slot + 1), incarnation);
}

uint64_t nvt_device_idle_key(const uint8_t identity[16])
{
    return make_key(identity, IDLE_SLOT, 0);
}

int nvt_device_may_reserve(int fd, const char *path, bool is_for_all, char *error,
                           size_t error_bytes)
{
    bool has = false, has_any = false, persists = true;
    int rc = nvt_pr_look(fd, TYPE_OF_ONE, &has_any, &persists);
    has = has_any;
    if (!rc && has_any && is_for_all)
        rc = nvt_pr_look(fd, TYPE_OF_ALL, &has, &persists);
    if (rc) {
        snprintf(error, error_bytes, "%.150s: cannot be asked for its reservations: %s%s", path,
                 strerror(-rc),
                 rc == -EACCES || rc == -EPERM ? "; it wants root, or a right to the device" : "");
        return rc;
    }
    if (has && persists)
        return 0;
    if (has_any && persists)
        snprintf(error, error_bytes,
                 "%.150s: the device has no reservation that all who are registered hold "
                 "(Exclusive Access - All Registrants), so its members cannot all be active: leave "
                 "--active all away",
                 path);
    else
        snprintf(error, error_bytes,
                 "%.150s: the device has no reservations%s, so nothing here fences a target that "
                 "was cut off from it: no group can serve it",
                 path, has_any ? " that outlast a loss of power" : "");
    return -EOPNOTSUPP;
}

/* A conflict says that nobody has that key. */
static int preempt_former(int fd, uint8_t type, uint64_t key, uint64_t former)
{
    const int rc = nvt_pr_preempt(fd, type, key, former);
    return rc == -EBADE ? 0 : rc;
}

int nvt_device_reserve(const struct nvt_device *device, const uint64_t *formers, size_t count,
                       char *error, size_t error_bytes)
{
    const int fd = device->fd;
    const char *what = "register there";
    int rc = nvt_pr_register(fd, 0, device->key);
    const bool is_registered = !rc;
    for (size_t i = 0; !rc && i <= count; i++) {
        what = "end the registration of its former owner";
        rc =
            preempt_former(fd, TYPE_OF_ONE, device->key, i < count ? formers[i] : device->idle_key);
    }
    if (!rc) {
        what = "reserve it";
        rc = nvt_pr_acquire(fd, TYPE_OF_ONE, device->key);
    }
    if (!rc)
        return 0;
    if (is_registered)
        nvt_pr_unregister(fd, device->key);
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
    (void)nvt_pr_register(device->fd, device->key, device->idle_key);
}

/* ---- all members active ---- */

static int report_device(const struct nvt_device *device, struct nvt_pr_report *out, char *error,
                         size_t error_bytes)
{
    const int rc = nvt_pr_report(device->fd, out);
    if (rc)
        snprintf(error, error_bytes,
                 "%.150s: cannot tell who is registered there (%s), so its members cannot all be "
                 "active: leave --active all away",
                 device->path, strerror(-rc));
    return rc;
}

/* A host that is registered may write, so no other one is to be. */
static bool has_strangers(const struct nvt_device *device, const struct nvt_pr_report *report)
{
    for (size_t i = 0; i < report->count; i++)
        if (report->keys[i] >> 32 != device->key >> 32) /* the group's part */
            return true;
    return report->type && report->type != TYPE_OF_ALL;
}

static int refuse_strangers(const struct nvt_device *device, const struct nvt_pr_report *report,
                            char *error, size_t error_bytes)
{
    if (!has_strangers(device, report))
        return 0;
    snprintf(error, error_bytes,
             "%.150s: a host that is not of this group has reserved the device, or is registered "
             "there; 'nvme resv-report' and 'sg_persist --in -k' show its key",
             device->path);
    return -EBUSY;
}

/* To the device two members of one host are one, of which it could not shut out the other. */
static int refuse_second_of_host(const struct nvt_device *device,
                                 const struct nvt_pr_report *report, char *error,
                                 size_t error_bytes)
{
    for (size_t i = 0; i < device->other_count; i++) {
        const uint64_t key = device->others[i];
        if (key == device->key || !nvt_pr_has_key(report, key) ||
            nvt_pr_register(device->fd, key, key)) /* it is not this host's */
            continue;
        snprintf(error, error_bytes,
                 "%.150s: another member has the device by this host's registration: where all "
                 "are active, each needs a host of its own",
                 device->path);
        return -EBUSY;
    }
    return 0;
}

/* A member that joins at the same time may end the idle registration of this host in between. */
static int register_member(const struct nvt_device *device)
{
    enum { TRIES = 5 };
    int rc = -EBADE;
    for (int i = 0; rc == -EBADE && i < TRIES; i++)
        rc = nvt_pr_register(device->fd, 0, device->key);
    return rc;
}

/* Some devices name one holder, and answer the others by a conflict: the report tells. */
static int hold_with_others(const struct nvt_device *device)
{
    const int rc = nvt_pr_acquire(device->fd, TYPE_OF_ALL, device->key);
    return rc == -EBADE ? 0 : rc;
}

static int check_membership(const struct nvt_device *device, struct nvt_pr_report *report,
                            char *error, size_t error_bytes)
{
    const int rc = report_device(device, report, error, error_bytes);
    if (rc)
        return rc;
    if (report->type == TYPE_OF_ALL && nvt_pr_has_key(report, device->key))
        return 0;
    snprintf(error, error_bytes,
             "%.150s: another member has shut this one out of the device: it begins anew when it "
             "is started again",
             device->path);
    return -EBADE;
}

/* The reservation stays, since a member that was fenced may still wait to write; but not one that
 * would keep out strangers, who were there first. */
static void undo_joining(const struct nvt_device *device, struct nvt_pr_report *report)
{
    const int rc = nvt_pr_report(device->fd, report);
    if (!rc && (!report->type || has_strangers(device, report)))
        nvt_pr_unregister(device->fd, device->key);
    else
        nvt_device_leave(device);
}

static int device_key_take_part(const struct nvt_device *device, struct nvt_pr_report *report,
                                char *error, size_t error_bytes)
{
    const char *what = "register there";
    int rc = register_member(device);
    const bool is_registered = !rc;
    if (!rc) {
        what = "reserve it for all members";
        rc = hold_with_others(device);
    }
    if (!rc) {
        what = "end the registrations of hosts that have left";
        rc = preempt_former(device->fd, TYPE_OF_ALL, device->key, device->idle_key);
    }
    if (rc)
        snprintf(error, error_bytes, "%.150s: cannot %s: %s", device->path, what, strerror(-rc));
    else
        rc = check_membership(device, report, error, error_bytes);
    if (!rc)
        rc = refuse_strangers(device, report, error, error_bytes);
    if (rc && is_registered)
        undo_joining(device, report);
    return rc;
}

int nvt_device_join(const struct nvt_device *device, char *error, size_t error_bytes)
{
    struct nvt_pr_report report;
    int rc = report_device(device, &report, error, error_bytes);
    if (!rc)
        rc = refuse_strangers(device, &report, error, error_bytes);
    if (!rc)
        rc = refuse_second_of_host(device, &report, error, error_bytes);
    return rc ? rc : device_key_take_part(device, &report, error, error_bytes);
}

static int fence_former(const struct nvt_device *device, uint64_t former, char *error,
                        size_t error_bytes)
{
    if (former == device->key) {
        snprintf(error, error_bytes,
                 "%.150s: by chance this member has the key of one that has to be shut out: it has "
                 "another one when it is started again",
                 device->path);
        return -EBADE;
    }
    const int rc = preempt_former(device->fd, TYPE_OF_ALL, device->key, former);
    if (rc)
        snprintf(error, error_bytes, "%.150s: cannot end the registration of another member: %s",
                 device->path, strerror(-rc));
    return rc;
}

int nvt_device_fence(const struct nvt_device *device, const uint64_t *formers, size_t count,
                     char *error, size_t error_bytes)
{
    struct nvt_pr_report report;
    int rc = hold_with_others(device); /* somebody may have released it by hand */
    if (rc)
        snprintf(error, error_bytes, "%.150s: cannot reserve it for all members: %s", device->path,
                 strerror(-rc));
    for (size_t i = 0; !rc && i < count; i++)
        rc = fence_former(device, formers[i], error, error_bytes);
    if (!rc)
        rc = check_membership(device, &report, error, error_bytes);
    for (size_t i = 0; !rc && i < count; i++)
        if (nvt_pr_has_key(&report, formers[i])) {
            snprintf(error, error_bytes,
                     "%.150s: the device has not ended the registration of another member",
                     device->path);
            rc = -EBUSY;
        }
    return rc;
}

/* ---- of a backend ---- */

/* What a process of this host that has ended still has under way comes by its registration. */
static int await_rest_of_host(int fd, const char *path, char *error, size_t error_bytes)
{
    const uint64_t end_ns = mover_now_ns() + REST_MS * NS_PER_MS;
    while (mover_served_has_io(fd) && mover_now_ns() < end_ns)
        usleep(LOOK_AGAIN_US);
    if (!mover_served_has_io(fd))
        return 0;
    snprintf(error, error_bytes,
             "%.150s: writes of a process that has ended are still under way: its disk hangs",
             path);
    return -ETIMEDOUT;
}

int nvt_device_hold_begin(struct nvt_device_hold *hold, const struct nvt_backend_setup *setup,
                          int fd, struct nvt_backend *backend, char *error, size_t error_bytes)
{
    const struct nvt_backend_spec *spec = setup->spec;
    if (!spec || !spec->reserve_key || !nvt_spec_is_device(spec))
        return 0;
    struct nvt_device device = {.path = setup->path,
                                .fd = fd,
                                .key = spec->reserve_key,
                                .idle_key = spec->idle_key,
                                .others = spec->other_keys,
                                .other_count = spec->other_count};
    int rc = spec->is_for_all ? await_rest_of_host(fd, setup->path, error, error_bytes) : 0;
    if (!rc && spec->is_for_all)
        rc = nvt_device_join(&device, error, error_bytes);
    if (rc)
        return rc;
    hold->device =
        (struct nvt_device){.path = "", .fd = fd, .key = device.key, .idle_key = device.idle_key};
    backend->lost = &hold->lost;
    return 0;
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

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A whole namespace of an NVMe device, by passthrough: commands go to /dev/ngXnY by io_uring, past
 * the kernel's block layer, and the device's own status comes back.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nvme/types.h>

#include "common/base/minmax.h"
#include "common/serve/served.h"
#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/claim.h"
#include "nvme/target/backend/device_key.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/config/spec.h"
#include "nvme/wire/fabrics.h"

enum {
    PAGE_BYTES = 4096,
    PIECE_MAX = 128 << 10, /* every device and every IOMMU takes as much at once */
    BLOCKS_MAX = 65536,    /* of a command */
    ZEROES_BYTES = PIECE_MAX,
    TIMEOUT_MS = 30000,
    CDW12_FUA = 1 << 30,
    CDW12_DEAC = 1 << 25,
};

struct device {
    struct nvt_backend backend;
    struct nvt_device_hold hold; /* in a group */
    int fd;
    uint32_t nsid, piece_bytes;
    uint8_t block_shift;
    bool has_write_zeroes, has_dsm, has_verify;
    uint8_t *zeroes; /* [ZEROES_BYTES] for a device without Write Zeroes; NULL: it has them */
};

/* An operation, and how many of its commands are under way. */
struct transfer {
    struct nvt_io *io;
    uint32_t left;
    uint16_t status;
    uint8_t *place; /* of parts.h: this is a part of it; NULL: all of it */
    uint32_t part_bytes;
};

struct piece {
    struct mover_ring_op op;
    struct transfer *transfer;
    struct nvme_dsm_range range; /* of DEALLOCATE */
};

/* ---- commands ---- */

static bool nvme_begin_part(struct nvt_io *io);

static void nvme_add_part(struct nvt_io *io)
{
    const struct device *device = io->owner;
    nvt_parts_add(&io->uring->parts, device->backend.disk, io, nvme_begin_part);
}

static void nvme_end_part(struct transfer *transfer)
{
    struct nvt_io *io = transfer->io;
    const uint16_t status = transfer->status;
    uint8_t *place = transfer->place;
    io->moved += transfer->part_bytes;
    const bool is_over = status || io->moved == io->len_bytes;
    free(transfer);
    nvt_parts_give(&io->uring->parts, place);
    if (is_over)
        io->done(io, status);
    else
        nvme_add_part(io);
}

/* A command less. The last one ends the operation. */
static void leave_transfer(struct transfer *transfer)
{
    struct nvt_io *io = transfer->io;
    const uint16_t status = transfer->status;
    if (--transfer->left)
        return;
    if (transfer->place)
        return nvme_end_part(transfer);
    free(transfer);
    io->done(io, status);
}

static void backend_nvme_complete_op(struct mover_ring_op *op, int result)
{
    struct piece *piece = (struct piece *)op;
    struct transfer *transfer = piece->transfer;
    const enum nvt_io_kind kind = transfer->io->kind;
    const bool is_write = kind != NVT_READ && kind != NVT_VERIFY;
    free(piece);
    struct device *device = transfer->io->owner;
    if (result > 0 && (result & 0x7ff) == NVME_SC_RESERVATION_CONFLICT && !transfer->status)
        transfer->status = nvt_device_note_conflict(&device->hold);
    if (result < 0 && !transfer->status)
        transfer->status = nvt_backend_status(-result, is_write);
    else if (result > 0 && !transfer->status)
        transfer->status = (uint16_t)result & (0x7ff | NVME_SC_DNR);
    leave_transfer(transfer);
}

/* False: no memory, or no ring for commands. */
static bool queue_command(struct device *device, struct transfer *transfer,
                          const struct nvme_uring_cmd *command, const struct nvme_dsm_range *range)
{
    struct piece *piece = malloc(sizeof(*piece));
    if (!piece)
        return false;
    piece->op.complete = backend_nvme_complete_op;
    piece->transfer = transfer;
    transfer->left++;
    struct nvme_uring_cmd sent = *command;
    sent.nsid = device->nsid;
    sent.timeout_ms = TIMEOUT_MS;
    if (range) {
        piece->range = *range;
        sent.addr = (uintptr_t)&piece->range;
        sent.data_len = sizeof(piece->range);
    }
    if (nvt_uring_command(transfer->io->uring, &piece->op, device->fd, &sent))
        return true;
    transfer->left--;
    free(piece);
    return false;
}

/* A command for blocks of the device; data NULL: it has none. */
static bool send_blocks(struct device *device, struct transfer *transfer, uint8_t opcode,
                        uint64_t offset, uint32_t len_bytes, const uint8_t *data, uint32_t flags)
{
    const uint64_t first = offset >> device->block_shift;
    const struct nvme_uring_cmd command = {
        .opcode = opcode,
        .addr = (uintptr_t)data,
        .data_len = data ? len_bytes : 0,
        .cdw10 = (uint32_t)first,
        .cdw11 = (uint32_t)(first >> 32),
        .cdw12 = ((len_bytes >> device->block_shift) - 1) | flags,
    };
    return queue_command(device, transfer, &command, NULL);
}

static bool send_range(struct device *device, struct transfer *transfer, uint64_t offset,
                       uint64_t len_bytes)
{
    const struct nvme_dsm_range range = {.nlb =
                                             htole32((uint32_t)(len_bytes >> device->block_shift)),
                                         .slba = htole64(offset >> device->block_shift)};
    const struct nvme_uring_cmd command = {.opcode = nvme_cmd_dsm, .cdw11 = NVME_DSMGMT_AD};
    return queue_command(device, transfer, &command, &range);
}

/* One command, of at most `len_bytes`, at offset `done` of the operation. */
static bool backend_nvme_send_piece(struct device *device, struct transfer *transfer, uint64_t done,
                                    uint32_t len_bytes)
{
    const struct nvt_io *io = transfer->io;
    const uint64_t offset = io->offset + done;
    const uint32_t durable = io->is_durable ? CDW12_FUA : 0;
    switch (io->kind) {
    case NVT_READ:
        return send_blocks(device, transfer, nvme_cmd_read, offset, len_bytes, io->data + done, 0);
    case NVT_WRITE:
        return send_blocks(device, transfer, nvme_cmd_write, offset, len_bytes, io->data + done,
                           durable);
    case NVT_VERIFY:
        if (device->has_verify)
            return send_blocks(device, transfer, nvme_cmd_verify, offset, len_bytes, NULL, 0);
        return send_blocks(device, transfer, nvme_cmd_read, offset, len_bytes, transfer->place, 0);
    case NVT_WRITE_ZEROES:
        if (device->has_write_zeroes)
            return send_blocks(device, transfer, nvme_cmd_write_zeroes, offset, len_bytes, NULL,
                               durable | (io->deallocates ? CDW12_DEAC : 0));
        return send_blocks(device, transfer, nvme_cmd_write, offset, len_bytes, device->zeroes,
                           durable);
    case NVT_DEALLOCATE:
        return send_range(device, transfer, offset, len_bytes);
    case NVT_FLUSH:
        break;
    }
    return queue_command(device, transfer, &(struct nvme_uring_cmd){.opcode = nvme_cmd_flush},
                         NULL);
}

/* How much one command does. */
static uint32_t step_of(const struct device *device, const struct nvt_io *io)
{
    const bool moves = io->kind == NVT_READ || io->kind == NVT_WRITE;
    return moves ? device->piece_bytes : (uint32_t)BLOCKS_MAX << device->block_shift;
}

/* It moves data that no host has memory for here: as much as a host asks for. */
static bool is_in_parts(const struct device *device, const struct nvt_io *io)
{
    return (io->kind == NVT_VERIFY && !device->has_verify) ||
           (io->kind == NVT_WRITE_ZEROES && !device->has_write_zeroes);
}

static bool nvme_begin_part(struct nvt_io *io)
{
    struct device *device = io->owner;
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer) {
        io->done(io, NVME_SC_INTERNAL);
        return true;
    }
    *transfer = (struct transfer){
        .io = io,
        .left = 1, /* this function's own */
        .place = nvt_parts_take(&io->uring->parts),
        .part_bytes = (uint32_t)mover_min_u64(device->piece_bytes, io->len_bytes - io->moved)};
    if (!backend_nvme_send_piece(device, transfer, io->moved, transfer->part_bytes))
        transfer->status = NVME_SC_INTERNAL;
    leave_transfer(transfer);
    return true;
}

/* Submits all pieces at once: they need not come back in order. */
static void backend_nvme_submit_io(struct nvt_backend *backend, struct nvt_io *io)
{
    struct device *device = (struct device *)backend;
    const uint16_t lost = nvt_device_lost_status(&device->hold);
    io->owner = device;
    io->moved = 0;
    if (lost)
        return io->done(io, lost);
    if (is_in_parts(device, io))
        return nvme_add_part(io);
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer)
        return io->done(io, NVME_SC_INTERNAL);
    transfer->io = io;
    transfer->left = 1; /* this function's own */
    const uint64_t step = step_of(device, io), len = io->kind == NVT_FLUSH ? 1 : io->len_bytes;
    for (uint64_t done = 0; done < len && !transfer->status; done += step) {
        const uint64_t left = len - done;
        if (!backend_nvme_send_piece(device, transfer, done, (uint32_t)(left < step ? left : step)))
            transfer->status = NVME_SC_INTERNAL;
    }
    leave_transfer(transfer);
}

/* ---- opening ---- */

static int identify_device(const struct device *device, uint32_t nsid, uint32_t cns, void *out)
{
    struct nvme_admin_cmd command = {.opcode = nvme_admin_identify,
                                     .nsid = nsid,
                                     .addr = (uintptr_t)out,
                                     .data_len = NVME_IDENTIFY_DATA_SIZE,
                                     .cdw10 = cns};
    const int rc = ioctl(device->fd, NVME_IOCTL_ADMIN_CMD, &command);
    return rc < 0 ? -errno : rc ? -EIO : 0;
}

static void take_features(struct device *device, const struct nvme_id_ctrl *ctrl,
                          const struct nvme_id_ns *ns)
{
    const uint16_t oncs = le16toh(ctrl->oncs);
    device->has_write_zeroes = oncs & NVME_CTRL_ONCS_WRITE_ZEROES;
    device->has_dsm = oncs & NVME_CTRL_ONCS_DSM;
    device->has_verify = oncs & NVME_CTRL_ONCS_VERIFY;
    device->piece_bytes = PIECE_MAX;
    while (ctrl->mdts && device->piece_bytes > (uint64_t)PAGE_BYTES << ctrl->mdts)
        device->piece_bytes /= 2;
    device->backend.is_volatile = ctrl->vwc & NVME_CTRL_VWC_PRESENT;
    device->backend.can_deallocate = device->has_dsm;
    device->backend.frees_to_zeroes = (ns->dlfeat & 7) == 1;
}

static int take_format(struct device *device, const struct nvme_id_ns *ns, uint32_t wanted,
                       const char *path, char *error, size_t error_size)
{
    const uint8_t format = (uint8_t)((ns->flbas & 0xf) | (ns->flbas >> 1 & 0x30));
    const struct nvme_lbaf *lbaf = &ns->lbaf[format];
    device->block_shift = lbaf->ds;
    if (lbaf->ms || lbaf->ds < 9 || lbaf->ds > 12) {
        snprintf(error, error_size,
                 "%s: has blocks of %u bytes with %u of metadata; 512 to 4096 bytes without are "
                 "served, 'nvme format' makes them",
                 path, 1u << lbaf->ds, le16toh(lbaf->ms));
        return -EINVAL;
    }
    if (wanted && wanted != 1u << lbaf->ds) {
        snprintf(error, error_size, "%s: its blocks have %u bytes; leave bs= away", path,
                 1u << lbaf->ds);
        return -EINVAL;
    }
    device->backend.block_bytes = 1u << lbaf->ds;
    device->backend.size_bytes = le64toh(ns->nsze) << lbaf->ds;
    return device->backend.size_bytes ? 0 : -ENODEV;
}

static int inquire_device(struct device *device, const struct nvt_backend_setup *setup, char *error,
                          size_t error_size)
{
    struct stat stat;
    if (fstat(device->fd, &stat))
        return -errno;
    const int nsid = S_ISCHR(stat.st_mode) ? ioctl(device->fd, NVME_IOCTL_ID) : -1;
    if (nsid <= 0) {
        snprintf(error, error_size, "%s: is no namespace: name its character device, /dev/ng0n1%s",
                 setup->path, S_ISBLK(stat.st_mode) ? ", or serve it by block:" : "");
        return -EINVAL;
    }
    device->nsid = (uint32_t)nsid;
    device->backend.disk = stat.st_rdev;
    uint8_t *pages = malloc(2 * NVME_IDENTIFY_DATA_SIZE);
    if (!pages)
        return -ENOMEM;
    struct nvme_id_ns *ns = (struct nvme_id_ns *)pages;
    struct nvme_id_ctrl *ctrl = (struct nvme_id_ctrl *)(pages + NVME_IDENTIFY_DATA_SIZE);
    int rc = identify_device(device, device->nsid, NVME_IDENTIFY_CNS_NS, ns);
    if (!rc)
        rc = identify_device(device, 0, NVME_IDENTIFY_CNS_CTRL, ctrl);
    if (!rc)
        rc = take_format(device, ns, setup->block_bytes, setup->path, error, error_size);
    if (!rc)
        take_features(device, ctrl, ns);
    free(pages);
    if (!rc && !device->has_write_zeroes) {
        if (posix_memalign((void **)&device->zeroes, PAGE_BYTES, ZEROES_BYTES))
            return -ENOMEM;
        memset(device->zeroes, 0, ZEROES_BYTES);
    }
    return rc;
}

static void close_device(struct nvt_backend *backend)
{
    struct device *device = (struct device *)backend;
    nvt_device_hold_end(&device->hold);
    if (device->fd >= 0)
        close(device->fd);
    free(device->zeroes);
    nvt_claim_release(backend->claim);
    free(device);
}

static int backend_nvme_open_device(const struct nvt_backend_setup *setup, struct nvt_backend **out,
                                    char *error, size_t error_size)
{
    struct device *device = calloc(1, sizeof(*device));
    if (!device)
        return -ENOMEM;
    device->backend.ops = &nvt_nvme;
    device->backend.is_read_only = setup->is_read_only;
    device->fd = open(setup->path, (setup->is_read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    int rc = device->fd < 0 ? -errno : inquire_device(device, setup, error, error_size);
    if (!rc)
        rc = nvt_claim_take(setup, &device->backend.claim, error, error_size);
    if (!rc) {
        rc = nvt_uring_open_commands(setup->uring);
        if (rc)
            snprintf(error, error_size,
                     "%s: this kernel has no passthrough by io_uring (%s; Linux 5.19 has); serve "
                     "it by block:",
                     setup->path, strerror(-rc));
    }
    if (!rc) {
        (void)mover_served_mark_io(device->fd); /* for the fence of a group */
        rc = nvt_device_hold_begin(&device->hold, setup, device->fd, &device->backend, error,
                                   error_size);
    }
    if (!rc) {
        *out = &device->backend;
        return 0;
    }
    if (!*error)
        snprintf(error, error_size, "%s cannot be opened: %s%s", setup->path, strerror(-rc),
                 rc == -EACCES || rc == -EPERM ? "; it wants root, or a right to the device" : "");
    close_device(&device->backend);
    return rc;
}

static uint64_t backend_nvme_size_now(struct nvt_backend *backend)
{
    const struct device *device = (const struct device *)backend;
    struct nvme_id_ns *ns = malloc(sizeof(*ns));
    const bool is_known = ns && !identify_device(device, device->nsid, NVME_IDENTIFY_CNS_NS, ns);
    const uint64_t size = is_known ? le64toh(ns->nsze) << device->block_shift : backend->size_bytes;
    free(ns);
    return size;
}

/* The name that the namespace has at each host. */
static bool name_namespace_of(const struct nvme_id_ns *ns, char medium[NVT_MEDIUM_BYTES])
{
    static const uint8_t none[sizeof(ns->nguid)];
    const bool has_nguid = memcmp(ns->nguid, none, sizeof(ns->nguid)) != 0;
    const uint8_t *name = has_nguid ? ns->nguid : ns->eui64;
    const size_t bytes = has_nguid ? sizeof(ns->nguid) : sizeof(ns->eui64);
    size_t at = (size_t)snprintf(medium, NVT_MEDIUM_BYTES, "nvme %s ", has_nguid ? "nguid" : "eui");
    for (size_t i = 0; i < bytes; i++)
        at += (size_t)snprintf(medium + at, NVT_MEDIUM_BYTES - at, "%02x", name[i]);
    return memcmp(name, none, bytes) != 0;
}

static int look_at_nvme(const struct nvt_backend_setup *setup, struct nvt_backend_look *out,
                        char *error, size_t error_size)
{
    struct device *device = calloc(1, sizeof(*device));
    struct nvme_id_ns *ns = malloc(sizeof(*ns));
    int rc = device && ns ? 0 : -ENOMEM;
    *error = 0;
    if (device)
        device->fd = -1;
    if (!rc && (device->fd = open(setup->path, O_RDWR | O_CLOEXEC)) < 0)
        rc = -errno;
    if (!rc)
        rc = inquire_device(device, setup, error, error_size);
    if (!rc)
        rc = nvt_device_may_reserve(device->fd, setup->path, setup->spec->is_for_all, error,
                                    error_size);
    if (!rc)
        rc = identify_device(device, device->nsid, NVME_IDENTIFY_CNS_NS, ns);
    if (!rc && !name_namespace_of(ns, out->medium)) {
        snprintf(error, error_size,
                 "%s: has neither NGUID nor EUI64, so nobody can tell whether it is the same at "
                 "all members: no group can serve it",
                 setup->path);
        rc = -EOPNOTSUPP;
    }
    if (!rc) {
        out->size_bytes = device->backend.size_bytes;
        out->block_bytes = device->backend.block_bytes;
    } else if (!*error) {
        snprintf(error, error_size, "%s cannot be opened: %s", setup->path, strerror(-rc));
    }
    free(ns);
    if (device)
        close_device(&device->backend);
    return rc;
}

const struct nvt_backend_ops nvt_nvme = {.kind = "nvme",
                                         .open = backend_nvme_open_device,
                                         .close = close_device,
                                         .submit = backend_nvme_submit_io,
                                         .size_bytes = backend_nvme_size_now,
                                         .look = look_at_nvme,
                                         .is_size_far = true};

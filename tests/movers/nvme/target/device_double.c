/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Linked into a target, in place of the kernel's NVMe driver: a namespace with reservations, which
 * several processes have as hosts of several machines. From the environment:
 *
 * - DOUBLE_NODE is the file that stands for this host's device node;
 * - DOUBLE_DISK has the blocks, and DOUBLE_STATE what the device knows (struct reserving_device);
 * - DOUBLE_HOST is the number of this host, and of its kernel's boot.
 *
 * A command is carried out while the state is locked. So a preemption comes behind what the device
 * has begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/nvme_ioctl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nvme/types.h>

#include "backend/reserving_device.h"
#include "common/serve/process_mark.h"
#include "nvme/target/backend/uring.h"

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_fstat64(int fd, struct stat *out);
int __wrap_fstat64(int fd, struct stat *out);
int __wrap_nvt_uring_open_commands(struct nvt_uring *uring);
bool __wrap_nvt_uring_command(struct nvt_uring *uring, struct mover_ring_op *op, int fd,
                              const struct nvme_uring_cmd *command);
bool __wrap_mover_boot_id(uint8_t id[MOVER_BOOT_ID_BYTES]);

static uint8_t host_number(void)
{
    const char *text = getenv("DOUBLE_HOST");
    return text ? (uint8_t)strtoul(text, NULL, 10) : 0;
}

static int open_named(const char *name)
{
    const char *path = getenv(name);
    const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0) {
        fprintf(stderr, "%s: %s\n", name, strerror(errno));
        abort();
    }
    return fd;
}

/* Locked until the descriptor is closed. */
static int load_state(struct reserving_device *device)
{
    const int fd = open_named("DOUBLE_STATE");
    while (flock(fd, LOCK_EX))
        continue;
    if (pread(fd, device, sizeof(*device), 0) != (ssize_t)sizeof(*device))
        *device = (struct reserving_device){.state.persists = true, .takes_commands = true};
    device->host = (struct nvt_host_id){.bytes = {host_number()}};
    return fd;
}

static void store_state(int fd, const struct reserving_device *device)
{
    if (pwrite(fd, device, sizeof(*device), 0) != (ssize_t)sizeof(*device))
        abort();
    close(fd);
}

static uint64_t count_blocks(void)
{
    struct stat disk;
    const int fd = open_named("DOUBLE_DISK");
    const int rc = __real_fstat64(fd, &disk);
    close(fd);
    return rc ? 0 : (uint64_t)disk.st_size >> RESERVING_BLOCK_SHIFT;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (request != NVME_IOCTL_ID && request != NVME_IOCTL_ADMIN_CMD && request != NVME_IOCTL_IO_CMD)
        return __real_ioctl(fd, request, argument);
    struct reserving_device device;
    const int state = load_state(&device);
    device.blocks = count_blocks();
    const int rc = reserving_ioctl(&device, request, argument);
    store_state(state, &device);
    return rc;
}

int __wrap_fstat64(int fd, struct stat *out)
{
    struct stat node;
    const char *path = getenv("DOUBLE_NODE");
    const int rc = __real_fstat64(fd, out);
    if (!rc && path && !stat(path, &node) && node.st_ino == out->st_ino &&
        node.st_dev == out->st_dev)
        out->st_mode = S_IFCHR | 0600;
    return rc;
}

int __wrap_nvt_uring_open_commands(struct nvt_uring *uring)
{
    (void)uring;
    return 0;
}

static uint16_t move_blocks(const struct nvme_uring_cmd *command)
{
    void *data = (void *)(uintptr_t)command->addr; // NOLINT
    const off_t at = (off_t)command->cdw10 << RESERVING_BLOCK_SHIFT;
    if (command->opcode == nvme_cmd_flush)
        return 0;
    if (command->opcode != nvme_cmd_read && command->opcode != nvme_cmd_write)
        return NVME_SC_INVALID_OPCODE;
    const int fd = open_named("DOUBLE_DISK");
    const ssize_t moved = command->opcode == nvme_cmd_read
                              ? pread(fd, data, command->data_len, at)
                              : pwrite(fd, data, command->data_len, at);
    close(fd);
    return moved == (ssize_t)command->data_len ? 0 : NVME_SC_INTERNAL;
}

bool __wrap_nvt_uring_command(struct nvt_uring *uring, struct mover_ring_op *op, int fd,
                              const struct nvme_uring_cmd *command)
{
    struct reserving_device device;
    const int state = load_state(&device);
    uint16_t status =
        nvt_reservation_allows(&device.state, &device.host, nvt_access_of_io(command->opcode));
    (void)fd;
    if (!status)
        status = move_blocks(command);
    store_state(state, &device);
    nvt_uring_await(uring);
    nvt_uring_post(uring, op, status);
    return true;
}

bool __wrap_mover_boot_id(uint8_t id[MOVER_BOOT_ID_BYTES])
{
    memset(id, host_number(), MOVER_BOOT_ID_BYTES);
    return true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/server/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/serve/holes.h"
#include "common/serve/new_file.h"

/* Two FNV-1a hashes that start apart: names for things, no proof against forgers. */
static void mix_identity(uint8_t identity[16], const void *data, size_t bytes)
{
    static const uint64_t prime = 0x100000001b3;
    uint64_t halves[2];
    memcpy(halves, identity, sizeof(halves));
    for (size_t i = 0; i < bytes; i++)
        for (int half = 0; half < 2; half++)
            halves[half] = (halves[half] ^ ((const uint8_t *)data)[i]) * prime;
    memcpy(identity, halves, sizeof(halves));
}

static void start_identity(uint8_t identity[16])
{
    static const uint64_t starts[2] = {0xcbf29ce484222325, 0x84222325cbf29ce4};
    char machine[64];
    memcpy(identity, starts, sizeof(starts));
    const int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
    const ssize_t len = fd < 0 ? 0 : read(fd, machine, sizeof(machine));
    if (len > 0)
        mix_identity(identity, machine, (size_t)len);
    if (fd >= 0)
        close(fd);
}

/* A file that replaces another has its name, but neither its inode nor its time of birth. */
static void identify_file(int fd, const struct statfs *fs, uint8_t identity[16])
{
    struct statx x;
    start_identity(identity);
    mix_identity(identity, &fs->f_fsid, sizeof(fs->f_fsid));
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &x))
        return;
    mix_identity(identity, &x.stx_ino, sizeof(x.stx_ino));
    if (x.stx_mask & STATX_BTIME) {
        mix_identity(identity, &x.stx_btime.tv_sec, sizeof(x.stx_btime.tv_sec));
        mix_identity(identity, &x.stx_btime.tv_nsec, sizeof(x.stx_btime.tv_nsec));
    }
}

static int fail_open(char *error, size_t error_bytes, const char *what, const char *why)
{
    const int code = errno ? -errno : -EINVAL;
    snprintf(error, error_bytes, "%.150s: %s", what, why ? why : strerror(-code));
    return code;
}

static int map_fd(int fd, struct pms_memory *memory, int flags)
{
    void *base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    memory->base = base;
    return 0;
}

static int memory_open_file(int fd, const struct stat *st, struct pms_memory *memory)
{
    struct statfs fs;
    if (fstatfs(fd, &fs))
        return -errno;
    memory->bytes = (uint64_t)st->st_size;
    identify_file(fd, &fs, memory->identity);
    memory->kind = SW_PMEM_DAX_FILE;
    if (!map_fd(fd, memory, MAP_SHARED_VALIDATE | MAP_SYNC))
        return 0;
    const bool is_volatile = mover_disk_is_memory(fd);
    memory->kind = is_volatile ? SW_PMEM_VOLATILE : SW_PMEM_FILE;
    const int rc = is_volatile ? 0 : mover_disk_open(fd, true, &memory->disk);
    return rc ? rc : map_fd(fd, memory, MAP_SHARED);
}

static int open_dax(int fd, const struct stat *st, struct pms_memory *memory)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(st->st_rdev),
             minor(st->st_rdev));
    const int size = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t len = size < 0 ? -1 : read(size, text, sizeof(text) - 1);
    if (size >= 0)
        close(size);
    memory->bytes = len > 0 ? strtoull(text, NULL, 0) : 0;
    memory->kind = SW_PMEM_DAX_DEVICE;
    start_identity(memory->identity);
    mix_identity(memory->identity, &st->st_rdev, sizeof(st->st_rdev));
    return memory->bytes ? map_fd(fd, memory, MAP_SHARED) : -ENODEV;
}

static int open_pci(const char *what, struct pms_memory *memory)
{
    struct stat st;
    if (fstat(memory->fd, &st))
        return -errno;
    memory->bytes = (uint64_t)st.st_size;
    memory->kind = SW_PMEM_PCI;
    start_identity(memory->identity);
    mix_identity(memory->identity, what, strlen(what));
    return map_fd(memory->fd, memory, MAP_SHARED);
}

/* "0000:01:00.0/2": false if it is none. */
static bool name_bar(const char *what, char *path, size_t path_bytes)
{
    const char *slash = strchr(what, '/');
    if (!slash || slash - what > 31 || slash[1] < '0' || slash[1] > '5' || slash[2] ||
        strstr(what, ".."))
        return false;
    snprintf(path, path_bytes, "/sys/bus/pci/devices/%.*s/resource%s", (int)(slash - what), what,
             slash + 1);
    return true;
}

static int open_by_kind(const char *what, const struct pms_memory_setup *setup,
                        struct pms_memory *memory, char *error, size_t error_bytes)
{
    struct stat st;
    int code = fstat(memory->fd, &st) ? -errno : -EINVAL;
    const char *why = NULL;
    if (code == -EINVAL && !strncmp(what, "pci:", 4)) {
        code = open_pci(what + 4, memory);
    } else if (code == -EINVAL && S_ISREG(st.st_mode) && st.st_size) {
        code = mover_holes_fill_all(memory->fd, what, setup->is_shared, error, error_bytes);
        if (code)
            return code;
        code = memory_open_file(memory->fd, &st, memory);
        why = code ? mover_disk_why(code) : NULL;
    } else if (code == -EINVAL && S_ISCHR(st.st_mode)) {
        code = open_dax(memory->fd, &st, memory);
        why = code == -ENODEV ? "it is no DAX device; a file does as well: --size 1G FILE makes one"
                              : NULL;
    } else {
        why = "it is no file with bytes in it, no DAX device and no BAR";
    }
    errno = -code;
    return code ? fail_open(error, error_bytes, what, why) : 0;
}

/* Its descriptor, locked. */
static int memory_open_locked(const char *what, const struct pms_memory_setup *setup, char *error,
                              size_t error_bytes)
{
    const struct mover_serving how = {.is_shared = setup->is_shared, .share_option = "--shared"};
    char path[128];
    errno = EINVAL;
    if (!strncmp(what, "pci:", 4))
        return name_bar(what + 4, path, sizeof(path))
                   ? mover_served_open(path, O_RDWR | O_SYNC, &how, error, error_bytes)
                   : fail_open(error, error_bytes, what, "write pci:0000:01:00.0/2");
    return mover_new_file_open(what, O_RDWR, setup->create_bytes, &how, error, error_bytes);
}

int pms_memory_open(const char *what, const struct pms_memory_setup *setup,
                    struct pms_memory *memory, char *error, size_t error_bytes)
{
    *memory = (struct pms_memory){.fd = memory_open_locked(what, setup, error, error_bytes)};
    if (memory->fd < 0)
        return memory->fd;
    const int code = open_by_kind(what, setup, memory, error, error_bytes);
    if (code) {
        mover_disk_close(&memory->disk);
        close(memory->fd);
    }
    return code;
}

void pms_memory_close(struct pms_memory *memory)
{
    if (!memory->base)
        return;
    munmap(memory->base, memory->bytes);
    mover_disk_close(&memory->disk);
    close(memory->fd);
    memory->base = NULL;
}

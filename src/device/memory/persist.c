/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/persist.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache_flush.h"
#include "base/card_memory.h"
#include "base/log.h"
#include "base/mappable.h"
#include "base/minmax.h"
#include "device/adopt/vma.h"

#define SYSFS_TARGET 512 /* bytes of what a link there leads to, at most */

/* Filesystems without a block device of their own that still write to something lasting. A
 * filesystem that is not here and has no block device keeps its files in memory (tmpfs, and with it
 * memfd, /dev/shm and System V; hugetlbfs; ramfs), or has no files. */
static const char *const lasting[] = {"9p",   "afs",    "bcachefs", "btrfs", "ceph", "cifs",
                                      "fuse", "gpfs",   "lustre",   "nfs",   "nfs4", "overlay",
                                      "smb3", "vboxsf", "virtiofs", "ubifs", "zfs"};

/* "fuse.sshfs" is a fuse. An overlay that is mounted volatile never syncs. */
static bool mount_lasts(const char *type, const char *options)
{
    size_t len = strcspn(type, ". \n");
    for (size_t i = 0; i < sizeof(lasting) / sizeof(lasting[0]); i++)
        if (strlen(lasting[i]) == len && !strncmp(lasting[i], type, len))
            return strcmp(lasting[i], "overlay") != 0 || !strstr(options, ",volatile");
    return false;
}

bool sw_persist_mount_keeps(FILE *mountinfo, unsigned int dev_major, unsigned int dev_minor)
{
    char *line = NULL;
    size_t room = 0;
    bool keeps = false;
    while (!keeps && getline(&line, &room, mountinfo) > 0) {
        unsigned int line_major, line_minor;
        const char *type = strstr(line, " - "); /* proc(5): ends the optional fields */
        if (type && sscanf(line, "%*d %*d %u:%u", &line_major, &line_minor) == 2 &&
            line_major == dev_major && line_minor == dev_minor)
            keeps = mount_lasts(type + 3, type + 3 + strcspn(type + 3, " "));
    }
    free(line);
    return keeps;
}

bool sw_persist_is_map_sync(FILE *smaps, uint64_t va)
{
    char *line = NULL;
    size_t room = 0;
    bool here = false, found = false;
    while (!found && getline(&line, &room, smaps) > 0) {
        struct sw_vma vma;
        const char *name;
        if (sw_vma_parse(line, &vma, &name))
            here = vma.start == va;
        else if (here && !strncmp(line, "VmFlags:", 8)) /* "sf": synchronous page faults */
            found = strstr(line, " sf ") || strstr(line, " sf\n");
    }
    free(line);
    return found;
}

static bool file_answers(const char *path, bool (*question)(FILE *, const struct sw_vma *),
                         const struct sw_vma *vma)
{
    FILE *file = fopen(path, "re");
    bool answer = file && question(file, vma);
    if (file)
        fclose(file);
    return answer;
}

static bool mount_keeps(FILE *mountinfo, const struct sw_vma *vma)
{
    return sw_persist_mount_keeps(mountinfo, vma->dev_major, vma->dev_minor);
}

static bool is_map_sync(FILE *smaps, const struct sw_vma *vma)
{
    return sw_persist_is_map_sync(smaps, vma->start);
}

/* The last part of what a link in /sys/dev leads to, or "". */
static const char *link_end(char target[SYSFS_TARGET], const char *path)
{
    ssize_t len = readlink(path, target, SYSFS_TARGET - 1);
    target[len > 0 ? len : 0] = '\0';
    const char *last = strrchr(target, '/');
    return last ? last + 1 : target;
}

static bool is_ram_disk(const struct sw_vma *vma)
{
    char path[64], target[SYSFS_TARGET];
    snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", vma->dev_major, vma->dev_minor);
    const char *name = link_end(target, path);
    return !strncmp(name, "ram", 3) || !strncmp(name, "zram", 4);
}

static bool is_device_dax(const char *name)
{
    struct stat st;
    return !strncmp(name, "/dev/dax", 8) && !stat(name, &st) && S_ISCHR(st.st_mode) &&
           sw_dax_device_bytes(st.st_rdev) != 0;
}

/* Reading smaps takes long in a large process, so only where the file can be mapped MAP_SYNC. */
static bool file_is_dax(const char *name)
{
    struct statx st;
    return name[0] == '/' && !statx(AT_FDCWD, name, 0, STATX_TYPE, &st) &&
           st.stx_attributes & STATX_ATTR_DAX;
}

bool sw_persist_bar_of(const char *path, char bar[SW_PERSIST_BAR_MAX])
{
    const char *file = strrchr(path, '/');
    unsigned int domain, bus, device, function;
    char number, rest[8] = "", *card;
    if (strncmp(path, "/sys/devices/pci", 16) != 0 || !file ||
        sscanf(file, "/resource%c%7s", &number, rest) < 1 || number < '0' || number > '5' ||
        (*rest && strcmp(rest, "_wc") != 0))
        return false;
    card = memrchr(path, '/', (size_t)(file - path));
    if (!card || sscanf(card, "/%x:%x:%x.%x/", &domain, &bus, &device, &function) != 4)
        return false;
    snprintf(bar, SW_PERSIST_BAR_MAX, "%04x:%02x:%02x.%x/%c", domain & 0xffffff, bus & 0xff,
             device & 0x1f, function & 7, number);
    return true;
}

bool sw_persist_is_listed(const char *list, const char *bar)
{
    const size_t len = strlen(bar);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == len && !strncmp(at, bar, len))
            return true;
    return false;
}

static bool is_bar(const struct sw_vma *vma, const char *name, char bar[SW_PERSIST_BAR_MAX])
{
    return vma->kind == SW_VMA_SHARED && vma->ino && sw_persist_bar_of(name, bar);
}

/* Nothing tells whether a card keeps its memory, so its owner has to say it. */
static enum sw_persist persist_of_bar(const char *bar)
{
    if (sw_persist_is_listed(getenv("SIDEWIRE_PERSISTENT_BARS"), bar))
        return SW_PERSIST_BY_READ;
    sw_warn("PCI BAR %s is not taken for persistent: if the card keeps its contents, set "
            "SIDEWIRE_PERSISTENT_BARS=%s",
            bar, bar);
    return SW_PERSIST_NONE;
}

/* The locked instructions of a processor are none on the way to a card. */
static int note_card(const struct sw_vma *vma, const char *bar, bool by_atomics)
{
    if (by_atomics) {
        sw_error("PCI BAR %s: a region of a card's memory cannot have IBV_ACCESS_REMOTE_ATOMIC "
                 "(ATOMIC WRITE needs IBV_ACCESS_REMOTE_WRITE alone)",
                 bar);
        return -EOPNOTSUPP;
    }
    if (sw_card_memory_add(vma->start, vma->end - vma->start))
        return 0;
    sw_error("PCI BAR %s: too many mappings of cards are registered", bar);
    return -ENOMEM;
}

int sw_persist_note_cards(uint64_t va, uint64_t len_bytes, bool by_atomics)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    char bar[SW_PERSIST_BAR_MAX];
    int rc = 0;
    if (len_bytes == 0 || sw_vma_open(&reader, false))
        return 0;
    for (uint64_t at = va; !rc && at < va + len_bytes && sw_vma_next(&reader, at, &vma) == 1 &&
                           vma.start < va + len_bytes;
         at = vma.end)
        if (is_bar(&vma, reader.name, bar))
            rc = note_card(&vma, bar, by_atomics);
    sw_vma_close(&reader);
    return rc;
}

static enum sw_persist persist_of_vma(const struct sw_vma *vma, const char *name)
{
    if (vma->kind != SW_VMA_SHARED || !vma->ino)
        return SW_PERSIST_NONE;
    char bar[SW_PERSIST_BAR_MAX];
    if (is_bar(vma, name, bar))
        return persist_of_bar(bar);
    bool by_cpu = sw_cache_flush_how() != SW_CACHE_FLUSH_NONE;
    if (is_device_dax(name)) /* has nothing to sync */
        return by_cpu ? SW_PERSIST_BY_CPU : SW_PERSIST_NONE;
    bool keeps =
        vma->dev_major ? !is_ram_disk(vma) : file_answers("/proc/self/mountinfo", mount_keeps, vma);
    if (!keeps)
        return SW_PERSIST_NONE;
    return by_cpu && file_is_dax(name) && file_answers("/proc/self/smaps", is_map_sync, vma)
               ? SW_PERSIST_BY_CPU
               : SW_PERSIST_BY_SYNC;
}

static uint32_t disk_of(const struct sw_vma *vma)
{
    return (vma->dev_major << 12 ^ vma->dev_minor) & 0xffffff;
}

enum sw_persist sw_persist_of(uint64_t va, uint64_t len_bytes, uint32_t *disk)
{
    struct sw_vma_reader reader;
    struct sw_vma vma;
    enum sw_persist all = SW_PERSIST_BY_READ;
    bool device = false, card = false;
    *disk = 0;
    if (len_bytes == 0)
        return SW_PERSIST_BY_SYNC;
    if (sw_vma_open(&reader, false))
        return SW_PERSIST_NONE; /* nothing can be said, so nothing is promised */
    for (uint64_t at = va; all != SW_PERSIST_NONE && at < va + len_bytes; at = vma.end) {
        enum sw_persist one = SW_PERSIST_NONE;
        if (sw_vma_next(&reader, at, &vma) == 1 && vma.start <= at)
            one = persist_of_vma(&vma, reader.name);
        if (at == va && one == SW_PERSIST_BY_SYNC)
            *disk = disk_of(&vma);
        device |= one == SW_PERSIST_BY_CPU && is_device_dax(reader.name);
        card |= one == SW_PERSIST_BY_READ;
        all = one < all ? one : all;
    }
    sw_vma_close(&reader);
    if ((all == SW_PERSIST_BY_SYNC && device) || (all != SW_PERSIST_BY_READ && card))
        all = SW_PERSIST_NONE; /* no one way serves both */
    return all;
}

static bool is_same_device(const struct sw_persist_file *a, const struct sw_persist_file *b)
{
    return a->dev_major == b->dev_major && a->dev_minor == b->dev_minor;
}

/* What stands for both: of several files one of their device, of several devices one of any. */
static struct sw_persist_file either_file(struct sw_persist_file a, struct sw_persist_file b)
{
    if (!is_same_device(&a, &b))
        return (struct sw_persist_file){0};
    a.ino = a.ino == b.ino ? a.ino : 0;
    return a;
}

/* msync(2) syncs what lies behind a hole, too. */
struct sw_persist_file sw_persist_file_of(uint64_t va, uint64_t len_bytes)
{
    struct sw_persist_file file = {0};
    struct sw_vma_reader reader;
    struct sw_vma vma;
    const uint64_t end = va + len_bytes;
    uint64_t at = va, mapped_bytes = 0;
    int found = 0;
    if (sw_vma_open(&reader, false))
        return file;
    while (at < end && (found = sw_vma_next(&reader, at, &vma)) == 1 && vma.start < end) {
        const struct sw_persist_file next = {vma.ino, vma.dev_major, vma.dev_minor, false};
        file = mapped_bytes ? either_file(file, next) : next;
        mapped_bytes += sw_min_u64(vma.end, end) - sw_max_u64(vma.start, at);
        at = vma.end;
    }
    sw_vma_close(&reader);
    if (found < 0)
        return (struct sw_persist_file){0};
    file.is_whole = mapped_bytes == len_bytes;
    return file;
}

static bool is_any_file(const struct sw_persist_file *file)
{
    return !file->ino && !file->dev_major && !file->dev_minor;
}

bool sw_persist_is_same_file(const struct sw_persist_file *a, const struct sw_persist_file *b)
{
    return is_any_file(a) || is_any_file(b) ||
           (is_same_device(a, b) && (!a->ino || !b->ino || a->ino == b->ino));
}

int sw_persist_sync(uint64_t va, uint64_t len_bytes)
{
    uint64_t start = va & ~((uint64_t)getpagesize() - 1);
    return msync((void *)(uintptr_t)start, len_bytes + (va - start), MS_SYNC) ? -errno : 0;
}

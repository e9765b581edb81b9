/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/vma.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* The PROCMAP_QUERY ioctl of Linux 6.11 (Documentation/filesystems/proc.rst), for older headers. */
struct procmap_query_arg {
    uint64_t size;
    uint64_t query_flags;
    uint64_t query_addr;
    uint64_t vma_start;
    uint64_t vma_end;
    uint64_t vma_flags;
    uint64_t vma_page_size;
    uint64_t vma_offset;
    uint64_t inode;
    uint32_t dev_major;
    uint32_t dev_minor;
    uint32_t vma_name_size;
    uint32_t build_id_size;
    uint64_t vma_name_addr;
    uint64_t build_id_addr;
};
_Static_assert(sizeof(struct procmap_query_arg) == 104, "as the kernel's");

#define QUERY_VMAS _IOWR('f', 17, struct procmap_query_arg)
enum {
    VMA_READABLE = 0x01,
    VMA_WRITABLE = 0x02,
    VMA_EXECUTABLE = 0x04,
    VMA_SHARED = 0x08,
    COVERING_OR_NEXT = 0x10,
};

static enum sw_vma_kind vma_kind_of(bool shared, uint64_t ino, const char *name)
{
    if (shared)
        return SW_VMA_SHARED;
    if (ino)
        return SW_VMA_OTHER;
    if (!*name || !strcmp(name, "[heap]") || !strncmp(name, "[anon:", 6))
        return SW_VMA_ANON;
    return SW_VMA_OTHER;
}

bool sw_vma_parse(const char *line, struct sw_vma *out, const char **name)
{
    char flags[5];
    int name_at = -1;
    struct sw_vma vma = {0};
    int fields =
        sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &vma.start,
               &vma.end, flags, &vma.offset, &vma.dev_major, &vma.dev_minor, &vma.ino, &name_at);
    if (fields != 7 || name_at < 0 || strlen(flags) != 4 || vma.start >= vma.end)
        return false;
    vma.prot = (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0) |
               (flags[2] == 'x' ? PROT_EXEC : 0);
    *name = line + name_at;
    vma.kind = vma_kind_of(flags[3] == 's', vma.ino, *name);
    *out = vma;
    return true;
}

static int query_next(struct sw_vma_reader *reader, uint64_t addr, struct sw_vma *out)
{
    struct procmap_query_arg arg = {
        .size = sizeof(arg),
        .query_flags = COVERING_OR_NEXT,
        .query_addr = addr,
        .vma_name_size = sizeof(reader->text),
        .vma_name_addr = (uint64_t)(uintptr_t)reader->text,
    };
    if (ioctl(reader->fd, QUERY_VMAS, &arg))
        return errno == ENOENT ? 0 : -errno;
    reader->name = arg.vma_name_size ? reader->text : "";

    uint64_t flags = arg.vma_flags;
    *out = (struct sw_vma){
        .start = arg.vma_start,
        .end = arg.vma_end,
        .offset = arg.vma_offset,
        .ino = arg.inode,
        .dev_major = arg.dev_major,
        .dev_minor = arg.dev_minor,
        .prot = (flags & VMA_READABLE ? PROT_READ : 0) | (flags & VMA_WRITABLE ? PROT_WRITE : 0) |
                (flags & VMA_EXECUTABLE ? PROT_EXEC : 0),
        .kind = vma_kind_of(flags & VMA_SHARED, arg.inode, reader->name),
    };
    return 1;
}

/* Brings the next line to text[begin], ended by a 0. 1, 0 at the end of the file, or a negative
 * errno. */
static int text_line(struct sw_vma_reader *reader, char **line)
{
    for (;;) {
        char *start = reader->text + reader->begin;
        char *newline = memchr(start, '\n', reader->end - reader->begin);
        if (newline) {
            *newline = '\0';
            reader->begin = (size_t)(newline + 1 - reader->text);
            *line = start;
            return 1;
        }
        memmove(reader->text, start, reader->end - reader->begin);
        reader->end -= reader->begin;
        reader->begin = 0;
        if (reader->end == sizeof(reader->text))
            return -ENAMETOOLONG;
        ssize_t got =
            read(reader->fd, reader->text + reader->end, sizeof(reader->text) - reader->end);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : 0;
        reader->end += (size_t)got;
    }
}

static int text_next(struct sw_vma_reader *reader, uint64_t addr, struct sw_vma *out)
{
    while (!reader->have_last || reader->last.end <= addr) {
        char *line = NULL;
        int found = text_line(reader, &line);
        if (found <= 0)
            return found;
        if (!sw_vma_parse(line, &reader->last, &reader->name))
            return -EPROTO;
        reader->have_last = true;
    }
    *out = reader->last;
    return 1;
}

void sw_vma_use(struct sw_vma_reader *reader, int fd)
{
    reader->fd = fd;
    reader->have_last = false;
    reader->begin = reader->end = 0;
    reader->name = "";
    reader->query = true;
}

int sw_vma_open(struct sw_vma_reader *reader, bool force_text)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    sw_vma_use(reader, fd);
    reader->query = !force_text;
    return 0;
}

void sw_vma_close(struct sw_vma_reader *reader)
{
    close(reader->fd);
}

bool sw_vma_parse_bar(const char *text, unsigned int bar, uint64_t *start)
{
    for (; bar && text; bar--) {
        text = strchr(text, '\n');
        text += text ? 1 : 0;
    }
    return text && sscanf(text, "0x%" SCNx64, start) == 1;
}

/* For a mapping of a PCI card's memory the kernel tells the physical address in the place of the
 * offset in the file, which sysfs calls resource0 to resource5 (resource4_wc). */
static void rebase_bar(struct sw_vma *vma, const char *name)
{
    char path[SW_VMA_TEXT_MAX], text[1024];
    const char *file = strrchr(name, '/');
    const unsigned int bar = strncmp(file, "/resource", 9) ? 9 : (unsigned int)(file[9] - '0');
    uint64_t start;
    if (bar > 5)
        return;
    snprintf(path, sizeof(path), "%.*s/resource", (int)(file - name), name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    if (sw_vma_parse_bar(text, bar, &start) && vma->offset >= start)
        vma->offset -= start;
}

static int next_mapping(struct sw_vma_reader *reader, uint64_t addr, struct sw_vma *out)
{
    if (reader->query) {
        int found = query_next(reader, addr, out);
        if (found >= 0)
            return found;
        reader->query = false; /* an older kernel, a filter, or a name too long */
    }
    return text_next(reader, addr, out);
}

bool sw_vma_has_flag(uint64_t va, const char *flag)
{
    struct sw_vma_reader reader = {.name = ""};
    struct sw_vma vma = {0};
    char *line;
    const char *name, *flags = NULL;
    reader.fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (reader.fd < 0)
        return false;
    while (!flags && vma.start <= va && text_line(&reader, &line) == 1) {
        if (!strncmp(line, "VmFlags:", 8) && vma.start <= va && va < vma.end)
            flags = line;
        else
            sw_vma_parse(line, &vma, &name);
    }
    const bool has = flags && strstr(flags, flag);
    sw_vma_close(&reader);
    return has;
}

int sw_vma_next(struct sw_vma_reader *reader, uint64_t addr, struct sw_vma *out)
{
    const int found = next_mapping(reader, addr, out);
    if (found == 1 && __builtin_expect(!strncmp(reader->name, "/sys/devices/pci", 16), 0))
        rebase_bar(out, reader->name);
    return found;
}

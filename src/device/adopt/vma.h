/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mappings of this process, as the kernel tells them: PROCMAP_QUERY (Linux 6.11) where it
 * exists, else the text of /proc/self/maps, proc(5). Allocates nothing, so that fork handlers may
 * use it.
 */
#ifndef SW_DEVICE_ADOPT_VMA_H
#define SW_DEVICE_ADOPT_VMA_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sw_vma_kind {
    SW_VMA_ANON,   /* private anonymous memory: mmap, heap, .bss */
    SW_VMA_SHARED, /* a shared mapping of a file, memfd or System V segment */
    SW_VMA_OTHER,  /* main stack, private file mapping, vdso */
};

struct sw_vma {
    uint64_t start;
    uint64_t end;
    uint64_t offset; /* of `start` in the file */
    uint64_t ino;    /* 0: no file */
    unsigned int dev_major;
    unsigned int dev_minor;
    int prot; /* PROT_READ | PROT_WRITE | PROT_EXEC */
    enum sw_vma_kind kind;
};

#define SW_VMA_TEXT_MAX (PATH_MAX + 128)

struct sw_vma_reader {
    int fd;
    bool query;     /* PROCMAP_QUERY works */
    bool have_last; /* `last` is the mapping that was parsed from the text most recently */
    struct sw_vma last;
    size_t begin; /* text[begin..end) is not parsed yet */
    size_t end;
    const char *name; /* of the last mapping returned, with " (deleted)" where the kernel says so */
    char text[SW_VMA_TEXT_MAX];
};

/* 0 or a negative errno. force_text is for tests. */
int sw_vma_open(struct sw_vma_reader *reader, bool force_text);
/* The same by a descriptor of /proc/self/maps, at its beginning, that the caller closes. */
void sw_vma_use(struct sw_vma_reader *reader, int fd);
void sw_vma_close(struct sw_vma_reader *reader);

/* Stores the first mapping that ends above `addr`. Addresses must not descend between calls.
 * 1: found, 0: there is none, negative errno. */
int sw_vma_next(struct sw_vma_reader *reader, uint64_t addr, struct sw_vma *out);

/* Whether the mapping at `va` has a flag of /proc/self/smaps, such as "dd" (MADV_DONTDUMP). Slow:
 * the kernel counts the pages of all mappings below. */
bool sw_vma_has_flag(uint64_t va, const char *flag);

/* Where a BAR begins, of a card's file "resource" in sysfs. */
bool sw_vma_parse_bar(const char *text, unsigned int bar, uint64_t *start);

/* One line of /proc/self/maps without its newline; *name points into it. False if malformed. */
bool sw_vma_parse(const char *line, struct sw_vma *out, const char **name);

#endif

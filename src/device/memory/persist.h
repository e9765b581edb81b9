/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether memory outlives a loss of power, and what makes stores to it do so. docs/persistence.md
 * has the table.
 */
#ifndef SW_DEVICE_MEMORY_PERSIST_H
#define SW_DEVICE_MEMORY_PERSIST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum sw_persist {
    SW_PERSIST_NONE,    /* it does not: DRAM, tmpfs, private mappings */
    SW_PERSIST_BY_SYNC, /* msync(2): a shared mapping of a file that is kept */
    /* Writing back cache lines: persistent memory, mapped MAP_SYNC or device DAX. */
    SW_PERSIST_BY_CPU,
    /* A read, which pushes the writes before it to a PCI card that keeps them. */
    SW_PERSIST_BY_READ,
};

/* Persistence of the whole range as it is mapped now; an empty one is BY_SYNC. *disk is a number of
 * 24 bits that two ranges have in common whose files lie in one file system; of a range with
 * several files, that of the first one. */
enum sw_persist sw_persist_of(uint64_t va, uint64_t len_bytes, uint32_t *disk);

/* Both in one word, and back. */
static inline uint32_t sw_persist_word(enum sw_persist how, uint32_t disk)
{
    return (uint32_t)how | disk << 8;
}

static inline enum sw_persist sw_persist_how(uint32_t word)
{
    return (enum sw_persist)(word & 0xff);
}

static inline uint32_t sw_persist_disk(uint32_t word)
{
    return word >> 8;
}

/* The file that a range maps. */
struct sw_persist_file {
    uint64_t ino;                  /* 0: any of the device's, as the range maps several of them */
    uint32_t dev_major, dev_minor; /* both 0: of any device, or nothing is known of the range */
    bool is_whole;                 /* all of the range is mapped */
};
struct sw_persist_file sw_persist_file_of(uint64_t va, uint64_t len_bytes);
/* Whether they may be the same. */
bool sw_persist_is_same_file(const struct sw_persist_file *a, const struct sw_persist_file *b);

/* Makes a range persistent by msync(2), all whole pages of it. 0 or a negative errno. */
int sw_persist_sync(uint64_t va, uint64_t len_bytes);

/* Parts of the above. Whether /proc/self/mountinfo has a filesystem on this device that keeps what
 * is synced, though it is on no block device. */
bool sw_persist_mount_keeps(FILE *mountinfo, unsigned int dev_major, unsigned int dev_minor);
/* The BAR that a file of sysfs is, as "0000:01:00.0/2"; false: the file is none. */
#define SW_PERSIST_BAR_MAX 24
bool sw_persist_bar_of(const char *path, char bar[SW_PERSIST_BAR_MAX]);
/* Whether a list of BARs (SIDEWIRE_PERSISTENT_BARS; may be NULL) names this one. */
bool sw_persist_is_listed(const char *list, const char *bar);
/* Has what is stored into cards' memory in this range stored as cards take it (base/card_memory.h).
 * 0; -ENOMEM: there are too many such mappings; -EOPNOTSUPP: peers shall do atomics there. */
int sw_persist_note_cards(uint64_t va, uint64_t len_bytes, bool by_atomics);
/* Whether /proc/self/smaps says of the mapping that begins at `va` that it is MAP_SYNC. */
bool sw_persist_is_map_sync(FILE *smaps, uint64_t va);

#endif

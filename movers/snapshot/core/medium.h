/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a volume of snapshots lies, seen as blocks: a file, memory of a peer, a region of
 * persistent memory, a namespace of NVMe; in tests an array whose power is cut.
 *
 *     snap_medium_submit(medium, &io);     never blocks
 *     snap_medium_poll(medium);            calls io.done(), in any order
 *
 * One thread uses a medium. What is written is read back by later READs at once, but outlives a
 * power cut only once a FLUSH that was submitted after the WRITE's done() is done itself. Two ios
 * under way at a time never overlap, unless both read.
 */
#ifndef SW_SNAPSHOT_MEDIUM_H
#define SW_SNAPSHOT_MEDIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SNAP_BLOCK_BYTES = 4096, SNAP_IO_BYTES_MAX = 4 << 20 };

enum snap_io_kind {
    SNAP_IO_WRITE,
    SNAP_IO_READ,
    SNAP_IO_FLUSH, /* all that was written before; offset and bytes are 0 */
    /* The medium's own processor sums the blocks that are fresh in the leaf at `offset` and
     * compares them with the sums in the leaf; only where `checks` says that it can. */
    SNAP_IO_CHECK,
};

struct snap_io {
    /* The caller's. */
    enum snap_io_kind kind;
    uint64_t offset; /* in the volume; a multiple of a block */
    uint32_t bytes;  /* a multiple of a block */
    void *data;      /* aligned to a block, in memory that snap_medium_use() was told of */
    /* 0; -EBADMSG: a CHECK found another sum; -ENOSPC; -ESTALE: another writer has taken over;
     * else a negative errno. */
    void (*done)(struct snap_io *io, int result);
    void *context;
    uint64_t bad_block; /* of a CHECK: the first block of the volume that differs */
    /* The medium's, while it is under way. */
    struct snap_io *next;
    uint64_t private[4];
};

struct snap_medium;

struct snap_medium_ops {
    /* Memory that ios use from now on. 0, or a negative errno. */
    int (*use)(struct snap_medium *medium, void *data, size_t bytes);
    void (*submit)(struct snap_medium *medium, struct snap_io *io);
    /* Calls done() of what has ended; never sleeps. */
    void (*poll)(struct snap_medium *medium);
    /* True: `fd` gets readable when poll has something to do. False: poll at once. */
    bool (*arm)(struct snap_medium *medium);
    /* Ends what is under way by done(), lets go of the volume. */
    void (*close)(struct snap_medium *medium);
};

struct snap_medium {
    const struct snap_medium_ops *ops;
    char name[128]; /* as users write it: "file:/data/run.snap" */
    uint64_t bytes; /* of the volume: a multiple of a block */
    bool is_new; /* it begins with zeroes: no superblock is expected; only where it is writable */
    bool is_writable;
    bool checks; /* CHECK is there */
    /* Without CHECK: data are read back before they count. Else they are summed right before they
     * are written, and the rest is the medium's word. */
    bool reads_back;
    bool is_volatile; /* FLUSH promises nothing about power: memory */
    int fd;           /* for poll(2); -1: none, poll each millisecond */
    uint64_t epoch;   /* of this writer where the medium itself fences by it; else 0 */
    int error;        /* negative errno once it is of no use any more; else 0 */
    char why[256];    /* and the sentence */
    char note[256];   /* what it promises less than others do, as users should know; or "" */
};

/* How a medium is opened; which one, the text says. */
struct snap_medium_options {
    bool is_writable;
    bool take_over;     /* fences the writer that is there */
    bool reads_back;    /* also a medium that would not by itself: see below */
    uint64_t bytes;     /* of a volume that is made; 0: it has to be there */
    const char *writer; /* how this writer is called by others: host, program, pid */
    const char *local;
    uint32_t connect_timeout_ms, stall_timeout_ms;
};

/* 0 and the medium; or a negative errno and why not: -EBUSY where another writer has it. */
int snap_medium_open(const char *text, const struct snap_medium_options *options, char *error,
                     size_t error_bytes, struct snap_medium **medium);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a namespace is made of. A backend is one file with one table of operations; the kinds stand
 * in backends.c.
 *
 * Offsets and lengths are bytes, and multiples of the block size. The checks of the target are not
 * made again: a request lies within the backend.
 */
#ifndef SW_MOVERS_NVME_BACKEND_H
#define SW_MOVERS_NVME_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/list.h"

struct nvt_backend;
struct nvt_backend_spec;
struct nvt_claim;
struct nvt_disk;
struct nvt_lines;
struct mover_region;
struct nvt_slices;
struct nvt_uring;

enum nvt_io_kind {
    NVT_READ,
    NVT_WRITE,
    NVT_FLUSH,
    NVT_WRITE_ZEROES,
    NVT_DEALLOCATE,
    NVT_VERIFY, /* reads, and tells whether that went well */
};

enum { NVT_MEDIUM_BYTES = 160 };

enum nvt_slice_rank { NVT_SLICE_BEHIND, NVT_SLICE_OF_HOST, NVT_SLICE_OF_ADDRESS };

/* One operation. Its memory is the caller's until done() has been called, by the thread that has
 * submitted it. */
struct nvt_io {
    enum nvt_io_kind kind;
    bool is_durable;  /* writes and zeroes are on stable storage when done() is called (FUA) */
    bool deallocates; /* WRITE_ZEROES: the blocks may become holes */
    uint64_t offset, len_bytes;
    uint8_t *data;               /* [len_bytes] of READ and WRITE */
    struct nvt_uring *uring;     /* of the thread */
    struct nvt_slices *slices;   /* of the thread */
    struct mover_region *memory; /* the backend's, as NICs use it; NULL: they do not */
    /* Called once: from submit() or later from the loop. `status` is an NVMe status, 0: done. */
    void (*done)(struct nvt_io *io, uint16_t status);
    /* Not 0: nobody wants it any more, and it may end with that status before it is over. NULL: it
     * is always wanted. */
    uint16_t (*given_up)(const struct nvt_io *io);
    const void *address, *host; /* whose it is: addresses take turns, and hosts at each */
    struct {
        struct list_node node;
        struct list behind;          /* of a host's first: its other operations */
        struct list hosts;           /* of an address's first: those of the other hosts there */
        enum nvt_slice_rank rank;    /* where it waits */
        struct nvt_slices *waits_in; /* NULL: it does not wait */
        struct nvt_lines *lines;     /* whose line that is; NULL: of none */
        bool (*step)(struct nvt_io *io);
        bool is_held; /* step() ends it where nobody wants it: it has memory */
    } slice;          /* of slices.h */
    uint64_t moved;   /* the backend's own */
    void *owner;      /* the backend's own */
    void *user;
};

struct nvt_backend_setup {
    const char *path;     /* of what has one */
    uint64_t size_bytes;  /* of what has none */
    uint32_t block_bytes; /* 0: as the backend finds best */
    bool is_read_only;
    bool is_shared;        /* other servers that say so, too, may serve it */
    uint64_t shares_as;    /* they know the descriptors of this process by that; 0: they need not */
    bool fences;           /* whoever else has it is shut out first */
    const char *conf, *id; /* of a cluster: its configuration, and who asks; NULL: as usual */
    uint32_t wait_ms;      /* how long opening it may take where it is far; 0: as the kind says */
    const struct nvt_backend_spec *spec; /* the whole of what was written */
    uint32_t short_ppm;      /* of a million requests: the system is asked for a part alone */
    struct nvt_uring *uring; /* of the first thread */
};

struct nvt_backend_look {
    uint64_t size_bytes;
    uint32_t block_bytes;
    char medium[NVT_MEDIUM_BYTES];
};

struct nvt_backend_ops {
    const char *kind;
    /* Returns 0, or a negative errno with `error` saying what happened and what mends it. */
    int (*open)(const struct nvt_backend_setup *setup, struct nvt_backend **out, char *error,
                size_t error_size);
    void (*close)(struct nvt_backend *backend);
    /* Before close(), when hosts have nothing under way any more: what it has to do until then.
     * `io->done` is called when that is over; its status is for nobody. NULL: it has nothing to do.
     */
    void (*leave)(struct nvt_backend *backend, struct nvt_io *io);
    /* False: it still looks for what it has, and requests wait. NULL: it never does. */
    bool (*is_ready)(struct nvt_backend *backend);
    /* Several threads may call it at the same time. */
    void (*submit)(struct nvt_backend *backend, struct nvt_io *io);
    /* Before a NIC moves the data of a READ or WRITE from or to the backend's memory: a status
     * where there is no memory for it. NULL: there always is. */
    uint16_t (*reach)(struct nvt_backend *backend, const struct nvt_io *io);
    /* The size as it is now: files grow. NULL: it never changes. */
    uint64_t (*size_bytes)(struct nvt_backend *backend);
    /* How long it is, its blocks, and `medium`, without serving it: another target may. As open()
     * otherwise. NULL: this kind has nothing to look at. */
    int (*look)(const struct nvt_backend_setup *setup, struct nvt_backend_look *out, char *error,
                size_t error_size);
    /* Shuts out whoever serves it: nothing that they have sent is written from then on. 0 also
     * where nobody does. It may take as long as `wait_ms` says. NULL: this kind cannot. */
    int (*fence)(const struct nvt_backend_setup *setup, char *error, size_t error_size);
    /* Processes that have ended may still be writing to files of it besides its path: waits until
     * they do not, as long as `wait_ms` says. NULL: it has no other files. */
    int (*await_rest)(const struct nvt_backend_setup *setup, char *error, size_t error_size);
    /* close() goes on behind its return: waits until all is closed. False: something is not. NULL:
     * close() returns when it is done. */
    bool (*settle)(uint32_t wait_ms);
    bool is_size_far; /* it has to be asked for, which may take long: not while hosts are served */
};

/* Each backend begins with it. */
struct nvt_backend {
    const struct nvt_backend_ops *ops;
    uint64_t size_bytes;
    uint32_t block_bytes;
    bool is_read_only;
    bool is_volatile;                     /* writes are safe only after a flush */
    bool can_deallocate, frees_to_zeroes; /* deallocated blocks read as zeroes */
    /* Data in memory is moved from and to there, without another buffer. NULL: it does not. */
    uint8_t *memory;
    struct nvt_claim *claim;       /* of what has a path */
    char medium[NVT_MEDIUM_BYTES]; /* what it is, for targets that share it; "": not told */
    const _Atomic int *lost;       /* an errno once others have shut us out; NULL: nobody can */
    dev_t disk;                    /* if that hangs, it hangs; 0: none */
    struct nvt_disk
        *watched; /* the same, if a flush that fails loses something; NULL: it does not */
};

/* Opens what a text names (spec.h). Returns 0, or a negative errno with `error` saying what
 * happened and what mends it. */
int nvt_backend_open(const struct nvt_backend_spec *spec, struct nvt_uring *uring,
                     struct nvt_backend **out, char *error, size_t error_size);

/* What a text says, as backends take it. It points into `spec`. */
struct nvt_backend_setup nvt_backend_setup_of(const struct nvt_backend_spec *spec,
                                              struct nvt_uring *uring);
/* It answers requests at once: what it has was found. */
bool nvt_backend_is_ready(struct nvt_backend *backend);
/* Others have shut this target out: an errno, or 0. */
int nvt_backend_lost(const struct nvt_backend *backend);
/* Backends that are being closed have that much time. False: some are not closed. */
bool nvt_backends_settle(uint32_t wait_ms);

/* NULL: there is no such kind. */
const struct nvt_backend_ops *nvt_backend_find(const char *kind);

/* The NVMe status of what the system said (an errno, positive). */
uint16_t nvt_backend_status(int error, bool is_write);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mark of a file that lacks writes which the log of a tier has: an extended attribute,
 * `user.sidewire.tier`. It is there before the log has the first of them, and until the tier has
 * let go of a file that is whole. Nothing else is served from a marked file meanwhile.
 *
 * Block devices have no such attributes, nor has tmpfs before Linux 6.6: they are never marked.
 */
#ifndef SW_MOVERS_NVME_OWED_H
#define SW_MOVERS_NVME_OWED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nvt_backend_setup;

enum { NVT_OWED_BYTES = 16, NVT_OWED_LOGS_MAX = 1408 };

struct nvt_owed {
    uint8_t identity[NVT_OWED_BYTES]; /* of the log; zeroes: the mark is none that is known here */
    char logs[NVT_OWED_LOGS_MAX];     /* its copies, "log=PATH,log=PATH", as they were named */
};

/* 1: it is marked, 0: it is not, or cannot be; or a negative errno. */
int nvt_owed_read(const char *path, struct nvt_owed *out);
/* Marks it, for good when this returns. 0, -EOPNOTSUPP: marks are unknown there, or another
 * negative errno. */
int nvt_owed_mark(int fd, const struct nvt_owed *owed);
int nvt_owed_clear(int fd);

/* For kinds that would serve the file as it is: 0, or -EBUSY and what helps, if it is marked. */
int nvt_owed_refuse(const struct nvt_backend_setup *setup, char *error, size_t error_size);
int nvt_owed_refuse_path(const char *path, char *error, size_t error_size);

#endif

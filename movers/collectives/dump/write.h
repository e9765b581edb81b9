/* SPDX-License-Identifier: BSD-2-Clause */
/* A rank's flight recorder as JSON, as docs/coll-dump.md has it. */
#ifndef SW_COLLECTIVES_DUMP_WRITE_H
#define SW_COLLECTIVES_DUMP_WRITE_H

#include <jansson.h>

#include "collectives/core/recorder.h"
#include "collectives/dump/words.h"

#define COLL_DUMP_FORMAT "sidewire-coll-dump"
#define COLL_DUMP_SUFFIX ".json"

enum { COLL_DUMP_VERSION = 1 };

/* How a dump comes about. */
struct coll_dump_case {
    enum coll_dump_why why;
    enum coll_dump_process process;
    uint64_t now_ns; /* CLOCK_MONOTONIC */
};

/* NULL: there is no memory, or the page changes all the time. */
json_t *coll_dump_make(const struct coll_recorder *recorder, const struct coll_dump_case *how);
/* One operation of it, for tables, too. `size`: of ranks. */
json_t *coll_dump_operation(const struct coll_recorder *recorder,
                            const struct coll_recorded *record, uint32_t size);
/* Releases it. A negative errno, or 0. */
int coll_dump_write(json_t *dump, int fd);
/* Into FOLDER/JOB-RANK.json, which is made with its folder; `path` is its name then. */
int coll_dump_save(json_t *dump, const struct coll_page *page, const char *folder, char *path,
                   size_t room);

#endif

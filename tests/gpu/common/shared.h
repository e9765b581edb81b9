/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that another process can be given: how each kind is made, handed out, opened and ended. */
#ifndef GPU_COMMON_SHARED_H
#define GPU_COMMON_SHARED_H

#include "gpu/common/driver.h"

enum shared_kind { SHARED_IPC, SHARED_VMM, SHARED_POOL, SHARED_KINDS };

struct shared {
    enum shared_kind kind;
    size_t len_bytes;
    gpu_pointer pointer;
    uint64_t made;            /* VMM: its handle */
    void *pool;               /* pool: the pool it is of */
    int fd;                   /* VMM, pool: the descriptor that was handed out; or -1 */
    struct gpu_handle handle; /* IPC, pool: what is passed by value */
};

const char *shared_name(enum shared_kind kind);

/* What VMM memory of the first device is asked for with. */
struct gpu_allocation shared_properties(uint32_t handle);

/* Each gives the first code that is not GPU_OK, having answered a line {"what": "step"} for each of
 * its calls, with its code and time. */
int shared_make(struct shared *shared, enum shared_kind kind, size_t bytes);
int shared_export(struct shared *shared);
/* `fd` and `handle`: as they came from the other process. */
int shared_open(struct shared *shared, enum shared_kind kind, size_t bytes, int fd,
                const struct gpu_handle *handle);
int shared_close(struct shared *shared); /* of the one that opened it */
int shared_free(struct shared *shared);  /* of the one that made it */

#endif

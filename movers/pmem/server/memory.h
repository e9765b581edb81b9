/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory that a server serves: a file, a DAX device, a BAR of a PCI device. */
#ifndef SW_MOVERS_PMEM_MEMORY_H
#define SW_MOVERS_PMEM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/serve/disk.h"
#include "common/serve/served.h"
#include "sidewire/pmem.h"

struct pms_memory {
    int fd;     /* has the lock */
    void *base; /* NULL: not open */
    uint64_t bytes;
    enum sw_pmem_kind kind;
    uint8_t identity[16];
    struct mover_disk disk; /* of a file that outlives the power */
};

/* What is wanted of it. `create_bytes`: a file that is not there, or empty, gets that size; 0: it
 * does not. */
struct pms_memory_setup {
    uint64_t create_bytes;
    bool is_shared; /* served by others, too */
};

/* Locks it, and allocates all of a file: a full disk found later would be a SIGBUS. Returns 0, or a
 * negative errno and what is wrong. */
int pms_memory_open(const char *what, const struct pms_memory_setup *setup,
                    struct pms_memory *memory, char *error, size_t error_bytes);
void pms_memory_close(struct pms_memory *memory);

#endif

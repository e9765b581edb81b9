/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory that a server serves: a file, a DAX device, a BAR of a PCI device. */
#ifndef SW_MOVERS_PMEM_MEMORY_H
#define SW_MOVERS_PMEM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "sidewire/pmem.h"

struct pms_memory {
    void *base;
    uint64_t bytes;
    enum sw_pmem_kind kind;
    uint8_t identity[16];
};

/* `create_bytes`: a file that is not there is created with that size; 0: none is. Returns 0, or a
 * negative errno and what is wrong. */
int pms_memory_open(const char *what, uint64_t create_bytes, struct pms_memory *memory, char *error,
                    size_t error_bytes);
void pms_memory_close(struct pms_memory *memory);

#endif

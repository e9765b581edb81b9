/* SPDX-License-Identifier: BSD-2-Clause */
/* CRC32C (Castagnoli, as iSCSI has it), as fast as the processor reads memory. */
#ifndef SW_MOVERS_TRANSFER_SUM_H
#define SW_MOVERS_TRANSFER_SUM_H

#include <stddef.h>
#include <stdint.h>

/* `sum` is 0 for the first piece, and what this returned for each piece that follows. */
uint32_t xfc_sum(uint32_t sum, const void *data, size_t bytes);

#endif

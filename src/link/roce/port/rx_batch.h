/* SPDX-License-Identifier: BSD-2-Clause */
/* A receive batch. */
#ifndef SW_LINK_ROCE_PORT_RX_BATCH_H
#define SW_LINK_ROCE_PORT_RX_BATCH_H

#include <stdint.h>

#include "link/roce/port/arrival.h"

/* One message of the kernel: a run of equal packets, the last of them perhaps shorter. */
struct sw_rx_batch {
    const uint8_t *bytes;
    uint32_t len_bytes;
    uint32_t segment_bytes;
    struct sw_arrival arrival; /* all but the bytes */
};

#endif

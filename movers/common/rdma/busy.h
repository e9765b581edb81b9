/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_BUSY_H
#define SW_MOVERS_BUSY_H

#include <stdint.h>

/* Private data of a rejection: there is no place now, and may be one soon. A rejection where nobody
 * listens has none. */
static const uint8_t mover_busy[4] = {'B', 'U', 'S', 'Y'};
/* The same: the server's rules let nobody in from that address. */
static const uint8_t mover_denied[4] = {'D', 'E', 'N', 'Y'};

#endif

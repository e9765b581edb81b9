/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows for options that name a remote, and how it is reached, alike in all movers (option.h). `at`
 * is the offset of the place, `preset` what is taken without the option, as a string. */
#ifndef SW_MOVERS_REMOTE_H
#define SW_MOVERS_REMOTE_H

#include "common/command/option.h"

/* clang-format off */
#define MOVER_OPTION_ADDRESS(at) \
    {"address", 'a', "ADDR", 0, "Address of the server", 1, mover_take_text, at}
#define MOVER_OPTION_PORT(at, preset) \
    {"port", 's', "PORT", 0, "Port of the server (" preset ")", 1, mover_take_text, at}
#define MOVER_OPTION_REGION(at, preset) \
    {"region", 'r', "NAME", 0, "Name of the region (" preset ")", 1, mover_take_text, at}
#define MOVER_OPTION_LOCAL(at) \
    {"local", 'w', "ADDR", 0, "Address of the RDMA device here (that which leads there)", 1, \
     mover_take_text, at}
#define MOVER_OPTION_CONNECT_TIMEOUT(at, preset) \
    {"connect-timeout", 0, "MS", 0, "Milliseconds a connection may take (" preset ")", 2, \
     mover_take_count, at}
#define MOVER_OPTION_FORMAT(at) \
    {"output-format", 'o', "FORMAT", 0, "normal or json", 3, mover_take_format, at}
/* clang-format on */

#endif

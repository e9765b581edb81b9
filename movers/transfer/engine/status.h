/* SPDX-License-Identifier: BSD-2-Clause */
/* How a call fails, and why. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_STATUS_H
#define SW_MOVERS_TRANSFER_ENGINE_STATUS_H

#include "sidewire/transfer.h"

enum sw_xfer_status xfe_fail(struct sw_xfer_error *error, enum sw_xfer_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine's door to the network: core/port.h says what each call does. */
#ifndef SW_COLLECTIVES_COMM_PORT_H
#define SW_COLLECTIVES_COMM_PORT_H

#include "collectives/comm/comm.h"

void coll_port_open(struct sw_coll *coll);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What a connection tells of itself: link/connections.h. */
#ifndef SW_LINK_IWARP_DESCRIBE_H
#define SW_LINK_IWARP_DESCRIBE_H

#include <stdbool.h>

struct sw_connection;
struct sw_qp;

/* With the QP locked. false: it has no connection. */
bool sw_iwarp_describe(const struct sw_qp *qp, struct sw_connection *out);
/* For a RoCE device: tells what its requests wait for, too. */
void sw_iwarp_describe_paired(const struct sw_qp *qp, struct sw_connection *out);
/* Describes its socket: addresses, and what the kernel knows. */
void sw_iwarp_describe_socket(int fd, struct sw_connection *out);

#endif

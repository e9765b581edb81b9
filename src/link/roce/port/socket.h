/* SPDX-License-Identifier: BSD-2-Clause */
/* The UDP sockets of the port. */
#ifndef SW_LINK_ROCE_PORT_SOCKET_H
#define SW_LINK_ROCE_PORT_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/roce/port/rx_socket.h"

struct sw_port;

bool sw_socket_set(int fd, int level, int name, int value);
int sw_socket_udp(bool is_ipv4);
/* One that receives RoCE packets, sharing the port with others; or a negative errno. */
int sw_socket_receiving(bool is_ipv4, const struct in6_addr *address, uint16_t udp_port,
                        uint32_t ifindex);
/* From here on it tells the traffic class of what it receives and no more: 0.2 us less for each of
 * the other two, address and hop limit. For a socket that is connected. */
void sw_socket_tell_class_only(int fd, bool is_ipv4);
/* From here on it tells nothing but bytes, of one packet at a time. False, and all stays as it is:
 * something is there already, perhaps several packets in one. */
bool sw_socket_tell_bytes_only(int fd, bool is_ipv4);
/* The class again, and packets that come together in one message, with the length of each. */
void sw_socket_tell_runs(int fd, bool is_ipv4);
/* NULL: there is no room. A connected one is not listened to yet. */
struct sw_rx_socket *sw_port_add_rx_socket(struct sw_port *port, int fd,
                                           enum sw_rx_socket_kind kind);
/* A packet that comes to the socket wakes whoever sleeps on the port. */
bool sw_port_listen(struct sw_port *port, int fd);

#endif

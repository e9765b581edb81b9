/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of other hosts: whether TCP is the way there. It covers a bounded number of them,
 * for some minutes. Any thread; what it takes is a lock of its own.
 */
#ifndef SW_LINK_PAIRED_HOSTS_H
#define SW_LINK_PAIRED_HOSTS_H

#include <netinet/in.h>
#include <stdbool.h>

/* Packets found no answer there, and a call by TCP was taken. Says so, once for each host. */
void sw_hosts_note_found(const struct in6_addr *address);
bool sw_hosts_is_found(const struct in6_addr *address);

/* It sends datagrams by TCP, so it is asked and answered that way, too. */
void sw_hosts_note_stream(const struct in6_addr *address);
/* A message of connection management has come from it. Where such go by both ways, one that comes
 * by TCP alone shows that UDP does not pass. */
void sw_hosts_note_message(const struct in6_addr *address, bool is_carried);
/* Whether the datagrams of programs go there by TCP. */
bool sw_hosts_wants_datagrams(const struct in6_addr *address);
/* One goes to it, perhaps again for want of an answer. Whether it is to go by both ways. */
bool sw_hosts_wants_copy(const struct in6_addr *address, bool is_again);

void sw_hosts_fork_child(void);

#endif

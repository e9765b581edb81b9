/* SPDX-License-Identifier: BSD-2-Clause */
/* How ranks find each other: by the program's exchange, or at an address. */
#ifndef SW_COLLECTIVES_MEET_H
#define SW_COLLECTIVES_MEET_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "sidewire/coll.h"

/* This rank's address, without a port. */
enum sw_coll_status coll_meet_address(const struct sw_coll_options *options,
                                      struct sockaddr_storage *address,
                                      struct sw_coll_error *error);
void coll_meet_clear_port(struct sockaddr_storage *address);
/* `cards` has room for one of each rank. */
enum sw_coll_status coll_meet_exchange(const struct sw_coll_options *options, const void *card,
                                       size_t bytes, void *cards, uint64_t deadline_ns,
                                       struct sw_coll_error *error);

#endif

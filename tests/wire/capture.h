/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures of Ethernet frames (libpcap's classic format), and the frame around a RoCEv2 datagram.
 */
#ifndef SW_TESTS_CAPTURE_H
#define SW_TESTS_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "wire/icrc.h"
#include "wire/packet.h"

enum { CAPTURE_FRAME_MAX = 10240 };

/* Both exit the program with a message when the file is not to be had. */
FILE *capture_open(const char *path);
FILE *capture_create(const char *path);

/* The next whole frame; its length, or 0 at the end of the file. */
size_t capture_read(FILE *capture, uint8_t frame[CAPTURE_FRAME_MAX]);
void capture_write(FILE *capture, const uint8_t *frame, size_t len);

/* Whether a frame is UDP to the port of RoCEv2: its flow and its datagram. */
bool frame_parse(const uint8_t *frame, size_t len, struct sw_flow *flow, const uint8_t **datagram,
                 size_t *datagram_len);

/* The whole datagram of a packet, with the ICRC for this identification. `to` has room for it.
 * Returns its length. */
size_t datagram_build(const struct sw_icrc_flow *flow, uint16_t ip_id,
                      const struct sw_packet *packet, uint8_t *to);

/* Puts Ethernet, IP and UDP (checksum 0 with IPv4) before a datagram. Returns the length of the
 * frame. */
size_t frame_build(const struct sw_flow *flow, const uint8_t *datagram, size_t datagram_len,
                   uint8_t frame[CAPTURE_FRAME_MAX]);

#endif

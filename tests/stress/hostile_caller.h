/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One who calls an iWARP listener by plain sockets and then says anything: frames of MPA and FPDUs
 * that are nearly right, wrong lengths, keys and order, silence, and ends anywhere.
 */
#ifndef TESTS_STRESS_HOSTILE_CALLER_H
#define TESTS_STRESS_HOSTILE_CALLER_H

#include <stdint.h>

/* What the listener's program tells whoever it accepts: memory that anybody may reach. */
struct hostile_offer {
    uint64_t addr;
    uint32_t rkey, len_bytes;
};

/* So long; returns how many times it has called. */
uint32_t hostile_call(uint16_t port, uint64_t seed, int seconds);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets that are held back: copies, given out when they are due, in the order of their times and
 * among equal times in the order they came. Not thread-safe.
 */
#ifndef SW_LINK_FAULTS_LINE_H
#define SW_LINK_FAULTS_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_fault_line {
    struct sw_held **heap; /* the next one first */
    uint32_t count, room;
    uint64_t sequence;
    uint64_t refused; /* packets there was no room for: as good as lost */
};

#define SW_FAULT_LINE_MAX 65536u /* packets */

/* A packet and what its link must know to pass it on. */
struct sw_held {
    uint64_t due_ns;
    uint64_t sequence;
    uint32_t path_len, packet_len;
    uint8_t bytes[]; /* path, then packet */
};

/* Keeps a copy of `path` (whatever the link wants back) and `packet`. false: no room. */
bool sw_fault_line_put(struct sw_fault_line *line, uint64_t due_ns, const void *path,
                       uint32_t path_len, const void *packet, uint32_t packet_len);
/* A packet that is due, for the caller to free(3); NULL: none is. */
struct sw_held *sw_fault_line_take(struct sw_fault_line *line, uint64_t now_ns);
/* When the next one is due; UINT64_MAX: none is held. */
uint64_t sw_fault_line_due_ns(const struct sw_fault_line *line);
void sw_fault_line_clear(struct sw_fault_line *line);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* What the environment and the machine allow page adoption to do. Read once, on first use. */
#ifndef SW_DEVICE_ADOPT_ADOPT_CONFIG_H
#define SW_DEVICE_ADOPT_ADOPT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct sw_adopt_config {
    bool enabled; /* SIDEWIRE_ADOPT=auto|never */
    uint64_t
        max_bytes; /* of private memory adopted at one time: SIDEWIRE_ADOPT_MAX, or half of RAM */
    bool large_pages; /* the administrator has not forbidden transparent huge pages */
};

const struct sw_adopt_config *sw_adopt_config(void);

/* Digits and at most one of K, M, G, T ("4096", "64K"). False for anything else. */
bool sw_adopt_parse_size(const char *text, uint64_t *bytes);

#endif

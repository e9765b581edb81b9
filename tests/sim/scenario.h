/* SPDX-License-Identifier: BSD-2-Clause */
/* One simulated world, drawn from a seed: hosts, connections, faults, programs; and whether all
 * came out as it must. */
#ifndef SW_TESTS_SIM_SCENARIO_H
#define SW_TESTS_SIM_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

struct scenario_result {
    const char *fault; /* NULL: all is well */
    char detail[256];
    uint64_t hash;
    uint64_t virtual_ns;
    uint64_t requests, packets, lost, marked, resent;
};

/* `prints`: each event on stderr. */
void scenario_run(uint64_t seed, bool prints, struct scenario_result *out);

#endif

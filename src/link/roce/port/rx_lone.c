/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/port/rx_lone.h"

#include "base/clock.h"

#define STREAK 64u                    /* so many packets alone, ... */
#define STREAK_NS (10 * SW_NS_PER_MS) /* ... in this time: for fewer it is not worth it */
#define LOOK_NS (2 * SW_NS_PER_MS)    /* between two looks for marks */
#define LOOK_PACKETS 8u               /* of a look */

void sw_rx_lone_note(struct sw_rx_lone *lone, bool is_alone, uint64_t now_ns)
{
    if (!lone->streak || now_ns >= lone->since_ns + STREAK_NS) {
        lone->streak = 0;
        lone->since_ns = now_ns;
    }
    lone->streak = is_alone ? lone->streak + 1 : 0;
}

bool sw_rx_lone_may_begin(const struct sw_rx_lone *lone, uint64_t now_ns)
{
    return lone->streak >= STREAK && now_ns < lone->since_ns + STREAK_NS;
}

void sw_rx_lone_tried(struct sw_rx_lone *lone, bool begins, uint64_t now_ns)
{
    lone->streak = 0;
    lone->is_on = begins;
    lone->until_ns = now_ns + LOOK_NS;
}

bool sw_rx_lone_ends(struct sw_rx_lone *lone, bool is_alone, uint64_t now_ns)
{
    if (is_alone && now_ns < lone->until_ns)
        return false;
    lone->is_on = false;
    lone->since_ns = now_ns;
    lone->streak = is_alone ? STREAK - LOOK_PACKETS : 0;
    return true;
}

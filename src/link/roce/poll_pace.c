/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/poll_pace.h"

#include "base/clock.h"

#define QUIET_NS (10 * SW_NS_PER_MS)    /* nothing has moved for so long: nothing is expected */
#define GLANCE_NS (5 * SW_NS_PER_US)    /* then a look this often is enough */
#define PATIENCE_NS (30 * SW_NS_PER_US) /* polls that find nothing for longer let others run */
#define ALONE_NS (3 * SW_NS_PER_US)     /* a yield that took less went to nobody */
#define SOON_NS (500 * SW_NS_PER_US)    /* a peer that polls gives way itself before */

/* Up to 16 ms: by then the scheduler has let others run by itself. */
static const struct sw_backoff_rule vain_yields = {.first = SW_NS_PER_MS, .doublings_max = 4};

bool sw_poll_pace_is_quiet(uint64_t moved_ns, uint64_t now_ns)
{
    return now_ns >= moved_ns + QUIET_NS;
}

bool sw_poll_pace_glances(uint64_t looked_ns, uint64_t now_ns)
{
    return now_ns >= looked_ns + GLANCE_NS;
}

/* What came of the last yield. */
static void judge_yield(struct sw_poll_pace *pace, bool found, uint64_t returned_ns)
{
    const uint64_t took_ns = returned_ns - pace->yielded_ns;
    pace->yielded_ns = 0;
    if (took_ns < ALONE_NS)
        return;
    if (found && took_ns < SOON_NS) {
        sw_backoff_succeed(&pace->backoff);
        return;
    }
    pace->holds_ns = returned_ns + sw_backoff_fail(&pace->backoff, &vain_yields);
}

bool sw_poll_pace_yields(struct sw_poll_pace *pace, uint32_t found, uint64_t returned_ns,
                         uint64_t now_ns)
{
    if (pace->yielded_ns && returned_ns >= pace->yielded_ns)
        judge_yield(pace, found, returned_ns);
    if (found)
        pace->found_ns = now_ns;
    if (now_ns < pace->found_ns + PATIENCE_NS || now_ns < pace->holds_ns)
        return false;
    pace->yielded_ns = now_ns;
    return true;
}

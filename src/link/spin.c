/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/spin.h"

static const struct sw_backoff_rule vain_spins = {.first = 64, .failures_min = 4};

bool sw_spin_goes_on(const struct sw_spin *spin)
{
    return spin->since_ns || sw_backoff_has_turn(&spin->backoff);
}

void sw_spin_begin(struct sw_spin *spin, uint64_t now_ns)
{
    if (spin->since_ns || !sw_backoff_skips(&spin->backoff))
        spin->since_ns = now_ns;
}

static void end_in_vain(struct sw_spin *spin, uint64_t now_ns)
{
    if (!spin->since_ns || now_ns - spin->since_ns < SW_SPIN_NS)
        return;
    spin->since_ns = 0;
    sw_backoff_fail_turn(&spin->backoff, &vain_spins);
}

bool sw_spin_round(struct sw_spin *spin, bool worked, uint64_t now_ns)
{
    if (worked) {
        if (spin->since_ns)
            sw_backoff_succeed(&spin->backoff);
        sw_spin_begin(spin, now_ns);
    } else {
        end_in_vain(spin, now_ns);
    }
    return spin->since_ns;
}

bool sw_spin_await(struct sw_spin *spin, bool has_come, uint64_t now_ns)
{
    if (spin->since_ns && has_come)
        *spin = (struct sw_spin){0};
    else
        end_in_vain(spin, now_ns);
    return spin->since_ns;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/spin.h"

#define VAIN_MAX 4u
#define LEFT_OUT 64u

bool sw_spin_goes_on(const struct sw_spin *spin)
{
    return spin->since_ns || spin->left_out == 0;
}

void sw_spin_begin(struct sw_spin *spin, uint64_t now_ns)
{
    if (sw_spin_goes_on(spin))
        spin->since_ns = now_ns;
    else
        spin->left_out--;
}

static void end_in_vain(struct sw_spin *spin, uint64_t now_ns)
{
    if (!spin->since_ns || now_ns - spin->since_ns < SW_SPIN_NS)
        return;
    spin->since_ns = 0;
    if (++spin->vain >= VAIN_MAX)
        spin->left_out = LEFT_OUT;
}

bool sw_spin_round(struct sw_spin *spin, bool worked, uint64_t now_ns)
{
    if (worked) {
        if (spin->since_ns)
            spin->vain = 0;
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

/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/spin.h"

#define VAIN_MAX 4u
#define LEFT_OUT 64u

bool sw_spin_goes_on(const struct sw_spin *spin)
{
    return spin->since_ns || spin->left_out == 0;
}

/* It has gone on for long enough, for nothing. */
static void end_in_vain(struct sw_spin *spin)
{
    spin->since_ns = 0;
    if (++spin->vain >= VAIN_MAX)
        spin->left_out = LEFT_OUT;
}

bool sw_spin_round(struct sw_spin *spin, bool worked, uint64_t now_ns)
{
    if (worked && spin->since_ns)
        spin->vain = 0;
    if (worked && sw_spin_goes_on(spin)) {
        spin->since_ns = now_ns;
    } else if (worked) {
        spin->left_out--;
    } else if (spin->since_ns && now_ns - spin->since_ns >= SW_SPIN_NS) {
        end_in_vain(spin);
    }
    return spin->since_ns;
}

void sw_spin_expect(struct sw_spin *spin, uint64_t now_ns)
{
    if (sw_spin_goes_on(spin))
        spin->since_ns = now_ns;
    else
        spin->left_out--;
}

bool sw_spin_expects(struct sw_spin *spin, bool worked, uint64_t now_ns)
{
    if (!spin->since_ns)
        return false;
    if (worked)
        *spin = (struct sw_spin){0};
    else if (now_ns - spin->since_ns >= SW_SPIN_NS)
        end_in_vain(spin);
    return spin->since_ns;
}

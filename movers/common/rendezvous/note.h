/* SPDX-License-Identifier: BSD-2-Clause */
/* When the absent are first named in the log; then after three times as long. */
#ifndef SW_MOVERS_RENDEZVOUS_NOTE_H
#define SW_MOVERS_RENDEZVOUS_NOTE_H

#include "common/rendezvous/rendezvous.h"
#include "common/time/units.h"

static inline uint64_t mover_meet_note_ns(const struct mover_rendezvous *how)
{
    return how->note_ms ? how->note_ms * NS_PER_MS : 10 * NS_PER_S;
}

#endif

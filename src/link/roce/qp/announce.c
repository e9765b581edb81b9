/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/qp/announce.h"

#define ROUNDS_FEW 4u
#define ROUNDS_MANY 256u /* less than a millisecond lost for so many is not noticed */

static bool is_usual(const struct sw_announce *announce)
{
    return announce->rounds >= (announce->was_unattended ? ROUNDS_MANY : ROUNDS_FEW);
}

bool sw_announce_request(struct sw_announce *announce, bool is_attended, uint64_t now_ns)
{
    if (announce->open_ns && now_ns >= announce->open_ns + SW_ANNOUNCE_WAIT_NS)
        announce->rounds = 0;
    if (!announce->open_ns)
        announce->open_ns = now_ns;
    if (!is_attended && is_usual(announce)) {
        announce->was_unattended = true;
        announce->rounds = 0;
    }
    return is_usual(announce);
}

void sw_announce_message(struct sw_announce *announce)
{
    if (!announce->open_ns)
        return;
    announce->open_ns = 0;
    announce->rounds += announce->rounds < ROUNDS_MANY;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/parting.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/engine.h"
#include "rdmacm/connections/handover.h"
#include "rdmacm/connections/id.h"
#include "rdmacm/connections/service.h"
#include "rdmacm/iwarp/iwarp.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"

#define ROUNDS 4u /* of DREQs: where 3% are lost, 1 of a million ends is unheard */
#define AGAIN_NS (10 * SW_NS_PER_MS)  /* after the first, then twice as long */
#define WHOLE_NS (500 * SW_NS_PER_MS) /* whatever becomes of the engine */
#define LOOK_US 200

static atomic_bool is_ending, is_done;

/* The engine's. */
static uint32_t rounds;
static uint64_t due_ns;

static void leave_peer(struct sw_ucm_id *id, void *arg)
{
    const uint64_t *now_ns = arg;
    if (!id->has_cm || sw_ucm_is_iwarp(id) || id->cm.path.slot)
        return;
    sw_cm_disconnect(&sw_ucm_machine, &id->cm, NULL, 0, *now_ns); /* where it is connected */
    sw_ucm_handover_note(id);
}

bool sw_ucm_is_parting(void)
{
    return atomic_load(&is_ending);
}

uint64_t sw_ucm_parting_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    if (!atomic_load(&is_ending) || atomic_load(&is_done))
        return UINT64_MAX;
    if (!rounds)
        sw_ucm_id_each(leave_peer, &now_ns);
    const bool is_due = rounds && now_ns >= due_ns;
    const uint32_t missing = sw_cm_dreqs_unanswered(&sw_ucm_machine, is_due);
    if (!rounds || is_due)
        due_ns = now_ns + (AGAIN_NS << rounds++);
    if (!missing || rounds == ROUNDS)
        atomic_store(&is_done, true);
    return due_ns;
}

/* The engine does it, which is here until the process is not: this thread may hold any lock, in a
 * signal handler. Before the port is left. */
__attribute__((destructor)) static void part_from_peers(void)
{
    if (!sw_ucm_service_is_started() || !sw_engine.running || sw_engine_is_self())
        return;
    const uint64_t until_ns = sw_clock_ns() + WHOLE_NS;
    atomic_store(&is_ending, true);
    while (!atomic_load(&is_done) && sw_clock_ns() < until_ns) {
        sw_agent_call_tick();
        usleep(LOOK_US);
    }
}

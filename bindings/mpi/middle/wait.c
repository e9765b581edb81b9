/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait.h"

#include <sched.h>
#include <time.h>

#include "later.h"

/* How a rank waits. MPI has no descriptor to sleep on, and what it has under way must go on, so
 * the wait looks at both: at first without pause, then with other threads of the processor let in
 * between, at last asleep in between. Ranks that share a processor, as unbound ones may for a
 * while, spend all looks without pause in each operation: 4,096 were 580 us, 512 are 50 to 180.
 * Where ranks are more than processors, there is a pause from the first look on. At first it looks
 * at MPI once in 256 times, some 20 us: MPICH's look gives the processor away, which on a busy one
 * takes milliseconds (8 bytes in 1.2 ms in the place of half a microsecond). */
enum { LOOKS_BUSY = 512, LOOKS_POKING = 4096, LOOKS_YIELDING = 20000 };
enum { LOOKS_PER_POKE = 256, NAP_NS = 50000 };

static void pause_between(uint32_t looks)
{
    if (looks > LOOKS_YIELDING)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    else if (looks > LOOKS_BUSY)
        sched_yield();
}

static enum sw_coll_status post_call(struct mpm_group *group, const struct sw_coll_call *call,
                                     struct sw_coll_error *error, struct sw_coll_request **request)
{
    /* MPI has no deadlines: a rank may compute for days before it calls. */
    return sw_coll_post(group->coll, call, sw_coll_deadline_ms(UINT32_MAX), error, request);
}

/* Others of the communicator may be under way without a caller: then this is no thread's alone. */
static enum sw_coll_status test_call(bool is_shared, struct sw_coll_request *request,
                                     struct sw_coll_error *error)
{
    if (is_shared)
        mpm_later_lock();
    enum sw_coll_status status = sw_coll_test(request, error);
    if (is_shared)
        mpm_later_unlock();
    return status;
}

bool mpm_wait(struct mpm_group *group, const struct sw_coll_call *call, struct sw_coll_error *error)
{
    struct sw_coll_request *request;
    bool is_shared = mpm_later_count() > 0;
    if (is_shared)
        mpm_later_lock();
    enum sw_coll_status status = post_call(group, call, error, &request);
    if (is_shared)
        mpm_later_unlock();
    if (status != SW_COLL_OK)
        return false;
    uint32_t looks = group->must_yield ? LOOKS_BUSY : 0;
    while ((status = test_call(is_shared, request, error)) == SW_COLL_AGAIN) {
        looks += looks <= LOOKS_YIELDING;
        if (looks > LOOKS_POKING || looks % LOOKS_PER_POKE == 0)
            group->binding->progress();
        pause_between(looks);
    }
    return status == SW_COLL_OK;
}

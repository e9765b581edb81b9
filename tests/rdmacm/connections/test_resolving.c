/* SPDX-License-Identifier: BSD-2-Clause */
/* IDs that wait for neighbours. The kernel's table, the agent and the events are the test's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "device/nic/neighbour.h"
#include "device/nic/netdev.h"
#include "rdmacm/connections/event.h"
#include "rdmacm/connections/id.h"
#include "rdmacm/connections/resolving.h"
#include "rdmacm/connections/route.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"

#define IDS 500u
#define TIMEOUT_MS 2000u

static struct sw_ucm_id ids[IDS];
static unsigned int looks, asks, told, failed;
static enum sw_neighbour_state state;
static bool is_let_out;

enum sw_neighbour_state sw_neighbour_look(unsigned int ifindex, const union ibv_gid *source,
                                          const union ibv_gid *dest)
{
    (void)ifindex, (void)source, (void)dest;
    looks++;
    return state;
}

bool sw_neighbour_ask(unsigned int ifindex, const union ibv_gid *source, const union ibv_gid *dest)
{
    (void)ifindex, (void)source, (void)dest;
    asks++;
    return is_let_out;
}

bool sw_netdev_is_local_gid(const union ibv_gid *gid)
{
    (void)gid;
    return false;
}

void sw_ucm_event_tell(struct sw_ucm_id *id, enum sw_ucm_event_type type, int status)
{
    (void)id, (void)type;
    told++;
    failed += status == -ETIMEDOUT;
}

void sw_ucm_route_look(struct sw_ucm_id *id)
{
    (void)id;
}

void sw_agent_plan(uint64_t due_ns)
{
    (void)due_ns;
}

static int setup(void **test_state)
{
    (void)test_state;
    memset(ids, 0, sizeof(ids));
    looks = asks = told = failed = 0;
    state = SW_NEIGHBOUR_ABSENT;
    is_let_out = true;
    return 0;
}

/* Each to an address of its own, or all to one. */
static unsigned int begin_all(bool has_own)
{
    static const union sw_address before;
    unsigned int waiting = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        ids[i].src.in = (struct sockaddr_in){AF_INET, .sin_addr = {htonl(0x0a630001)}};
        ids[i].dst.in =
            (struct sockaddr_in){AF_INET, .sin_addr = {htonl(0x0a630100 + (has_own ? i : 0))}};
        waiting += sw_ucm_resolving_begin(&ids[i], &before, true, TIMEOUT_MS);
    }
    return waiting;
}

/* As the engine does, which wakes when it is told to; the clock is the test's from here on. */
static void run_until_all_are_told(void)
{
    uint64_t now_ns = sw_clock_ns();
    while (now_ns != UINT64_MAX)
        now_ns = sw_ucm_resolving_tick(now_ns);
    assert_int_equal(told, IDS);
}

static void resolving__one_look_for_all_ids_of_an_address(void **test_state)
{
    (void)test_state;
    assert_int_equal(begin_all(false), IDS);
    assert_int_equal(looks, 1);
    assert_int_equal(asks, 1);
    run_until_all_are_told();
    assert_int_equal(failed, IDS);
    assert_true(looks < 100); /* one each 64 ms, for 2 s */
    assert_true(asks <= 4);
}

static void resolving__many_addresses_are_looked_at_less_often(void **test_state)
{
    (void)test_state;
    assert_int_equal(begin_all(true), IDS);
    run_until_all_are_told();
    assert_int_equal(failed, IDS);
    assert_true(looks < 20 * IDS);
}

static void resolving__all_ids_hear_of_one_answer(void **test_state)
{
    (void)test_state;
    assert_int_equal(begin_all(false), IDS);
    state = SW_NEIGHBOUR_KNOWN;
    run_until_all_are_told();
    assert_int_equal(failed, 0);
    assert_int_equal(looks, 2);
    assert_int_equal(ids[0].state, SW_UCM_ADDR_RESOLVED);
}

static void resolving__nobody_waits_where_none_can_be_asked(void **test_state)
{
    (void)test_state;
    is_let_out = false;
    assert_int_equal(begin_all(false), 0);
}

/* It is known in the end only, which a look at the last moment shows. */
static void resolving__is_looked_at_before_it_is_given_up(void **test_state)
{
    (void)test_state;
    assert_int_equal(begin_all(true), IDS);
    const uint64_t now_ns = sw_clock_ns();
    sw_ucm_resolving_tick(now_ns);
    state = SW_NEIGHBOUR_KNOWN;
    assert_int_equal(sw_ucm_resolving_tick(now_ns + TIMEOUT_MS * SW_NS_PER_MS), UINT64_MAX);
    assert_int_equal(told, IDS);
    assert_int_equal(failed, 0);
}

int main(void)
{
    pthread_mutex_lock(&sw_rdmacm_lock);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(resolving__one_look_for_all_ids_of_an_address, setup),
        cmocka_unit_test_setup(resolving__many_addresses_are_looked_at_less_often, setup),
        cmocka_unit_test_setup(resolving__all_ids_hear_of_one_answer, setup),
        cmocka_unit_test_setup(resolving__nobody_waits_where_none_can_be_asked, setup),
        cmocka_unit_test_setup(resolving__is_looked_at_before_it_is_given_up, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* MADs that come faster than the engine reads them: here there is no engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/queue/counters.h"
#include "link/roce/mad.h"
#include "link/roce/port/arrival.h"
#include "link/roce/roce.h"
#include "rdmacm/mads/agent.h"
#include "wire/cm_mad.h"
#include "wire/packet.h"

/* Addresses have one of 255 numbers, which nobody can foresee: some may have that of the flood.
 * More than three do in one of a million runs. */
enum { FLOOD = 5000, OTHERS = 20, SHARE = 3 };

/* A request from 10.0.0.`host`. Returns whether it was taken in. */
static bool arrives(uint8_t host)
{
    const struct sw_cm_message message = {.attribute = SW_CM_REQ};
    struct sw_arrival arrival = {.count = 1, .ifindex = 1, .hop_limit = 64};
    uint8_t mad[SW_MAD_BYTES];
    const uint8_t source[16] = {[10] = 0xff, 0xff, 10, 0, 0, host};
    memcpy(&arrival.source, source, sizeof(source));
    sw_cm_mad_encode(&message, mad);
    const struct sw_packet packet = {.opcode =
                                         sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, 0),
                                     .bth = {.pkey = 0xffff},
                                     .deth = {.qkey = SW_MAD_QKEY, .src_qpn = SW_MAD_QPN},
                                     .payload = mad,
                                     .payload_len = SW_MAD_BYTES};
    uint64_t dropped = sw_counter_read(NULL, SW_RX_DROP_CROWDED);
    sw_lock_acquire(&sw_roce.port.rx_lock);
    sw_roce_deliver_mad(&arrival, &packet);
    sw_lock_release(&sw_roce.port.rx_lock);
    return sw_counter_read(NULL, SW_RX_DROP_CROWDED) == dropped;
}

static void intake__has_room_for_others_in_a_flood(void **state)
{
    (void)state;
    uint32_t taken = 0;
    pthread_mutex_lock(&sw_rdmacm_lock); /* nobody steps */
    sw_agent_plan(UINT64_MAX);           /* the agent is linked: it takes packets in */
    for (int i = 0; i < FLOOD; i++)
        taken += arrives(1);
    assert_true(taken >= 512 && taken < FLOOD);
    uint32_t others = 0;
    for (uint8_t i = 0; i < OTHERS; i++)
        others += arrives((uint8_t)(2 + i));
    assert_true(others >= OTHERS - SHARE);
    assert_false(arrives(1));
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(intake__has_room_for_others_in_a_flood)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

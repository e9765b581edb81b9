/* SPDX-License-Identifier: BSD-2-Clause */
/* A ring of datagrams as a client that breaks the rules may fill it, and as one that keeps them. */
#include "link/direct/datagram/receive.h"

#include <stdlib.h>

#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "link/direct/datagram/multicast.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link_rig.h"

#define SLOT 1234u /* of a client that does not exist */
#define QKEY 5u

static struct sw_inbox *inbox;
static uint32_t block;
static uint32_t produced;

static struct sw_inbox_header *header(void)
{
    return (struct sw_inbox_header *)inbox->base;
}

static int ring_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig_open(rig);
    assert_int_equal(sw_inbox_take(SLOT, &inbox, &block), 0);
    produced = atomic_load(&header()->datagrams_produced);
    const struct ibv_qp_cap cap = {.max_recv_wr = 64, .max_recv_sge = 1};
    rig->qp = rig_ud(rig, &cap, QKEY);
    *state = rig;
    return 0;
}

static int ring_down(void **state)
{
    struct rig *rig = *state;
    sw_inbox_give(inbox, block);
    assert_int_equal(sw_qp_destroy(rig->qp), 0);
    rig_close(rig);
    free(rig);
    return 0;
}

static struct sw_datagram_record *next(const struct rig *rig, uint16_t size)
{
    struct sw_datagram_record *record =
        (struct sw_datagram_record *)sw_inbox_datagram(inbox->base, produced);
    record->size = size;
    record->flags = 0;
    record->dest_qpn = sw_qp_num(rig->qp);
    record->src_qpn = 0x99;
    record->qkey = QKEY;
    return record;
}

static void publish(uint32_t units)
{
    sw_inbox_record(inbox->base, produced + units)->seq = produced + units;
    sw_inbox_record(inbox->base, produced)->seq = produced + 1;
    produced += units;
    atomic_store(&header()->datagrams_produced, produced);
}

/* Takes all that waits; every byte the ring held has been consumed. */
static int serve(struct rig *rig)
{
    struct ibv_wc wc[16];
    int count = sw_cq_poll(rig->cq, 16, wc);
    while (sw_datagram_waits(inbox))
        count += sw_cq_poll(rig->cq, 16, wc);
    assert_int_equal(atomic_load(&header()->datagrams_consumed), produced);
    return count;
}

static void sw_datagram_receive__no_record_at_all(void **state)
{
    struct rig *rig = *state;
    static const struct {
        uint16_t size;
        uint8_t flags;
        uint32_t published;
    } cases[] = {
        {4097, 0, 66},                              /* longer than any path MTU */
        {UINT16_MAX, 0, 2},                         /* and than the rest of the ring */
        {8, 0x80, 2},                               /* of no kind */
        {0, SW_DATAGRAM_SKIP, 2},                   /* skips nothing, */
        {UINT16_MAX, SW_DATAGRAM_SKIP, 2},          /* or more than there is */
        {2, SW_DATAGRAM_SKIP | SW_DATAGRAM_IMM, 2}, /* is a message, and none */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t before = sw_counter_read(NULL, SW_RX_DROP_MALFORMED);
        rig_recv(rig, i, 0, 8192);
        next(rig, cases[i].size)->flags = cases[i].flags;
        publish(cases[i].published);
        assert_int_equal(serve(rig), 0);
        assert_int_equal(sw_counter_read(NULL, SW_RX_DROP_MALFORMED), before + 1);
    }
}

/* Nonsense, and nothing to be learned from what the client says it has written. */
static void sw_datagram_receive__positions_from_nowhere(void **state)
{
    struct rig *rig = *state;
    static const uint32_t claims[] = {0, SW_DATAGRAM_UNITS + 1, UINT32_MAX - 100};
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        uint64_t before = sw_counter_read(NULL, SW_RX_DROP_MALFORMED);
        uint32_t at = produced;
        next(rig, UINT16_MAX);
        publish(1);
        atomic_store(&header()->datagrams_produced, at + claims[i]);
        assert_int_equal(serve(rig), 0);
        assert_int_equal(sw_counter_read(NULL, SW_RX_DROP_MALFORMED), before + 1);
        atomic_store(&header()->datagrams_produced, produced);
    }
}

/* Old bytes of an earlier round of the ring are no record, though they may look like one. */
static void sw_datagram_receive__remains_of_earlier_rounds(void **state)
{
    struct rig *rig = *state;
    rig_recv(rig, 1, 0, 8192);
    sw_inbox_record(inbox->base, produced + 2)->seq = produced + 3;
    next(rig, 8);
    publish(2);
    assert_int_equal(serve(rig), 1);
    assert_false(sw_datagram_waits(inbox));
}

/* Around the ring many times: no record wraps, and none is lost. */
static void sw_datagram_receive__around_the_ring(void **state)
{
    struct rig *rig = *state;
    for (uint32_t i = 0; i < 3 * SW_DATAGRAM_UNITS / 7; i++) {
        uint32_t units = 2 + i % 13, rest = SW_DATAGRAM_UNITS - produced % SW_DATAGRAM_UNITS;
        if (rest < units) {
            next(rig, (uint16_t)rest)->flags = SW_DATAGRAM_SKIP;
            publish(rest);
        }
        rig_recv(rig, i, 0, 8192);
        const uint32_t size = (units - 1) * SW_DATAGRAM_UNIT - i % SW_DATAGRAM_UNIT;
        next(rig, (uint16_t)size)->payload[size - 1] = (uint8_t)i;
        publish(units);
        assert_int_equal(serve(rig), 1);
        assert_int_equal(rig->bytes[SW_GRH_BYTES + size - 1], (uint8_t)i);
    }
}

/* No more is taken out than the poller asked for: the rest stays until it has posted receives. */
static void sw_datagram_receive__as_many_as_wanted(void **state)
{
    struct rig *rig = *state;
    struct ibv_wc wc[16];
    uint64_t before = sw_counter_read(rig->ctx->netdev, SW_RX_DROP_NO_RECV);
    for (uint32_t i = 0; i < 8; i++) {
        if (SW_DATAGRAM_UNITS - produced % SW_DATAGRAM_UNITS < 2) {
            next(rig, 1)->flags = SW_DATAGRAM_SKIP;
            publish(1);
        }
        next(rig, 8);
        publish(2);
    }
    for (uint32_t round = 0; round < 4; round++) {
        rig_recv(rig, round, 0, 8192);
        rig_recv(rig, round, 0, 8192);
        assert_int_equal(sw_cq_poll(rig->cq, 2, wc), 2);
    }
    assert_int_equal(serve(rig), 0);
    assert_int_equal(sw_counter_read(rig->ctx->netdev, SW_RX_DROP_NO_RECV), before);
}

static void sw_datagram_receive__nobody_there(void **state)
{
    struct rig *rig = *state;
    union ibv_gid here = {.raw = {[10] = 0xff, 0xff, 127, 0, 0, 1}};
    struct sw_netdev *dev = sw_netdev_with_gid(&here);
    uint64_t before = sw_counter_read(dev, SW_RX_DROP_NO_QP);
    struct sw_datagram_record *record = next(rig, 8);
    record->dest_qpn ^= 0x2000; /* another process's, same index */
    memcpy(record->grh + 36, here.raw + 12, 4);
    publish(2);
    assert_int_equal(serve(rig), 0);
    record = next(rig, 8);
    record->dest_qpn ^= 1;
    memcpy(record->grh + 36, here.raw + 12, 4);
    publish(2);
    assert_int_equal(serve(rig), 0);
    assert_int_equal(sw_counter_read(dev, SW_RX_DROP_NO_QP), before + 2);
}

static void sw_multicast_members__our_own(void **state)
{
    (void)state;
    union ibv_gid gid = {.raw = {0xff, 0x0e, 0x55}};
    uint16_t slots[SW_MULTICAST_MEMBERS];
    memcpy(gid.raw + 8, &sw_nic.nonce, 8); /* nobody else's */
    assert_int_equal(sw_multicast_members(&gid, slots), 0);
    assert_int_equal(sw_multicast_join(&gid), 0);
    assert_int_equal(sw_multicast_members(&gid, slots), 1);
    assert_int_equal(slots[0], sw_nic.slot);
    assert_true(sw_multicast_join(&gid) < 0); /* the name is taken */
    sw_multicast_leave(&gid);
    assert_int_equal(sw_multicast_members(&gid, slots), 0);
    sw_multicast_leave(&gid);
}

#define ring_test(function) cmocka_unit_test_setup_teardown(function, ring_up, ring_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ring_test(sw_datagram_receive__no_record_at_all),
        ring_test(sw_datagram_receive__positions_from_nowhere),
        ring_test(sw_datagram_receive__remains_of_earlier_rounds),
        ring_test(sw_datagram_receive__around_the_ring),
        ring_test(sw_datagram_receive__as_many_as_wanted),
        ring_test(sw_datagram_receive__nobody_there),
        ring_test(sw_multicast_members__our_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/send/wake_ahead.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fds.h"
#include "link/direct/process/peer.h"
#include "link/direct/serve/answer.h"
#include "link/engine.h"
#include "link_rig.h"

#define RECV_CQ 3u
#define SEND_CQ 4u
#define MIB (1u << 20)

static struct {
    struct sw_pub *pub;
    struct sw_peer peer;
    struct sw_direct_qp d;
} played;

static int play_peer(void **state)
{
    (void)state;
    memset(&played, 0, sizeof(played));
    played.pub = rig_pub();
    played.peer.pub = played.pub;
    atomic_store(&played.peer.state, SW_PEER_READY);
    played.peer.doorbell = sw_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    played.d.peer = &played.peer;
    played.d.remote.recv_cq = RECV_CQ;
    played.d.remote.send_cq = SEND_CQ;
    atomic_store(&played.pub->cqs[RECV_CQ].armed, SW_CQ_ARMED_ANY);
    return played.peer.doorbell < 0;
}

static int forget_peer(void **state)
{
    (void)state;
    close(played.peer.doorbell);
    rig_pub_free(played.pub);
    return 0;
}

/* What the peer's engine finds in its doorbell. */
static uint64_t rings(void)
{
    uint64_t count = 0;
    return read(played.peer.doorbell, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

/* The same after this part of the message is begun. */
static uint64_t rung_by(struct sw_wqe *wqe)
{
    sw_wake_ahead(&played.d, wqe);
    return rings();
}

static void the_end_of_a_message_is_announced_once(void **state)
{
    (void)state;
    struct sw_wqe wqe = {.opcode = IBV_WR_SEND, .len_bytes = 4 * MIB};
    assert_int_equal(rung_by(&wqe), 0);
    wqe.done_bytes = MIB;
    assert_int_equal(rung_by(&wqe), 0);
    wqe.done_bytes = 2 * MIB;
    assert_int_equal(rung_by(&wqe), SW_ENGINE_SOON);
    assert_int_equal(rung_by(&wqe), 0); /* it was blocked, and is tried again */
    wqe.done_bytes = 3 * MIB;
    assert_int_equal(rung_by(&wqe), 0);
}

static void of_a_short_one_nothing(void **state)
{
    (void)state;
    struct sw_wqe wqe = {.opcode = IBV_WR_SEND, .len_bytes = SW_WAKE_AHEAD_MIN_BYTES - 1};
    assert_int_equal(rung_by(&wqe), 0);
    wqe.len_bytes++;
    assert_int_equal(rung_by(&wqe), SW_ENGINE_SOON);
}

static void nobody_waits_for_what_takes_no_receive(void **state)
{
    (void)state;
    static const enum ibv_wr_opcode silent[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
    static const enum ibv_wr_opcode heard[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
                                               IBV_WR_RDMA_WRITE_WITH_IMM};
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        struct sw_wqe wqe = {.opcode = (uint8_t)silent[i], .len_bytes = MIB};
        assert_int_equal(rung_by(&wqe), 0);
    }
    for (size_t i = 0; i < sizeof(heard) / sizeof(heard[0]); i++) {
        struct sw_wqe wqe = {.opcode = (uint8_t)heard[i], .len_bytes = MIB};
        assert_int_equal(rung_by(&wqe), SW_ENGINE_SOON);
    }
}

static void nor_who_is_awake(void **state)
{
    (void)state;
    struct sw_wqe wqe = {.opcode = IBV_WR_SEND, .len_bytes = MIB};
    atomic_store(&played.pub->cqs[RECV_CQ].armed, SW_CQ_DISARMED);
    assert_int_equal(rung_by(&wqe), 0);
    atomic_store(&played.pub->cqs[RECV_CQ].armed, SW_CQ_ARMED_SOLICITED);
    assert_int_equal(rung_by(&wqe), 0);
    wqe.flags = SW_WQE_SOLICITED;
    assert_int_equal(rung_by(&wqe), SW_ENGINE_SOON);
}

static void nor_this_process(void **state)
{
    (void)state;
    struct sw_wqe wqe = {.opcode = IBV_WR_SEND, .len_bytes = MIB};
    played.peer.self = true; /* the engine's processor is this one, as like as not */
    assert_int_equal(rung_by(&wqe), 0);
}

/* Its own engine would look for answers after a millisecond. */
static void who_sleeps_for_an_answer_is_woken_once(void **state)
{
    (void)state;
    atomic_store(&played.pub->cqs[SEND_CQ].armed, SW_CQ_ARMED_ANY);
    sw_answer_wake(&played.d);
    assert_int_equal(rings(), 0); /* nothing was answered */
    played.d.serve.wake_due = true;
    sw_answer_wake(&played.d);
    assert_int_equal(rings(), 1);
    sw_answer_wake(&played.d);
    assert_int_equal(rings(), 0);
    played.d.serve.wake_due = true;
    atomic_store(&played.pub->cqs[SEND_CQ].armed, SW_CQ_DISARMED);
    sw_answer_wake(&played.d); /* who polls needs no ring */
    assert_int_equal(rings(), 0);
}

int main(void)
{
#define played_test(function) cmocka_unit_test_setup_teardown(function, play_peer, forget_peer)
    const struct CMUnitTest tests[] = {
        played_test(the_end_of_a_message_is_announced_once),
        played_test(of_a_short_one_nothing),
        played_test(nobody_waits_for_what_takes_no_receive),
        played_test(nor_who_is_awake),
        played_test(nor_this_process),
        played_test(who_sleeps_for_an_answer_is_woken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

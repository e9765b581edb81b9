/* SPDX-License-Identifier: BSD-2-Clause */
/* It takes five seconds until a process that lets nobody in counts as one that is not there. */
#include <poll.h>
#include <unistd.h>

#include "attach_rig.h"
#include "base/clock.h"
#include "link/direct/send/requester.h"

/* A process that is there, but never lets us in, is as unreachable as one that is not there. */
static void sw_attach_step__refused_again_and_again(void **state)
{
    struct owner *owner = *state;
    owner->before = -1; /* other tests run meanwhile, whose survivors may call */
    rig_connect(&owner->rig, played_slot << SW_QP_INDEX_BITS | 5);
    struct sw_qp *qp = owner->rig.qp;
    qp->attr.timeout = 1;
    struct ibv_sge sge = rig_sge(&owner->rig, 0, 8);
    struct ibv_send_wr wr = {.wr_id = 5, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    rig_append(&owner->rig, &wr, &sge);
    uint64_t end_ns = sw_clock_ns() + 10 * SW_NS_PER_S;
    while (qp->state == IBV_QPS_RTS && sw_clock_ns() < end_ns) {
        struct pollfd calling = {.fd = owner->listener, .events = POLLIN};
        const int fd = poll(&calling, 1, 1) == 1 ? answer_call(owner) : -1;
        if (fd >= 0)
            close(fd);
        sw_direct_send_run(qp, owner->rig.d);
    }
    assert_int_equal(rig_wc(&owner->rig).status, IBV_WC_RETRY_EXC_ERR);
    rig_drop(&owner->rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sw_attach_step__refused_again_and_again, owner_up,
                                        owner_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Capsules of queues that share receives: what each may keep, so that others are heard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/target/model/share.h"
#include "nvme/target/server/rdma_capsule.h"
#include "nvme/target/server/rdma_device.h"
#include "nvme/target/server/rdma_queue.h"
#include "nvme/target/server/rdma_receives.h"

enum { RECEIVES = 64, DATA = 4096, MANY = 16384, ADDRESSES = 12 };

static struct ibv_context verbs;
static struct ibv_srq srq;
static struct ibv_mr mr;
static struct nvr_device device;
static struct nvr_receives receives;
static struct nvt_shares shares;
static struct mover_pool pool;
static uint8_t capsules[RECEIVES * NVF_SQE_BYTES], data[RECEIVES * DATA];

/* What a queue keeps. */
struct sender {
    struct nvr_queue queue;
    struct nvr_capsule kept[MANY];
    int count;
};

static int post_srq(struct ibv_srq *at, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    assert_ptr_equal(at, &srq);
    (void)wr;
    (void)bad;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    verbs.ops.post_srq_recv = post_srq;
    srq.context = &verbs;
    receives = (struct nvr_receives){.device = &device,
                                     .srq = &srq,
                                     .count = RECEIVES,
                                     .in_capsule_bytes = DATA,
                                     .capsules = capsules,
                                     .data = data,
                                     .capsule_mr = &mr,
                                     .data_region = {.registered = {&mr}}};
    nvt_shares_init(&shares, &pool);
    return 0;
}

/* Without an address, it has not said Connect. */
static struct sender *make_sender(uint64_t ctrl_serial, const char *address)
{
    struct sender *sender = calloc(1, sizeof(*sender));
    sender->queue.receives = &receives;
    if (address)
        sender->queue.queue.share = nvt_share_join(&shares, ctrl_serial, address);
    return sender;
}

/* So many commands with data, which nobody answers, or as many as it may. */
static void send_many(struct sender *sender, int count)
{
    while (count--) {
        struct nvr_capsule *capsule = &sender->kept[sender->count];
        *capsule = (struct nvr_capsule){.len_bytes = NVF_SQE_BYTES + DATA};
        if (!nvr_capsule_take(&sender->queue, capsule))
            return;
        sender->count++;
    }
}

static void free_sender(struct sender *sender)
{
    if (sender->queue.queue.share)
        nvt_share_release(sender->queue.queue.share); /* as with the connection's end */
    while (sender->count--)
        assert_true(nvr_capsule_give(&sender->queue, &sender->kept[sender->count]));
    (void)nvr_receives_post(&receives, NULL);
    free(sender);
}

static void check_nothing_is_kept(void)
{
    assert_int_equal(receives.taken, 0);
    assert_int_equal(receives.copied_bytes, 0);
    assert_null(list_first(&shares.all));
}

static void copies__of_one_address_leave_some_for_others(void **state)
{
    (void)state;
    enum { QUEUES = 4, OF_OTHER = 1000 };
    struct sender *greedy[QUEUES];
    for (int i = 0; i < QUEUES; i++) {
        greedy[i] = make_sender((uint64_t)i / 2 + 1, "192.0.2.1");
        send_many(greedy[i], MANY);
    }
    assert_in_range(greedy[0]->count, 10000, MANY - 1);
    for (int i = 1; i < QUEUES; i++)
        assert_in_range(greedy[i]->count, 1, RECEIVES);
    assert_true(receives.taken < RECEIVES - 1);
    struct sender *other = make_sender(9, "192.0.2.2");
    send_many(other, OF_OTHER);
    assert_int_equal(other->count, OF_OTHER);
    free_sender(other);
    for (int i = 0; i < QUEUES; i++)
        free_sender(greedy[i]);
    check_nothing_is_kept();
}

/* Each queue alone leaves half. */
static void receives__of_one_address_leave_some_for_others(void **state)
{
    (void)state;
    enum { QUEUES = 16 };
    struct sender *greedy[QUEUES];
    for (int i = 0; i < QUEUES; i++) {
        greedy[i] = make_sender((uint64_t)i + 1, "192.0.2.1");
        send_many(greedy[i], RECEIVES);
    }
    assert_in_range(receives.taken, RECEIVES / 2, RECEIVES * 3 / 4);
    for (int i = 0; i < QUEUES; i++)
        free_sender(greedy[i]);
    check_nothing_is_kept();
}

/* All that others can have is theirs. */
static void copies__one_is_there_for_a_connect(void **state)
{
    (void)state;
    struct sender *greedy[ADDRESSES];
    char address[] = "192.0.2.a";
    for (int i = 0; i < ADDRESSES; i++) {
        address[sizeof(address) - 2] = (char)('a' + i);
        greedy[i] = make_sender((uint64_t)i + 1, address);
        send_many(greedy[i], MANY);
    }
    struct sender *late = make_sender(0, NULL);
    send_many(late, MANY);
    assert_int_equal(late->count, 1);
    assert_int_equal(late->queue.receives_taken, 0);
    assert_true(nvr_capsule_give(&late->queue, &late->kept[0]));
    late->count = 0;
    send_many(late, 1); /* another one, when that is answered */
    assert_int_equal(late->count, 1);
    free_sender(late);
    for (int i = 0; i < ADDRESSES; i++)
        free_sender(greedy[i]);
    check_nothing_is_kept();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(copies__of_one_address_leave_some_for_others, setup),
        cmocka_unit_test_setup(receives__of_one_address_leave_some_for_others, setup),
        cmocka_unit_test_setup(copies__one_is_there_for_a_connect, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

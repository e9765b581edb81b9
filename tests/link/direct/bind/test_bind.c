/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/direct/bind/bind.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/direct/send/requester.h"
#include "link/engine.h"
#include "link_rig.h"
#include "wire/ib_time.h"

/* A peer process that is played: tables and an inbox, of a slot nobody has. */
#define SLOT 1999u
#define INDEX 33u
#define QPN (SLOT << SW_QP_INDEX_BITS | INDEX)

struct played {
    struct rig rig;
    struct sw_peer *peer;
    struct sw_pub *pub;
    struct sw_pub_qp *entry;
    uint8_t *inbox;
};

/* Only the blocks used here are there. */
#define BLOCK 3u
#define READER 77u /* life of the QP that reads it */
#define INBOX_BYTES (SW_INBOX_FIRST_BLOCK + 8 * SW_BLOCK_BYTES)

static struct sw_block *block(const struct played *p, uint32_t index)
{
    return sw_inbox_block(p->inbox, index);
}

static void serve(struct played *p, uint32_t index, uint32_t reader, uint32_t writer)
{
    atomic_store(&block(p, index)->tenancy, (uint64_t)reader << 32 | writer);
}

static void entry_up(struct played *p)
{
    *p->entry = (struct sw_pub_qp){
        .bind_word = 1ull << 32 | IBV_QPS_RTS,
        .qpn = QPN,
        .dest_qpn = sw_qp_num(p->rig.qp),
        .access = RIG_RIGHTS,
        .pd = 5,
        .block = BLOCK,
        .recv_cq = 7,
        .rq_offset = offsetof(struct sw_pub, rq_arena) + 4096,
        .rq_entries = 64,
        .rq_stride_bytes = 32,
        .type = IBV_QPT_RC,
    };
}

static int play(void **state)
{
    struct played *p = calloc(1, sizeof(*p));
    rig_open(&p->rig);
    p->peer = sw_peer_get(SLOT); /* first: what the QP finds */
    assert_non_null(p->peer);
    rig_connect(&p->rig, QPN);
    assert_ptr_equal(p->rig.d->peer, p->peer);
    p->pub = rig_pub();
    p->inbox = aligned_alloc(4096, INBOX_BYTES);
    memset(p->inbox, 0, INBOX_BYTES);
    p->entry = &p->pub->qps[INDEX];
    pthread_mutex_lock(&sw_direct.lock); /* the engine looks at its peers */
    p->peer->pub = p->pub;
    p->peer->inbox = p->inbox;
    p->peer->pub_bytes = sizeof(*p->pub);
    p->peer->inbox_blocks = SW_INBOX_BLOCKS;
    entry_up(p);
    serve(p, BLOCK, READER, 0);
    serve(p, BLOCK + 1, READER + 1, 0);
    atomic_store(&p->peer->state, SW_PEER_READY);
    pthread_mutex_unlock(&sw_direct.lock);
    *state = p;
    return 0;
}

static int stop_playing(void **state)
{
    struct played *p = *state;
    pthread_mutex_lock(&sw_direct.lock);         /* the engine looks whether it lives */
    atomic_store(&p->peer->state, SW_PEER_IDLE); /* stays, without users, for the engine */
    p->peer->pub = NULL;
    p->peer->inbox = NULL;
    pthread_mutex_unlock(&sw_direct.lock);
    rig_drop(&p->rig);
    sw_peer_put(p->peer);
    rig_close(&p->rig);
    rig_pub_free(p->pub);
    free(p->inbox);
    free(p);
    return 0;
}

static bool enter(struct played *p)
{
    bool entered = sw_bind_enter(p->rig.qp, p->rig.d);
    if (entered)
        sw_bind_leave(p->rig.d);
    return entered;
}

static void sw_bind_enter__marks_the_section(void **state)
{
    struct played *p = *state;
    for (int i = 0; i < 3; i++) {
        assert_true(sw_bind_enter(p->rig.qp, p->rig.d));
        assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq) & 1, 1);
        sw_bind_leave(p->rig.d);
        assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq) & 1, 0);
    }
    assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq), 6);
    assert_int_equal(p->rig.d->remote.pd, 5);
    assert_int_equal(p->rig.d->remote.recv_cq, 7);
    assert_int_equal(p->rig.d->remote.rq_entries, 64);
    assert_ptr_equal(p->rig.d->remote.rq, (uint8_t *)p->pub + p->entry->rq_offset);
}

static void sw_bind_enter__peer_not_ready(void **state)
{
    struct played *p = *state;
    static const enum ibv_qp_state not_connected[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR,
                                                      (enum ibv_qp_state)99};
    for (size_t i = 0; i < 4; i++) {
        atomic_store(&p->entry->bind_word, 1ull << 32 | not_connected[i]);
        assert_false(enter(p));
    }
    entry_up(p);
    p->entry->dest_qpn++; /* connected with somebody else */
    assert_false(enter(p));
    entry_up(p);
    p->entry->qpn++;
    assert_false(enter(p));
    entry_up(p);
    p->entry->type = IBV_QPT_UC; /* of another transport */
    assert_false(enter(p));
    entry_up(p);
    atomic_store(&p->peer->state, SW_PEER_CONNECTING);
    assert_false(enter(p));
    atomic_store(&p->peer->state, SW_PEER_READY);
    static const enum ibv_qp_state connected[] = {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
                                                  IBV_QPS_SQE};
    for (uint64_t i = 0; i < 4; i++) {
        atomic_store(&p->entry->bind_word, (2 + i) << 32 | connected[i]);
        assert_true(enter(p));
    }
}

/* Entries no process of ours would write. */
static void sw_bind_enter__entries_that_are_not_sane(void **state)
{
    struct played *p = *state;
    for (int i = 0; i < 12; i++) {
        struct sw_pub_qp *entry = p->entry;
        entry_up(p);
        switch (i) {
        case 0:
            entry->block = SW_INBOX_BLOCKS;
            break;
        case 1:
            entry->block = UINT32_MAX;
            break;
        case 2:
            entry->recv_cq = SW_MAX_CQ;
            break;
        case 3:
            entry->rq_entries = 63;
            break;
        case 4:
            entry->rq_stride_bytes = 0;
            break;
        case 5:
            entry->rq_stride_bytes = 16; /* no room for an element */
            break;
        case 6:
            entry->rq_stride_bytes = 40;
            break;
        case 7:
            entry->rq_offset += 8;
            break;
        case 8:
            entry->rq_offset = 0;
            break;
        case 9:
            entry->rq_offset = sizeof(struct sw_pub) - 64 * 32 + 16;
            break;
        case 10:
            entry->rq_offset = UINT64_MAX - 15;
            break;
        default:
            entry->rq_entries = 1u << 31;
            entry->rq_stride_bytes = 1u << 31;
            break;
        }
        assert_false(enter(p));
        assert_null(p->rig.d->tx);
    }
    entry_up(p);
    p->entry->rq_entries = 0; /* a shared queue: the rest is of no interest */
    p->entry->rq_offset = UINT64_MAX;
    assert_true(enter(p));
}

/* A process with a limit on files has smaller ones: behind their ends there is nothing. */
static void sw_bind_enter__not_behind_the_end_of_its_files(void **state)
{
    struct played *p = *state;
    const uint64_t last = p->entry->rq_offset + 64 * 32;
    p->peer->pub_bytes = last - 1;
    assert_false(enter(p));
    p->peer->pub_bytes = last;
    p->peer->inbox_blocks = BLOCK;
    assert_false(enter(p));
    p->peer->inbox_blocks = BLOCK + 1;
    assert_true(enter(p));
}

/* A block serves one life of one QP: after our reset alone the peer's positions would not fit. */
static void sw_bind_enter__claims_its_block(void **state)
{
    struct played *p = *state;
    serve(p, BLOCK, READER, 12345);
    assert_false(enter(p));
    serve(p, BLOCK, 0, 0); /* nobody's */
    assert_false(enter(p));
    assert_int_equal(atomic_load(&block(p, BLOCK)->tenancy), 0);
    serve(p, BLOCK, READER, 0);
    assert_true(enter(p));
    assert_int_equal(sw_block_reader(block(p, BLOCK)), READER);
    assert_int_equal(sw_block_writer(block(p, BLOCK)), p->rig.d->life);
    assert_true(enter(p));
}

/* The peer's QP was reset and connected again, and was given the same block: another life of it. */
static void sw_bind_enter__not_into_another_life_of_its_block(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    serve(p, BLOCK, READER + 5, 0);
    atomic_store(&p->entry->bind_word, 2ull << 32 | IBV_QPS_RTS);
    assert_false(enter(p));
    assert_int_equal(sw_block_writer(block(p, BLOCK)), 0); /* it stays free for whom it is for */
}

/* Its owner has counted on: whatever the entry says, the block is another QP's by now. */
static void sw_bind_enter__not_where_the_count_went_on(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    uint32_t seq = atomic_load(&block(p, BLOCK)->access_seq);
    atomic_store(&block(p, BLOCK)->access_seq, seq + 2);
    assert_false(enter(p));
    atomic_store(&block(p, BLOCK)->access_seq, seq + 3); /* somebody else is inside */
    assert_false(enter(p));
    assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq), seq + 3);
}

static void sw_bind_enter__counts_on_from_where_the_block_is(void **state)
{
    struct played *p = *state;
    atomic_store(&block(p, BLOCK)->access_seq, 1000);
    assert_true(enter(p));
    assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq), 1002);
}

static void sw_bind_enter__new_rights_take_effect(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    p->rig.d->keys[0].word = &p->entry->bind_word;
    p->entry->access = IBV_ACCESS_REMOTE_READ;
    atomic_store(&p->entry->bind_word, 2ull << 32 | IBV_QPS_RTS);
    assert_true(enter(p));
    assert_int_equal(p->rig.d->remote.access, IBV_ACCESS_REMOTE_READ);
    assert_null(p->rig.d->keys[0].word); /* what was derived is forgotten */
}

static void sw_bind_enter__not_into_another_block(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    p->entry->block = BLOCK + 1; /* it was reset, and is connected again */
    atomic_store(&p->entry->bind_word, 2ull << 32 | IBV_QPS_RTS);
    assert_false(enter(p));
    assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq) & 1, 0);
    assert_int_equal(atomic_load(&block(p, BLOCK + 1)->access_seq), 0);
}

static void sw_bind_enter__left_when_the_peer_goes(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    atomic_store(&p->entry->bind_word, 2ull << 32 | IBV_QPS_ERR);
    assert_false(enter(p));
    assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq) & 1, 0);
    atomic_store(&p->entry->bind_word, 1ull << 32 | IBV_QPS_RTS);
    atomic_store(&p->peer->state, SW_PEER_DEAD);
    assert_false(enter(p));
    assert_int_equal(atomic_load(&block(p, BLOCK)->access_seq) & 1, 0);
    atomic_store(&p->peer->state, SW_PEER_READY);
}

static bool is_buried(const struct played *p)
{
    return p->rig.d->death_handled;
}

static bool has_failed(const struct played *p)
{
    return p->rig.qp->state == IBV_QPS_ERR;
}

/* Has the engine reap until that is so: nobody else may, since it frees what only it uses. */
static void reap_until(struct played *p, bool (*is_so)(const struct played *))
{
    bool so = false;
    for (int ms = 0; ms < 5000 && !so; ms++) {
        sw_lock_release(&p->rig.qp->lock);
        sw_engine_kick();
        usleep(1000);
        sw_lock_acquire(&p->rig.qp->lock);
        so = is_so(p);
    }
    assert_true(so);
}

static void sw_bind_reap__what_was_sent_after_an_orderly_end(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    atomic_store(&p->entry->bind_word, 2ull << 32 | IBV_QPS_RESET);
    atomic_store(&p->peer->state, SW_PEER_DEAD);
    reap_until(p, is_buried);
    assert_int_equal(p->rig.qp->state, IBV_QPS_RTS); /* a wire would not tell either */
    struct ibv_sge sge = rig_sge(&p->rig, 0, 8);
    struct ibv_send_wr wr = {.wr_id = 77, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    rig_append(&p->rig, &wr, &sge)->state = SW_WQE_SENT;
    p->rig.qp->sq.next++;
    p->rig.d->send.answers_due++;
    const uint64_t posted_ns = sw_clock_ns();
    reap_until(p, has_failed);
    assert_true(sw_clock_ns() - posted_ns >= 8 * sw_ib_time_ns(14)); /* by its timers, not before */
    struct ibv_wc wc = rig_wc(&p->rig);
    assert_int_equal(wc.wr_id, 77);
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
}

static void sw_bind_connect__publishes_a_fresh_block(void **state)
{
    struct rig *rig = *state;
    const struct sw_pub_qp *pub = rig->qp->pub;
    assert_int_equal((uint32_t)atomic_load(&pub->bind_word), IBV_QPS_RTS);
    assert_int_equal(pub->block, rig->d->rx_index);
    assert_int_equal(pub->dest_qpn, sw_qp_num(rig->other));
    assert_int_equal(atomic_load(&rig->block->requests[0].seq), 0);
    assert_ptr_not_equal(rig->block, rig->out);
}

static void sw_bind_disconnect__gives_everything_back(void **state)
{
    struct rig *rig = *state;
    struct sw_inbox *inbox = rig->d->inbox;
    struct sw_peer *peer = rig->d->peer;
    uint32_t users = inbox->users, refs = atomic_load(&peer->refs), index = rig->d->rx_index;
    uint64_t word = atomic_load(&rig->qp->pub->bind_word);
    sw_bind_disconnect(rig->qp);
    assert_null(rig->qp->link_state);
    assert_int_equal(inbox->users, users - 1);
    assert_int_equal(atomic_load(&peer->refs), refs - 1);
    assert_int_equal(inbox->used[index / 64] >> index % 64 & 1, 0);
    assert_false(sw_qp_has_work(rig->qp));
    /* Peers see the end of it; who asks for the QP's state sees what it was. */
    assert_int_equal((uint32_t)atomic_load(&rig->qp->pub->bind_word), IBV_QPS_RESET);
    assert_int_not_equal(atomic_load(&rig->qp->pub->bind_word) >> 32, word >> 32);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_RTS);
    sw_bind_disconnect(rig->qp); /* idempotent */
}

/* Drives the QP until its first completion, or so long. */
static bool has_wc(struct played *p, unsigned int ms, struct ibv_wc *wc)
{
    for (uint64_t end_ns = sw_clock_ns() + ms * SW_NS_PER_MS; sw_clock_ns() < end_ns;) {
        if (p->rig.qp->link_state == p->rig.d && p->rig.qp->sq.head != p->rig.qp->sq.tail)
            sw_direct_send_run(p->rig.qp, p->rig.d);
        if (sw_cq_poll(p->rig.cq, 1, wc) == 1)
            return true;
    }
    return false;
}

static void post_one(struct played *p, enum ibv_wr_opcode opcode)
{
    struct ibv_sge sge = rig_sge(&p->rig, 0, 64);
    struct ibv_send_wr wr = {.opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    rig_append(&p->rig, &wr, &sge);
}

/* The engine does not know of this socket: who waits must find out. */
static void sw_direct_send_run__peer_dies_unseen(void **state)
{
    struct played *p = *state;
    struct ibv_wc wc;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    p->peer->socket = ends[0];
    p->entry->rq_entries = 0; /* a shared queue: the target executes it */
    post_one(p, IBV_WR_SEND);
    assert_false(has_wc(p, 150, &wc));
    assert_int_equal(p->rig.d->send.answers_due, 1);
    close(ends[1]);
    assert_true(has_wc(p, 400, &wc)); /* before the retries of a peer that is not there run out */
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(atomic_load(&p->peer->state), SW_PEER_DEAD);
    p->peer->socket = -1;
    close(ends[0]);
}

static void sw_direct_send_run__peer_dies_while_it_has_no_receive(void **state)
{
    struct played *p = *state;
    struct ibv_wc wc;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    p->peer->socket = ends[0];
    post_one(p, IBV_WR_SEND);
    assert_false(has_wc(p, 150, &wc));
    assert_true(p->rig.d->send.rnr_ns != 0);
    close(ends[1]);
    assert_true(has_wc(p, 400, &wc));
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
    p->peer->socket = -1;
    close(ends[0]);
}

static atomic_bool publishes;

/* What a peer does that is given new rights, or begins a new life: its entry is never anybody
 * else's. */
static void *publish_again(void *arg)
{
    struct played *p = arg;
    for (uint64_t generation = 4; atomic_load(&publishes); generation += 2) {
        atomic_store(&p->entry->bind_word, generation << 32 | SW_PUB_CHANGING);
        atomic_store(&p->entry->bind_word, (generation + 1) << 32 | IBV_QPS_RTS);
    }
    return NULL;
}

/* Whether an unreliable message to it waits; else it is lost. */
static void expect_awaited(struct played *p)
{
    enum { LOOKS = 300000 };
    pthread_t peer;
    atomic_store(&publishes, true);
    atomic_store(&p->entry->bind_word, 2ull << 32 | SW_PUB_CHANGING);
    assert_int_equal(pthread_create(&peer, NULL, publish_again, p), 0);
    int lost = 0, over = 0;
    for (int i = 0; i < LOOKS; i++) {
        lost += !sw_bind_is_awaited(p->rig.qp, p->rig.d);
        over += sw_bind_is_over(p->rig.qp, p->rig.d);
    }
    atomic_store(&publishes, false);
    pthread_join(peer, NULL);
    assert_int_equal(lost, 0);
    assert_int_equal(over, 0);
}

static void sw_bind_is_awaited__while_the_peer_begins_anew(void **state)
{
    struct played *p = *state;
    p->rig.d->rules = sw_verdict_rules_of(IBV_QPT_UC);
    expect_awaited(p);
    p->rig.d->rules = sw_verdict_rules_of(IBV_QPT_RC);
}

/* By us: it goes from RTR to RTS, or gets new rights. */
static void sw_bind_is_awaited__while_a_bound_peer_changes(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    assert_false(sw_bind_is_awaited(p->rig.qp, p->rig.d)); /* it is there */
    p->rig.d->rules = sw_verdict_rules_of(IBV_QPT_UC);
    expect_awaited(p);
    p->rig.d->rules = sw_verdict_rules_of(IBV_QPT_RC);
}

static void sw_bind_is_awaited__not_who_is_elsewhere(void **state)
{
    struct played *p = *state;
    p->entry->dest_qpn++;
    assert_false(sw_bind_is_awaited(p->rig.qp, p->rig.d));
    p->entry->dest_qpn--;
    assert_true(sw_bind_is_awaited(p->rig.qp, p->rig.d));
    atomic_store(&p->entry->bind_word, 9ull << 32 | IBV_QPS_RESET);
    assert_false(sw_bind_is_awaited(p->rig.qp, p->rig.d));
}

static void sw_bind_forget_keys__of_that_peer_only(void **state)
{
    struct played *p = *state;
    assert_true(enter(p));
    p->rig.d->keys[0].word = p->rig.d->keys[1].word = &p->entry->bind_word;
    struct sw_peer nobody = {0};
    sw_lock_release(&p->rig.qp->lock);
    sw_bind_forget_keys(&nobody);
    assert_non_null(p->rig.d->keys[0].word);
    sw_bind_forget_keys(p->peer);
    assert_null(p->rig.d->keys[0].word);
    assert_null(p->rig.d->keys[1].word);
    sw_lock_acquire(&p->rig.qp->lock);
}

#define played_test(function) cmocka_unit_test_setup_teardown(function, play, stop_playing)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_bind_connect__publishes_a_fresh_block),
        rig_test(sw_bind_disconnect__gives_everything_back),
        played_test(sw_bind_enter__marks_the_section),
        played_test(sw_bind_enter__peer_not_ready),
        played_test(sw_bind_enter__entries_that_are_not_sane),
        played_test(sw_bind_enter__claims_its_block),
        played_test(sw_bind_enter__not_behind_the_end_of_its_files),
        played_test(sw_bind_enter__not_into_another_life_of_its_block),
        played_test(sw_bind_enter__not_where_the_count_went_on),
        played_test(sw_bind_enter__counts_on_from_where_the_block_is),
        played_test(sw_bind_enter__new_rights_take_effect),
        played_test(sw_bind_enter__not_into_another_block),
        played_test(sw_bind_enter__left_when_the_peer_goes),
        played_test(sw_bind_reap__what_was_sent_after_an_orderly_end),
        played_test(sw_direct_send_run__peer_dies_unseen),
        played_test(sw_direct_send_run__peer_dies_while_it_has_no_receive),
        played_test(sw_bind_is_awaited__while_the_peer_begins_anew),
        played_test(sw_bind_is_awaited__while_a_bound_peer_changes),
        played_test(sw_bind_is_awaited__not_who_is_elsewhere),
        played_test(sw_bind_forget_keys__of_that_peer_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

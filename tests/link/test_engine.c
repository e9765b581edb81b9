/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/engine.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/direct/process/state.h"
#include "link_rig.h"

static void unlock(struct rig *rig)
{
    sw_lock_release(&rig->qp->lock);
    sw_lock_release(&rig->other->lock);
}

static void lock(struct rig *rig)
{
    sw_lock_acquire(&rig->other->lock);
    sw_lock_acquire(&rig->qp->lock);
}

/* Waits until the condition holds, without polling any CQ; at most some seconds. */
#define wait_until(condition)                          \
    do {                                               \
        for (int i = 0; i < 5000 && !(condition); i++) \
            usleep(1000);                              \
        assert_true(condition);                        \
    } while (0)

static void sw_engine_kick__before_it_runs(void **state)
{
    (void)state;
    assert_false(sw_engine.running);
    sw_engine_kick();
    sw_engine_nudge();
}

static bool read_status(const char *name, char *out, size_t size)
{
    DIR *dir = opendir("/proc/self/task");
    bool found = false;
    for (struct dirent *task; !found && (task = readdir(dir));) {
        char path[300];
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        FILE *file = fopen(path, "re");
        if (!file)
            continue;
        out[fread(out, 1, size - 1, file)] = 0;
        fclose(file);
        char line[64];
        snprintf(line, sizeof(line), "Name:\t%s\n", name);
        found = strstr(out, line) == out;
    }
    closedir(dir);
    return found;
}

/* A signal for the program must not be taken by our thread; but a fault in a peer's memory must be
 * seen (base/fault.h). */
static void sw_engine_start__blocks_all_signals(void **state)
{
    (void)state;
    char status[4096];
    unsigned long long blocked = 0;
    const unsigned long long never = 1ull << 8 | 1ull << 18 | 3ull << 31; /* KILL, STOP; libc's */
    const unsigned long long bus = 1ull << (SIGBUS - 1);
    for (int i = 0; i < 2000 && (blocked | never) != ~bus; i++) { /* libc blocks all at first */
        assert_true(read_status("sidewire", status, sizeof(status)));
        assert_int_equal(sscanf(strstr(status, "SigBlk:"), "SigBlk: %llx", &blocked), 1);
        usleep(1000);
    }
    assert_int_equal(blocked | never, ~bus);
}

static uint64_t engine_cpu_ns(void)
{
    clockid_t clock;
    struct timespec used;
    assert_int_equal(pthread_getcpuclockid(sw_engine.thread, &clock), 0);
    clock_gettime(clock, &used);
    return (uint64_t)used.tv_sec * SW_NS_PER_S + (uint64_t)used.tv_nsec;
}

static void sw_engine__sleeps_when_nothing_is_to_do(void **state)
{
    struct rig *rig = *state;
    unlock(rig);
    wait_until(atomic_load(&sw_engine.idle));
    uint64_t before_ns = engine_cpu_ns();
    usleep(300000);
    assert_true(engine_cpu_ns() - before_ns < SW_NS_PER_MS); /* interfaces may have changed */
    assert_true(atomic_load(&sw_engine.idle));
    lock(rig);
}

static void sw_engine_nudge__wakes_it_once(void **state)
{
    struct rig *rig = *state;
    unlock(rig);
    wait_until(atomic_load(&sw_engine.idle));
    uint64_t before_ns = engine_cpu_ns();
    sw_engine_nudge();
    wait_until(engine_cpu_ns() != before_ns);
    wait_until(atomic_load(&sw_engine.idle)); /* and it goes to sleep again */
    lock(rig);
}

static void post_send(struct sw_qp *qp, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    assert_int_equal(sw_qp_post_send(qp, wr, &bad), 0);
}

/* The engine may have the queue pair locked, and not have queued it yet. */
static struct ibv_wc poll_until_one(struct rig *rig)
{
    struct ibv_wc wc = {0};
    int count = 0;
    for (int i = 0; i < 5000 && !(count = sw_cq_poll(rig->cq, 1, &wc)); i++)
        usleep(1000);
    assert_int_equal(count, 1);
    return wc;
}

/* A sender that posts and then waits for an event: nobody polls. */
static void sw_engine__drives_what_nobody_polls(void **state)
{
    struct rig *rig = *state;
    unlock(rig);
    struct ibv_send_wr wr = {.wr_id = 5, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    post_send(rig->qp, &wr);
    assert_true(atomic_load(&rig->qp->tx_pending)); /* no receive is posted */
    uint32_t before = atomic_load(&rig->cq->tail);
    struct ibv_recv_wr recv = {.wr_id = 6}, *bad;
    assert_int_equal(sw_qp_post_recv(rig->other, &recv, &bad), 0);
    /* The send ends by itself; the receiver of it is not asleep, and looks when it polls. */
    wait_until(atomic_load(&rig->cq->tail) != before);
    const struct ibv_wc first = poll_until_one(rig), second = poll_until_one(rig);
    lock(rig);
    assert_int_equal(first.status, IBV_WC_SUCCESS);
    assert_int_equal(second.status, IBV_WC_SUCCESS);
    assert_int_equal(first.wr_id + second.wr_id, 11);
}

/* How often the engine has slept. */
static long sleeps_of_engine(void)
{
    char status[4096];
    assert_true(read_status("sidewire", status, sizeof(status)));
    const char *line = strstr(status, "\nvoluntary_ctxt_switches:");
    assert_non_null(line);
    return strtol(strchr(line, ':') + 1, NULL, 10);
}

/* A turn moves 1 MiB. The next one follows at once, as nothing has to be waited for. */
/* So many WRITEs of half of the region that a turn's budget is too short for them, the last one
 * signaled. */
#define LONG_WRITES 250

static struct ibv_send_wr *long_writes(const struct rig *rig)
{
    static struct ibv_sge from;
    static struct ibv_send_wr wrs[LONG_WRITES];
    from = rig_sge(rig, 0, RIG_BYTES / 2);
    for (int i = 0; i < LONG_WRITES; i++) {
        wrs[i] = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE, .sg_list = &from, .num_sge = 1};
        wrs[i].wr.rdma.remote_addr = (uintptr_t)rig->bytes + RIG_BYTES / 2;
        wrs[i].wr.rdma.rkey = from.lkey;
        wrs[i].next = i + 1 < LONG_WRITES ? &wrs[i + 1] : NULL;
    }
    wrs[LONG_WRITES - 1].send_flags = IBV_SEND_SIGNALED;
    return wrs;
}

static void sw_engine__goes_on_where_a_turn_was_too_short(void **state)
{
    struct rig *rig = *state;
    struct ibv_send_wr *wrs = long_writes(rig);
    unlock(rig);
    wait_until(atomic_load(&sw_engine.idle));
    const long before = sleeps_of_engine();
    const uint32_t tail = atomic_load(&rig->cq->tail);
    post_send(rig->qp, wrs);
    wait_until(atomic_load(&rig->cq->tail) != tail);
    const long slept = sleeps_of_engine() - before;
    assert_int_equal(rig_wc(rig).status, IBV_WC_SUCCESS);
    lock(rig);
    assert_in_range(slept, 0, 3); /* of seven turns */
}

static atomic_bool naps; /* the engine sleeps no longer than this */
#define NAP_NS (700 * SW_NS_PER_US)

static uint64_t nap_step(uint64_t now_ns)
{
    return atomic_load(&naps) ? now_ns + NAP_NS : UINT64_MAX;
}

static const struct sw_engine_part napping = {.step = nap_step};

static int prepared; /* not atomic: TSan tells if the engine may read it too early */
static atomic_int found;

static void look_at_prepared(uint64_t what)
{
    (void)what;
    atomic_store(&found, prepared);
}

/* Also in a sleep to the microsecond, by a system call that TSan knows nothing of. */
static void sw_engine_watch_once__what_the_handler_needs_is_there(void **state)
{
    struct rig *rig = *state;
    unlock(rig);
    sw_engine_handle(SW_WATCH_CM, look_at_prepared);
    atomic_store(&naps, true);
    sw_engine_kick();
    for (int round = 1; round <= 20; round++) {
        const int ready = eventfd(1, EFD_CLOEXEC);
        usleep(1000);
        prepared = round;
        sw_engine_watch_once(ready, SW_WATCH_CM);
        wait_until(atomic_load(&found) == round);
        sw_engine_unwatch(ready);
        close(ready);
    }
    atomic_store(&naps, false);
    lock(rig);
}

static struct {
    struct sw_qp *qp;
    atomic_int told, told_unlocked; /* by the engine */
} told;

static void look_at_locks(void *owner)
{
    (void)owner;
    if (!sw_engine_is_self())
        return;
    if (pthread_mutex_trylock(&sw_nic.lock) == 0) {
        if (sw_lock_try(&told.qp->lock)) {
            atomic_fetch_add(&told.told_unlocked, 1);
            sw_lock_release(&told.qp->lock);
        }
        pthread_mutex_unlock(&sw_nic.lock);
    }
    atomic_fetch_add(&told.told, 1);
}

/* The program that it wakes may run at once, on the engine's processor, and wants them. */
static void sw_engine__tells_of_an_event_without_locks(void **state)
{
    struct rig *rig = *state;
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    struct ibv_recv_wr recv = {.wr_id = 6}, *bad;
    told.qp = rig->other;
    atomic_store(&told.told, 0);
    atomic_store(&told.told_unlocked, 0);
    unlock(rig);
    rig->cq->notify = look_at_locks;
    assert_int_equal(sw_qp_post_recv(rig->other, &recv, &bad), 0);
    assert_int_equal(sw_cq_req_notify(rig->cq, false), 0);
    post_send(rig->qp, &wr);
    wait_until(atomic_load(&told.told) == 1);
    assert_int_equal(atomic_load(&told.told_unlocked), 1);
    assert_int_equal(poll_until_one(rig).wr_id, 6);
    rig->cq->notify = NULL;
    lock(rig);
}

static struct {
    struct sw_qp *qp;
    int rung, rung_unlocked; /* by the thread that posts */
} posting;

static void count_kick(void)
{
    posting.rung++;
    if (!sw_lock_try(&posting.qp->lock))
        return;
    posting.rung_unlocked++;
    sw_lock_release(&posting.qp->lock);
}

/* Where it shares a processor with who posts, it would find the QP locked, and sleep. */
static void sw_engine__is_rung_for_the_rest_once_it_can_have_it(void **state)
{
    struct rig *rig = *state;
    struct sw_link_ops counted = *sw_nic.link;
    const struct sw_link_ops *real = sw_nic.link;
    counted.kick = count_kick;
    posting.qp = rig->qp;
    posting.rung = posting.rung_unlocked = 0;
    sw_lock_release(&rig->qp->lock); /* the other's stays, which is not needed */
    assert_int_equal(sw_cq_req_notify(rig->cq, false), 0);
    sw_lock_acquire(&rig->qp->lock);
    assert_false(sw_qp_kick_later(rig->qp)); /* nobody posts */
    sw_lock_release(&rig->qp->lock);
    pthread_mutex_lock(&sw_nic.lock); /* so the engine does not drive it meanwhile */
    sw_nic.link = &counted;
    post_send(rig->qp, long_writes(rig));
    sw_nic.link = real;
    pthread_mutex_unlock(&sw_nic.lock);
    assert_int_equal(posting.rung, 1);
    assert_int_equal(posting.rung_unlocked, 1);
    sw_engine_kick();
    wait_until(atomic_load(&rig->cq->tail) != 0);
    assert_int_equal(rig_wc(rig).status, IBV_WC_SUCCESS);
    sw_lock_acquire(&rig->qp->lock);
}

static void sw_engine__takes_down_the_qps_of_an_overrun_cq(void **state)
{
    struct rig *rig = *state;
    unlock(rig);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(sw_qp_modify(rig->other, &attr, IBV_QP_STATE), 0);
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_RTS);
    sw_lock_acquire(&rig->qp->lock);
    sw_qp_rest(rig->qp, true); /* also where nobody looks for work */
    sw_lock_release(&rig->qp->lock);
    for (int i = 0; i <= sw_cq_entries(rig->cq); i++) { /* in ERR each is flushed at once */
        struct ibv_recv_wr recv = {0}, *bad;
        assert_int_equal(sw_qp_post_recv(rig->other, &recv, &bad), 0);
    }
    wait_until(sw_qp_state(rig->qp) == IBV_QPS_ERR); /* not the culprit, but on the same CQ */
    wait_until(atomic_load(&rig->events) == 2);
    assert_int_equal(atomic_load(&rig->event), IBV_EVENT_QP_FATAL); /* after the CQ's */
    lock(rig);
    sw_qp_rest(rig->qp, false);
}

#define child_needs(condition)         \
    do {                               \
        if (!(condition))              \
            _exit(__LINE__ % 250 + 1); \
    } while (0)

static int poll_two(struct sw_cq *cq)
{
    struct ibv_wc wc[2];
    int got = 0;
    for (int i = 0; i < 5000000 && got < 2; i++) {
        int count = sw_cq_poll(cq, 2 - got, wc + got);
        child_needs(count >= 0);
        got += count;
    }
    for (int i = 0; i < got; i++)
        child_needs(wc[i].status == IBV_WC_SUCCESS);
    return got;
}

static void send_between(struct rig *rig)
{
    struct ibv_sge sge = rig_sge(rig, 4096, 1000), to = rig_sge(rig, 8192, 1000);
    struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1},
                       *bad;
    memset(rig->bytes + 4096, getpid() & 0xff, 1000);
    child_needs(sw_qp_post_recv(rig->other, &recv, &bad_recv) == 0);
    child_needs(sw_qp_post_send(rig->qp, &wr, &bad) == 0);
    child_needs(poll_two(rig->cq) == 2);
    child_needs(rig->bytes[8192 + 999] == (getpid() & 0xff));
}

static void in_the_child(struct rig *old, uint32_t old_slot)
{
    child_needs(!sw_engine.running && !sw_direct.peers && !sw_direct.inboxes);
    child_needs(sw_qp_state(old->qp) == IBV_QPS_ERR && !old->qp->link_state);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    child_needs(sw_qp_post_send(old->qp, &wr, &bad) == 0); /* flushed */
    struct ibv_wc wc;
    child_needs(sw_cq_poll(old->cq, 1, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
    struct rig rig;
    rig_open(&rig);
    rig_connect(&rig, 0);
    child_needs(sw_engine.running && sw_nic.slot != old_slot);
    child_needs(sw_qpn_slot(sw_qp_num(rig.qp)) == sw_nic.slot);
    unlock(&rig);
    send_between(&rig);
    lock(&rig);
    rig_drop(&rig);
    child_needs(sw_qp_destroy(old->qp) == 0 && sw_qp_destroy(old->other) == 0);
    rig_close(old);
    rig_close(&rig);
}

/* The child has its own slot; what was the parent's works on there, and in the child is in ERR. */
static void sw_direct_fork_child__fork(void **state)
{
    struct rig *rig = *state;
    unlock(rig);
    send_between(rig);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        in_the_child(rig, sw_nic.slot);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    send_between(rig);
    lock(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_engine_kick__before_it_runs),
        rig_test(sw_engine_start__blocks_all_signals),
        rig_test(sw_engine_nudge__wakes_it_once),
        rig_test(sw_engine__sleeps_when_nothing_is_to_do),
        rig_test(sw_engine__drives_what_nobody_polls),
        rig_test(sw_engine_watch_once__what_the_handler_needs_is_there),
        rig_test(sw_engine__goes_on_where_a_turn_was_too_short),
        rig_test(sw_engine__is_rung_for_the_rest_once_it_can_have_it),
        rig_test(sw_engine__tells_of_an_event_without_locks),
        rig_test(sw_engine__takes_down_the_qps_of_an_overrun_cq),
        rig_test(sw_direct_fork_child__fork),
    };
    sw_engine_add(&napping);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

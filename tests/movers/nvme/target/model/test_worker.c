/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/worker.h"

#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cmocka.h>

struct named {
    struct nvt_job job;
    char name; /* in what was done */
};

enum { JOBS = 2 * NVT_JOBS_MAX };

static struct nvt_worker worker;
static sem_t gate, is_blocked; /* of a job that keeps the worker from others until the gate opens */
static struct nvt_job blocker;
static struct named jobs[JOBS];
static char was_done[JOBS + 1];
static int given, worked, done_count;

static void await_gate(struct nvt_job *job)
{
    (void)job;
    sem_post(&is_blocked);
    sem_wait(&gate);
}

static void do_nothing(struct nvt_job *job)
{
    (void)job;
}

static void count_work(struct nvt_job *job)
{
    (void)job;
    worked++;
}

static void note_done(struct nvt_job *job)
{
    was_done[done_count++] = LIST_MEMBER(job, struct named, job)->name;
}

static int setup(void **state)
{
    (void)state;
    given = worked = done_count = 0;
    memset(was_done, 0, sizeof(was_done));
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_int_equal(sem_init(&is_blocked, 0, 0), 0);
    return nvt_worker_open(&worker);
}

static int teardown(void **state)
{
    (void)state;
    sem_post(&gate); /* a test may have left it closed */
    nvt_worker_close(&worker);
    sem_destroy(&is_blocked);
    return sem_destroy(&gate);
}

/* The worker is busy from here on, until the gate opens. */
static void block_worker(void)
{
    blocker = (struct nvt_job){.owner = "blocker", .work = await_gate, .done = do_nothing};
    assert_true(nvt_worker_give(&worker, &blocker));
    sem_wait(&is_blocked);
}

static bool give_as(const char *owner, bool is_trusted, char name)
{
    struct named *named = &jobs[given++];
    *named = (struct named){
        .job = {.owner = owner, .is_trusted = is_trusted, .work = count_work, .done = note_done},
        .name = name};
    return nvt_worker_give(&worker, &named->job);
}

/* Each letter is a job of the owner of that name. */
static void give_all(const char *names)
{
    static const char *const owners[] = {"a", "b", "c"};
    for (; *names; names++)
        assert_true(give_as(owners[*names - 'a'], false, *names));
}

static void await_done(int count)
{
    while (done_count < count) {
        struct pollfd ready = {.fd = worker.event_fd, .events = POLLIN};
        eventfd_t events;
        assert_int_equal(poll(&ready, 1, -1), 1);
        assert_int_equal(eventfd_read(worker.event_fd, &events), 0);
        nvt_worker_reap(&worker);
    }
}

static void give__jobs_are_done_in_order(void **state)
{
    (void)state;
    assert_false(nvt_worker_reap(&worker));
    block_worker();
    give_all("abc");
    sem_post(&gate);
    await_done(3);
    assert_string_equal(was_done, "abc");
    assert_int_equal(worked, 3);
    assert_false(nvt_worker_reap(&worker));
}

static void give__owners_take_turns(void **state)
{
    (void)state;
    block_worker();
    give_all("aaaaabbc");
    sem_post(&gate);
    await_done(8);
    assert_string_equal(was_done, "abcabaaa");
}

static void give_again(struct nvt_job *job)
{
    note_done(job);
    give_all("b");
}

/* An owner that is served and at once comes again does not keep others from their second turn. */
static void give__who_comes_again_is_behind(void **state)
{
    (void)state;
    block_worker();
    give_all("aab");
    jobs[2].job.work = await_gate;
    sem_post(&gate);
    sem_wait(&is_blocked);
    give_all("b");
    sem_post(&gate);
    await_done(4);
    assert_string_equal(was_done, "abab");
}

static void give__in_done_is_taken(void **state)
{
    (void)state;
    block_worker();
    give_all("a");
    jobs[0].job.done = give_again;
    sem_post(&gate);
    await_done(2);
    assert_string_equal(was_done, "ab");
}

static void give__only_so_many_of_an_owner_wait(void **state)
{
    (void)state;
    const char same[] = "a"; /* the letters count, not where they lie */
    block_worker();
    for (int i = 0; i < NVT_JOBS_MAX; i++)
        give_all("a");
    assert_false(give_as(same, false, 'a'));
    assert_true(give_as(same, true, 'A')); /* who has proved that it is a */
    give_all("b");
    sem_post(&gate);
    await_done(NVT_JOBS_MAX + 2);
    assert_memory_equal(was_done, "aAbaa", 5);
    assert_true(give_as(same, false, 'a'));
    await_done(NVT_JOBS_MAX + 3);
}

static void cancel__what_waits_is_not_done(void **state)
{
    (void)state;
    block_worker();
    give_all("abc");
    assert_true(nvt_worker_cancel(&worker, &jobs[1].job));
    assert_false(nvt_worker_cancel(&worker, &jobs[1].job));
    assert_false(nvt_worker_cancel(&worker, &blocker)); /* begun */
    sem_post(&gate);
    await_done(2);
    assert_string_equal(was_done, "ac");
    assert_int_equal(worked, 2);
    assert_false(nvt_worker_cancel(&worker, &jobs[0].job));
}

static void *open_gate_at_the_end(void *arg)
{
    (void)arg;
    for (bool ends = false; !ends; sched_yield()) {
        pthread_mutex_lock(&worker.lock);
        ends = worker.ends;
        pthread_mutex_unlock(&worker.lock);
    }
    sem_post(&gate);
    return NULL;
}

static void close__what_waits_is_not_done(void **state)
{
    (void)state;
    pthread_t opener;
    block_worker();
    give_all("ab");
    assert_int_equal(pthread_create(&opener, NULL, open_gate_at_the_end, NULL), 0);
    nvt_worker_close(&worker);
    pthread_join(opener, NULL);
    assert_int_equal(worked + done_count, 0);
    assert_int_equal(nvt_worker_open(&worker), 0);
}

static int nice_of_worker;
static sigset_t blocked_of_worker;

static void look(struct nvt_job *job)
{
    (void)job;
    nice_of_worker = getpriority(PRIO_PROCESS, 0);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked_of_worker);
}

static void thread__has_less_claim_and_no_signals(void **state)
{
    (void)state;
    const int before = getpriority(PRIO_PROCESS, 0);
    sigset_t blocked;
    block_worker();
    give_all("a");
    jobs[0].job.work = look;
    sem_post(&gate);
    await_done(1);
    assert_int_equal(nice_of_worker, before + 10 < 19 ? before + 10 : 19);
    assert_true(sigismember(&blocked_of_worker, SIGTERM));
    assert_true(sigismember(&blocked_of_worker, SIGHUP));
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    assert_false(sigismember(&blocked, SIGTERM));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(give__jobs_are_done_in_order),        CASE(give__owners_take_turns),
        CASE(give__who_comes_again_is_behind),     CASE(give__in_done_is_taken),
        CASE(give__only_so_many_of_an_owner_wait), CASE(cancel__what_waits_is_not_done),
        CASE(close__what_waits_is_not_done),       CASE(thread__has_less_claim_and_no_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Authentication in the target's model: what a queue takes before and after, and when it ends. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include <cmocka.h>

#include "../../secrets.h"
#include "nvme/host/dhchap.h"
#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/worker.h"
#include "test_model_host.h"

#define SECOND 1000000000ull

enum { DATA = 1 << 20, MESSAGE = 4096 };
enum { REQUIRED = 0x191 | NVME_SC_DNR, INVALID = NVME_SC_INVALID_FIELD | NVME_SC_DNR };
enum { CDW10 = 0xe9 << 24 | 1 << 16 | 1 << 8 };

static struct nvh_secrets secrets;
static int refusals;

static void note_refusal(const struct nvt_queue *queue, const char *why)
{
    assert_string_equal(queue->ctrl->host_nqn, HOST_NQN);
    assert_non_null(why);
    refusals++;
}

static int setup_policy(void **state)
{
    struct nvt_auth_policy policy;
    setup(state);
    refusals = 0;
    target.refused = note_refusal;
    secrets = (struct nvh_secrets){.has_host = true, .has_controller = true};
    assert_null(nvf_secret_parse(HOST_SECRET, &secrets.host));
    assert_null(nvf_secret_parse(CONTROLLER_SECRET, &secrets.controller));
    assert_null(nvt_auth_policy_parse(HOST_SECRET, CONTROLLER_SECRET, 0, NVF_FFDHE2048, &policy));
    assert_int_equal(nvt_subsystem_authenticate(subsystem, HOST_NQN, &policy), -ENOENT);
    struct nvt_nqn allowed = {HOST_NQN};
    const struct nvt_config_subsystem config = {
        .nqn.text = NQN, .allow_any_host = true, .host_count = 1, .hosts = &allowed};
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    assert_int_equal(nvt_subsystem_authenticate(subsystem, HOST_NQN, &policy), 0);
    return 0;
}

static uint16_t say_auth(struct nvt_queue *queue, enum nvf_type type, uint32_t cdw10,
                         uint32_t len_bytes)
{
    struct nvf_sqe sqe = command(NVF_OPCODE, type, DATA, MESSAGE);
    sqe.cdw10 = htole32(cdw10);
    sqe.cdw11 = htole32(len_bytes);
    return say(queue, &sqe);
}

/* One step of the exchange. */
static uint16_t step(struct nvt_queue *queue, struct nvh_dhchap *chap)
{
    if (nvh_dhchap_sends(chap)) {
        const size_t len = nvh_dhchap_next(chap, host + DATA);
        return say_auth(queue, NVF_AUTH_SEND, CDW10, (uint32_t)len);
    }
    memset(host + DATA, 0xff, MESSAGE);
    const uint16_t status = say_auth(queue, NVF_AUTH_RECEIVE, CDW10, MESSAGE);
    if (!status)
        nvh_dhchap_take(chap, host + DATA, MESSAGE);
    return status;
}

/* Whether the host is authenticated. */
static bool authenticate(struct nvt_queue *queue, uint16_t transaction)
{
    struct nvh_dhchap chap;
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, transaction);
    while (!nvh_dhchap_has_ended(&chap))
        assert_int_equal(step(queue, &chap), 0);
    const bool done = chap.state == NVH_DHCHAP_DONE;
    nvh_dhchap_clear(&chap);
    return done;
}

static uint16_t connect_and_check(struct nvt_queue *queue, uint16_t cntlid)
{
    assert_int_equal(connect_as_host(queue, NQN, cntlid), 0);
    assert_int_equal(le64toh(response.result) >> 16, 2); /* ATR, not ASCR */
    return (uint16_t)le64toh(response.result);
}

static void queue__takes_nothing_before(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, DATA, 4096);
    assert_int_equal(say(&admin, &sqe), REQUIRED);
    sqe = command(NVF_OPCODE, NVF_PROPERTY_GET, 0, 0);
    assert_int_equal(say(&admin, &sqe), REQUIRED);
    assert_int_equal(set_config(&admin, CC_ENABLED), REQUIRED);
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff), REQUIRED);
    assert_int_equal(connect_as_host(&io_queue, NQN, 1), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
    assert_null(io_queue.auth);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    assert_int_equal(refusals, 0);
}

static void queue__each_authenticates_itself(void **state)
{
    (void)state;
    const uint16_t cntlid = connect_and_check(&admin, 0xffff);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    connect_and_check(&io_queue, cntlid);
    const struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, DATA);
    assert_int_equal(say(&io_queue, &sqe), REQUIRED);
    assert_true(authenticate(&io_queue, 2));
    assert_int_equal(say(&io_queue, &sqe), 0);
    assert_true(authenticate(&io_queue, 3)); /* anew */
    assert_int_equal(say(&io_queue, &sqe), 0);
}

static void secret__wrong_ends_the_connection(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    secrets.host.bytes[0] ^= 1;
    assert_false(authenticate(&admin, 1));
    assert_int_equal(cuts, 1);
    assert_int_equal(refusals, 1);
    assert_int_equal(set_config(&admin, CC_ENABLED), REQUIRED);
    assert_int_equal(say_auth(&admin, NVF_AUTH_RECEIVE, CDW10, MESSAGE), REQUIRED);
    assert_int_equal(cuts, 1);
}

static void secret__wrong_anew_ends_the_queue_alone(void **state)
{
    (void)state;
    const uint16_t cntlid = connect_and_check(&admin, 0xffff);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    connect_and_check(&io_queue, cntlid);
    assert_true(authenticate(&io_queue, 2));
    secrets.host.bytes[0] ^= 1;
    assert_false(authenticate(&io_queue, 3));
    assert_true(io_queue.is_cut);
    assert_false(admin.is_cut);
    const struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, DATA);
    assert_int_equal(say(&io_queue, &sqe), REQUIRED);
}

static void command__fields_are_checked(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    static const uint32_t wrong[] = {0xe8u << 24 | 1 << 16 | 1 << 8, 0xe9u << 24 | 1 << 8,
                                     0xe9u << 24 | 1 << 16};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, wrong[i], 64), INVALID);
        assert_int_equal(say_auth(&admin, NVF_AUTH_RECEIVE, wrong[i], 64), INVALID);
    }
    assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, CDW10, 0), INVALID);
    assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, CDW10, NVT_TRANSFER_MAX + 1), INVALID);
    assert_int_equal(say_auth(&admin, NVF_AUTH_SEND, CDW10, MESSAGE + 1),
                     NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR);
    assert_true(authenticate(&admin, 1)); /* none of these was a message */
}

static void exchange__has_a_time_limit(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    connect_and_check(&admin, 0xffff);
    nvt_target_tick(&target, 29 * SECOND);
    assert_int_equal(cuts, 0);
    nvt_target_tick(&target, 31 * SECOND);
    assert_int_equal(cuts, 1);
    assert_true(nvt_queue_gone(&admin));
    make_queue(&admin, 0);
    target.now_ns = 100 * SECOND;
    connect_and_check(&admin, 0xffff);
    assert_true(authenticate(&admin, 1));
    nvt_target_tick(&target, 200 * SECOND); /* at rest */
    assert_int_equal(cuts, 1);
    target.now_ns = 300 * SECOND;
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, 2);
    assert_int_equal(step(&admin, &chap), 0);
    nvt_target_tick(&target, 329 * SECOND);
    assert_int_equal(cuts, 1);
    nvt_target_tick(&target, 331 * SECOND);
    assert_int_equal(cuts, 2);
}

static void policy__is_that_of_the_time_of_connect(void **state)
{
    (void)state;
    connect_and_check(&admin, 0xffff);
    assert_int_equal(nvt_subsystem_authenticate(subsystem, HOST_NQN, NULL), 0);
    assert_int_equal(set_config(&admin, CC_ENABLED), REQUIRED);
    assert_true(authenticate(&admin, 1));
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    assert_int_equal(connect_as_host(&io_queue, NQN, 1), 0);
    assert_int_equal(le64toh(response.result), 1); /* no authentication */
    assert_int_equal(say_auth(&io_queue, NVF_AUTH_SEND, CDW10, 64),
                     NVME_SC_INVALID_OPCODE | NVME_SC_DNR);
}

static void connect__that_fails_leaves_nothing(void **state)
{
    (void)state;
    assert_int_equal(connect_as_host(&admin, NQN, 7),
                     NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM) | NVME_SC_DNR);
    assert_null(admin.auth);
    connect_and_check(&admin, 0xffff);
}

/* ---- with a worker, which computes aside ---- */

static struct nvt_worker worker;
static struct nvt_queue other; /* the admin queue of another host */
static sem_t gate, is_blocked; /* of a job that keeps the worker from others until the gate opens */
static struct nvt_job blocker, others[NVT_JOBS_MAX];

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

static int setup_worker(void **state)
{
    setup_policy(state);
    assert_int_equal(nvt_worker_open(&worker), 0);
    target.worker = &worker;
    make_queue(&other, 0);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_int_equal(sem_init(&is_blocked, 0, 0), 0);
    return 0;
}

/* The worker is busy from here on, until the gate opens. */
static void block_worker(void)
{
    blocker = (struct nvt_job){.owner = "blocker", .work = await_gate, .done = do_nothing};
    assert_true(nvt_worker_give(&worker, &blocker));
    sem_wait(&is_blocked);
}

/* Until the worker is done with a job; the target hears of it. */
static void await_done(void)
{
    struct pollfd ready = {.fd = worker.event_fd, .events = POLLIN};
    eventfd_t count;
    assert_int_equal(poll(&ready, 1, -1), 1);
    assert_int_equal(eventfd_read(worker.event_fd, &count), 0);
    nvt_worker_reap(&worker);
}

/* As the transport does: it has gone when nothing of it is under way. */
static void end_queue(struct nvt_queue *queue)
{
    nvt_queue_gone(queue);
    while (queue->under_way)
        await_done();
}

static int teardown_worker(void **state)
{
    sem_post(&gate); /* a test may have left it closed */
    end_queue(&other);
    end_queue(&io_queue);
    end_queue(&admin);
    nvt_worker_close(&worker);
    sem_destroy(&is_blocked);
    sem_destroy(&gate);
    return teardown(state);
}

/* Until there is an answer; its status. */
static uint16_t await_answer(void)
{
    const int before = answers;
    while (answers == before)
        await_done();
    return status_before(0);
}

/* The whole exchange. How many of its steps the worker took. */
static int authenticate_aside(struct nvt_queue *queue, struct nvh_dhchap *chap)
{
    int aside = 0;
    while (!nvh_dhchap_has_ended(chap)) {
        const bool receives = !nvh_dhchap_sends(chap);
        if (step(queue, chap) != WAITS)
            continue;
        assert_int_equal(await_answer(), 0);
        if (receives)
            nvh_dhchap_take(chap, host + DATA, MESSAGE);
        aside++;
    }
    return aside;
}

/* Until the worker has the challenge. */
static void begin_aside(struct nvt_queue *queue, struct nvh_dhchap *chap, uint16_t transaction)
{
    nvh_dhchap_init(chap, &secrets, HOST_NQN, NQN, transaction);
    assert_int_equal(step(queue, chap), 0);
    assert_int_equal(say_auth(queue, NVF_AUTH_RECEIVE, CDW10, MESSAGE), WAITS);
}

static void end_aside(struct nvt_queue *queue, struct nvh_dhchap *chap)
{
    assert_int_equal(await_answer(), 0);
    nvh_dhchap_take(chap, host + DATA, MESSAGE);
    assert_int_equal(authenticate_aside(queue, chap), 1); /* the reply */
    assert_int_equal(chap->state, NVH_DHCHAP_DONE);
    nvh_dhchap_clear(chap);
}

static void worker__others_are_served_meanwhile(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    block_worker();
    connect_and_check(&admin, 0xffff);
    begin_aside(&admin, &chap, 1);
    assert_int_equal(connect_named(&other, NQN, 0xffff, 2, HOST_NQN "-without-secret"), 0);
    assert_int_equal(set_config(&other, CC_ENABLED), 0);
    const struct nvf_sqe sqe = command(nvme_admin_identify, 0, 0, 4096);
    assert_int_equal(say(&other, &sqe), NVME_SC_INVALID_NS | NVME_SC_DNR);
    assert_int_equal(set_config(&admin, CC_ENABLED), REQUIRED); /* its own queue waits */
    assert_int_equal(say_auth(&admin, NVF_AUTH_RECEIVE, CDW10, MESSAGE),
                     NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
    sem_post(&gate);
    end_aside(&admin, &chap);
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
}

/* Both queues of a host have proved themselves. */
static void prove_both(void)
{
    struct nvh_dhchap chap;
    const uint16_t cntlid = connect_and_check(&admin, 0xffff);
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, 1);
    assert_int_equal(authenticate_aside(&admin, &chap), 2);
    nvh_dhchap_clear(&chap);
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    connect_and_check(&io_queue, cntlid);
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, 2);
    assert_int_equal(authenticate_aside(&io_queue, &chap), 2);
    nvh_dhchap_clear(&chap);
}

static void worker__proven_queue_goes_on_while_it_proves_anew(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    const struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, 0);
    prove_both();
    block_worker();
    begin_aside(&io_queue, &chap, 3);
    assert_int_equal(say(&io_queue, &sqe), 0);
    sem_post(&gate);
    end_aside(&io_queue, &chap);
    assert_int_equal(say(&io_queue, &sqe), 0);
}

static void worker__who_vanishes_is_not_computed_for(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    block_worker();
    connect_and_check(&admin, 0xffff);
    begin_aside(&admin, &chap, 1);
    nvh_dhchap_clear(&chap);
    const int before = answers;
    assert_true(nvt_queue_gone(&admin)); /* it was not begun */
    assert_int_equal(answers, before);
    assert_true(list_is_empty(&worker.waiting));
}

static void worker__who_vanishes_in_the_midst_leaves_nothing(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    connect_and_check(&admin, 0xffff);
    begin_aside(&admin, &chap, 1);
    nvh_dhchap_clear(&chap);
    const int before = answers;
    for (bool waits = true; waits; sched_yield()) { /* it is begun, or even done */
        pthread_mutex_lock(&worker.lock);
        waits = !list_is_empty(&worker.waiting);
        pthread_mutex_unlock(&worker.lock);
    }
    assert_false(nvt_queue_gone(&admin));
    assert_int_equal(admin.under_way, 1);
    while (admin.under_way)
        await_done();
    assert_int_equal(answers, before); /* nobody hears */
}

/* So many jobs wait of a host's name, proved or only said. */
static void crowd(bool is_trusted)
{
    for (int i = 0; i < NVT_JOBS_MAX; i++) {
        others[i] = (struct nvt_job){
            .owner = HOST_NQN, .is_trusted = is_trusted, .work = do_nothing, .done = do_nothing};
        assert_true(nvt_worker_give(&worker, &others[i]));
    }
}

static void worker__too_many_are_sent_away(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    block_worker();
    crowd(false);
    connect_and_check(&admin, 0xffff);
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, 1);
    assert_int_equal(step(&admin, &chap), 0);
    assert_int_equal(say_auth(&admin, NVF_AUTH_RECEIVE, CDW10, MESSAGE), NVME_SC_CMD_INTERRUPTED);
    assert_true(nvt_worker_cancel(&worker, &others[0]));
    assert_int_equal(say_auth(&admin, NVF_AUTH_RECEIVE, CDW10, MESSAGE), WAITS); /* again */
    sem_post(&gate);
    end_aside(&admin, &chap);
}

static void worker__who_is_proven_is_kept_out_by_no_impostor(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    prove_both();
    block_worker();
    crowd(false);
    begin_aside(&admin, &chap, 3);
    sem_post(&gate);
    end_aside(&admin, &chap);
}

static void worker__keeps_little_memory_of_who_waits(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    block_worker();
    connect_and_check(&admin, 0xffff);
    nvh_dhchap_init(&chap, &secrets, HOST_NQN, NQN, 1);
    assert_int_equal(step(&admin, &chap), 0);
    const size_t before = target.threads[0].pool.free_bytes;
    struct nvf_sqe sqe = command(NVF_OPCODE, NVF_AUTH_RECEIVE, 0, NVT_TRANSFER_MAX);
    sqe.cdw10 = htole32(CDW10);
    sqe.cdw11 = htole32(NVT_TRANSFER_MAX);
    assert_int_equal(say(&admin, &sqe), WAITS);
    assert_int_equal(before, target.threads[0].pool.free_bytes); /* its queue has a place for it */
    sem_post(&gate);
    assert_int_equal(await_answer(), 0);
    nvh_dhchap_take(&chap, host, MESSAGE);
    const size_t len = nvh_dhchap_next(&chap, host);
    sqe = command(NVF_OPCODE, NVF_AUTH_SEND, 0, NVT_TRANSFER_MAX);
    sqe.cdw10 = htole32(CDW10);
    sqe.cdw11 = htole32(NVT_TRANSFER_MAX); /* what is behind the message is passed over */
    assert_true(len < MESSAGE);
    assert_int_equal(say(&admin, &sqe), WAITS);
    assert_int_equal(await_answer(), 0);
    assert_int_equal(authenticate_aside(&admin, &chap), 0); /* the rest */
    assert_int_equal(chap.state, NVH_DHCHAP_DONE);
    nvh_dhchap_clear(&chap);
}

static void worker__has_a_time_limit(void **state)
{
    (void)state;
    struct nvh_dhchap chap;
    block_worker();
    connect_and_check(&admin, 0xffff);
    begin_aside(&admin, &chap, 1);
    nvh_dhchap_clear(&chap);
    nvt_target_tick(&target, 29 * SECOND);
    assert_int_equal(cuts, 0);
    nvt_target_tick(&target, 31 * SECOND);
    assert_int_equal(cuts, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_policy, teardown)
#define ASIDE(name) cmocka_unit_test_setup_teardown(name, setup_worker, teardown_worker)
    const struct CMUnitTest tests[] = {
        CASE(queue__takes_nothing_before),
        CASE(queue__each_authenticates_itself),
        CASE(secret__wrong_ends_the_connection),
        CASE(secret__wrong_anew_ends_the_queue_alone),
        CASE(command__fields_are_checked),
        CASE(exchange__has_a_time_limit),
        CASE(policy__is_that_of_the_time_of_connect),
        CASE(connect__that_fails_leaves_nothing),
        ASIDE(worker__others_are_served_meanwhile),
        ASIDE(worker__proven_queue_goes_on_while_it_proves_anew),
        ASIDE(worker__who_vanishes_is_not_computed_for),
        ASIDE(worker__who_vanishes_in_the_midst_leaves_nothing),
        ASIDE(worker__too_many_are_sent_away),
        ASIDE(worker__who_is_proven_is_kept_out_by_no_impostor),
        ASIDE(worker__keeps_little_memory_of_who_waits),
        ASIDE(worker__has_a_time_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A storm of connections: storm [--seed N] [--connections N] [--processes N] [--kills N]
 * So many processes, each with a listener, connect to each other by the stock librdmacm, send a
 * message each way and disconnect, until so many connections have been used. At random moments some
 * are killed with SIGKILL: connections with them must end within seconds, all others go well.
 * Afterwards the survivors connect to each other once more, and have no more descriptors, names,
 * mappings and memory than before.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/namespace.h"
#include "stress/footprint.h"
#include "stress/storm_end.h"

#define CALLS 16 /* at a time, of each process */
#define PORT 20000
#define END_MS 30000      /* until a connection with a process that was killed has ended */
#define LATE_MS 2000      /* what a peer has said before it disconnected */
#define STUCK_MS 30000    /* any connection */
#define PATIENCE_MS 30000 /* until everything is as before */
#define SETTLE_MS 500     /* what waits for late messages goes */
#define PHASE_MS 60000
#define ACK_TIMEOUT 14 /* 67 ms */
#define RESOLVE_MS 30000
#define IWARP_BUFFERS 8 /* that a process keeps, as many as it ever used at a time */
#define IWARP_BUFFER_BYTES (128u << 10)

/* ---- calls ---- */

static int choose_peer(void)
{
    int alive[PROCESSES_MAX], count = 0;
    for (int i = 0; i < board->processes; i++)
        if (i != own.index && !storm_is_killed(i))
            alive[count++] = i;
    if (atomic_load(&board->phase) != STORM) /* each in its turn */
        return alive[own.next_peer++ % (uint32_t)count];
    return alive[vu_random_below(&own.random, (uint32_t)count)];
}

static void call(void)
{
    struct rdma_cm_id *id;
    VU_EQ(rdma_create_id(own.events, &id, NULL, RDMA_PS_TCP), 0);
    struct end *end = end_take(id, true);
    VU_TRUE(end != NULL);
    end->peer = choose_peer();
    end->hello = (struct hello){(uint32_t)own.index, own.serial++};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(PORT + end->peer)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    VU_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS), 0);
    own.to_call--;
}

static void go_on(struct end *end)
{
    uint8_t timeout = ACK_TIMEOUT;
    VU_EQ(rdma_set_option(end->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                          sizeof(timeout)),
          0);
    VU_EQ(rdma_resolve_route(end->id, RESOLVE_MS), 0);
}

static void ask(struct end *end)
{
    struct rdma_conn_param param = {.private_data = &end->hello,
                                    .private_data_len = sizeof(end->hello),
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 5,
                                    .rnr_retry_count = 7};
    if (end_create_qp(end) && rdma_connect(end->id, &param))
        VU_FAIL("rdma_connect: %s", strerror(errno));
}

static void answer(struct rdma_cm_event *event)
{
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
    struct end *end = end_take(event->id, false);
    VU_TRUE(end != NULL);
    VU_TRUE(event->param.conn.private_data_len >= sizeof(end->hello));
    memcpy(&end->hello, event->param.conn.private_data, sizeof(end->hello));
    VU_TRUE(end->hello.caller < (uint32_t)board->processes);
    end->peer = (int)end->hello.caller;
    if (end_create_qp(end) && rdma_accept(end->id, &param))
        end_cut(end, "accept", errno);
}

/* True: an end that was disconnected is over. */
static bool is_over(struct end *end)
{
    if (!end->ended_ms)
        return false;
    if (end->has_received) { /* an acknowledgement may be late: it takes another way */
        if (!end->is_leaving)
            rdma_disconnect(end->id); /* agrees */
        end_let_go(end);
    } else if (storm_is_killed(end->peer) || vu_now_ms() - end->ended_ms > LATE_MS) {
        end_cut(end, "disconnected before it was used", 0);
    } else {
        return false;
    }
    return true;
}

static void disconnected(struct end *end)
{
    const uint32_t life = end->life;
    end->ended_ms = vu_now_ms();
    end_drain_cq(); /* what came before */
    if (end->id && end->life == life)
        is_over(end);
}

static void happened(struct end *end, enum rdma_cm_event_type type, int status)
{
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED)
        go_on(end);
    else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED)
        ask(end);
    else if (type == RDMA_CM_EVENT_ESTABLISHED)
        end_established(end);
    else if (type == RDMA_CM_EVENT_DISCONNECTED)
        disconnected(end);
    else if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
        end_cut(end, rdma_event_str(type), status);
}

static void take_events(void)
{
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(own.events, &event) == 0) {
        enum rdma_cm_event_type type = event->event;
        struct end *end = event->id->context;
        int status = event->status;
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
            answer(event);
        VU_EQ(rdma_ack_cm_event(event), 0);
        if (type != RDMA_CM_EVENT_CONNECT_REQUEST)
            happened(end, type, status);
    }
    VU_EQ(errno, EAGAIN);
}

/* Nothing hangs, and least of all on the dead. */
static void look_after_ends(void)
{
    uint64_t now_ms = vu_now_ms();
    for (uint32_t i = 0; i < ENDS; i++) {
        struct end *end = &own.ends[i];
        if (!end->id || is_over(end))
            continue;
        uint64_t killed_ms = atomic_load(&board->killed_ms[end->peer]);
        uint64_t since_ms = killed_ms > end->began_ms ? killed_ms : end->began_ms;
        VU_CHECK(!killed_ms || now_ms < since_ms + END_MS, /* it may be killed just now */
                 "nobody tells that process %d, of %s %u, was killed", end->peer,
                 end->is_caller ? "call" : "the answer to", end->hello.serial);
        VU_CHECK(killed_ms || now_ms < end->began_ms + STUCK_MS,
                 "%s %u with process %d hangs: sent %d, received %d, leaving %d",
                 end->is_caller ? "call" : "the answer to", end->hello.serial, end->peer,
                 end->has_sent, end->has_received, end->is_leaving);
    }
}

static void step(void)
{
    struct pollfd fds[2] = {{.fd = own.events->fd, .events = POLLIN},
                            {.fd = own.channel->fd, .events = POLLIN}};
    struct ibv_cq *cq;
    void *context;
    while (own.to_call && own.calls < CALLS)
        call();
    poll(fds, 2, 10);
    take_events();
    if (fds[1].revents && ibv_get_cq_event(own.channel, &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
        VU_EQ(ibv_req_notify_cq(cq, 0), 0);
    }
    end_drain_cq();
    look_after_ends();
}

/* ---- a process ---- */

/* That of the loopback, as librdmacm has it open: an ID that is bound to 127.0.0.1 has none. */
static struct ibv_context *loopback_device(void)
{
    struct ibv_context *found = NULL, **devices = rdma_get_devices(NULL);
    VU_TRUE(devices != NULL);
    for (int i = 0; devices[i]; i++) {
        const char *name = ibv_get_device_name(devices[i]->device);
        if (!strcmp(name, "sw_lo") || !strcmp(name, "iw_lo"))
            found = devices[i];
    }
    rdma_free_devices(devices);
    return found;
}

static void set_up(void)
{
    const size_t bytes = (size_t)ENDS * 2 * MESSAGE_BYTES;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(PORT + own.index)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    own.events = rdma_create_event_channel();
    VU_TRUE(own.events && !fcntl(own.events->fd, F_SETFL, O_NONBLOCK));
    VU_EQ(rdma_create_id(own.events, &own.listener, NULL, RDMA_PS_TCP), 0);
    VU_EQ(rdma_bind_addr(own.listener, (struct sockaddr *)&at), 0);
    VU_EQ(rdma_listen(own.listener, 512), 0);
    own.context = loopback_device();
    VU_TRUE(own.context != NULL);
    own.pd = ibv_alloc_pd(own.context);
    own.channel = ibv_create_comp_channel(own.context);
    VU_TRUE(own.pd && own.channel && !fcntl(own.channel->fd, F_SETFL, O_NONBLOCK));
    own.cq = ibv_create_cq(own.context, 4 * ENDS, NULL, own.channel, 0);
    VU_TRUE(own.cq && !ibv_req_notify_cq(own.cq, 0));
    own.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(own.memory != MAP_FAILED);
    own.mr = ibv_reg_mr(own.pd, own.memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    VU_TRUE(own.mr != NULL);
}

static void tear_down(void)
{
    VU_EQ(own.calls + own.answers, 0);
    VU_EQ(rdma_destroy_id(own.listener), 0);
    VU_EQ(ibv_destroy_cq(own.cq), 0); /* no queue pair is left */
    VU_EQ(ibv_destroy_comp_channel(own.channel), 0);
    VU_EQ(ibv_dereg_mr(own.mr), 0);
    VU_EQ(ibv_dealloc_pd(own.pd), 0);
    rdma_destroy_event_channel(own.events);
}

/* ---- what it does in each phase; others may still call it in all of them ---- */

static void make_calls(uint32_t count)
{
    own.next_peer = 0;
    for (own.to_call = count; own.to_call || own.calls;)
        step();
}

static void make_storm(void)
{
    while (atomic_load(&board->used) < board->connections || own.calls) {
        own.to_call = atomic_load(&board->used) < board->connections ? CALLS : 0;
        step();
    }
    own.to_call = 0;
}

static void count(struct footprint *out)
{
    uint64_t end_ms = vu_now_ms() + SETTLE_MS;
    while (own.answers || vu_now_ms() < end_ms)
        step();
    footprint_take(out);
}

/* Connections leave nothing behind. Memory that is made once for a peer may have come after the
 * warming, where packets find their way by chance: it does not grow with the number of
 * connections. */
static void be_as_before(const struct footprint *before)
{
    /* librdmacm's index of IDs grows with their numbers, up to half a megabyte. */
    const size_t heap_bytes = 65536 + 8 * (size_t)board->connections;
    const struct footprint none = {.heap_bytes = heap_bytes},
                           some = {.descriptors = 2 * PROCESSES_MAX,
                                   .udp_sockets = 64,
                                   .mappings = PROCESSES_MAX,
                                   .heap_bytes = 2 * heap_bytes},
                           few = {.mappings = IWARP_BUFFERS,
                                  .heap_bytes = heap_bytes + IWARP_BUFFERS * IWARP_BUFFER_BYTES},
                           /* a connection for messages to each process, one from it */
        all = {.descriptors = 2 * PROCESSES_MAX,
               .mappings = IWARP_BUFFERS,
               .heap_bytes = heap_bytes + IWARP_BUFFERS * IWARP_BUFFER_BYTES},
                           *slack = board->is_iwarp  ? &few
                                    : board->is_tcp  ? &all
                                    : board->is_wire ? &some
                                                     : &none;
    struct footprint now;
    uint64_t end_ms = vu_now_ms() + PATIENCE_MS;
    count(&now);
    while (!footprint_is_within(&now, before, slack) && vu_now_ms() < end_ms)
        count(&now);
    bool good = footprint_is_within(&now, before, slack);
    if (own.index == 0 || !good) {
        footprint_print("before", before);
        footprint_print("after", &now);
    }
    VU_TRUE(good);
}

static void one_process(int number, void *arg)
{
    (void)arg;
    static struct footprint before;
    char side[32];
    own.index = number;
    own.random.state = board->seed ^ ((uint64_t)number << 32);
    snprintf(side, sizeof(side), "process %d", number);
    vu_set_side(side);
    set_up();
    for (enum phase phase = SET_UP; phase != OVER; phase++) {
        if (phase == WARM || phase == AFTER)
            make_calls(2 * (uint32_t)board->processes);
        else if (phase == COUNT)
            count(&before);
        else if (phase == STORM)
            make_storm();
        else if (phase == COUNT_AGAIN)
            be_as_before(&before);
        atomic_store(&board->done[number], (int)phase + 1);
        while (atomic_load(&board->phase) <= (int)phase)
            step();
    }
    tear_down();
}

/* ---- the parent ---- */

static pid_t pids[PROCESSES_MAX];

/* Nobody ends but those that we kill. */
static bool all_live(void)
{
    for (int i = 0; i < board->processes; i++) {
        int status;
        if (storm_is_killed(i) || waitpid(pids[i], &status, WNOHANG) != pids[i])
            continue;
        pids[i] = 0;
        fprintf(stderr, "process %d ended by itself: status 0x%x\n", i, status);
        return false;
    }
    return true;
}

/* Until all that live have done their part, then the next phase. */
static bool pass(enum phase phase)
{
    uint64_t end_ms = vu_now_ms() + PHASE_MS;
    for (int i = 0; i < board->processes; i++)
        while (!storm_is_killed(i) && atomic_load(&board->done[i]) <= (int)phase) {
            if (!all_live())
                return false;
            if (vu_now_ms() > end_ms) {
                fprintf(stderr, "process %d does not end phase %d\n", i, (int)phase);
                return false;
            }
            vu_sleep_ms(2);
        }
    atomic_store(&board->phase, (int)phase + 1);
    return true;
}

static bool kill_one(struct vu_random *random, uint32_t at_used)
{
    uint64_t end_ms = vu_now_ms() + PHASE_MS;
    while (atomic_load(&board->used) < at_used) {
        if (!all_live())
            return false;
        if (vu_now_ms() > end_ms) {
            fprintf(stderr, "the storm is calm\n");
            return false;
        }
        usleep(200);
    }
    int victim;
    do
        victim = (int)vu_random_below(random, (uint32_t)board->processes);
    while (storm_is_killed(victim));
    atomic_store(&board->killed_ms[victim], vu_now_ms());
    kill(pids[victim], SIGKILL);
    printf("process %d killed after %u connections\n", victim, atomic_load(&board->used));
    fflush(stdout);
    int status;
    return waitpid(pids[victim], &status, 0) == pids[victim] && WIFSIGNALED(status);
}

static bool kill_some(struct vu_random *random)
{
    const uint32_t part = board->connections / (uint32_t)(board->kills + 1);
    for (int i = 0; i < board->kills; i++)
        if (!kill_one(random, (uint32_t)i * part + vu_random_below(random, part)))
            return false;
    return true;
}

static bool run(void)
{
    struct vu_random random = {board->seed};
    for (int i = 0; i < board->processes; i++)
        pids[i] = vu_spawn(one_process, i, NULL);
    if (!pass(SET_UP) || !pass(WARM) || !pass(COUNT))
        return false;
    atomic_store(&board->used, 0);
    uint64_t begin_ms = vu_now_ms();
    if (!kill_some(&random) || !pass(STORM))
        return false;
    printf("%u connections used and %u cut in %llu ms\n", atomic_load(&board->used),
           atomic_load(&board->cut), (unsigned long long)(vu_now_ms() - begin_ms));
    return pass(AFTER) && pass(COUNT_AGAIN);
}

static bool end_all(bool good)
{
    for (int i = 0; i < board->processes; i++) {
        if (storm_is_killed(i) || !pids[i])
            continue;
        if (!good)
            kill(pids[i], SIGKILL);
        int status = vu_reap(pids[i], 10);
        if (good && status) {
            fprintf(stderr, "process %d: status %d\n", i, status);
            return end_all(false);
        }
    }
    return good;
}

static bool has_link(const char *name)
{
    return getenv("SIDEWIRE_LINK") && strcmp(getenv("SIDEWIRE_LINK"), name) == 0;
}

static void read_options(int argc, char **argv)
{
    board->processes = 8;
    board->kills = 2;
    board->connections = 2000;
    board->seed = vu_now_ms();
    board->is_wire = has_link("roce");
    board->is_iwarp = has_link("iwarp");
    board->is_tcp = has_link("tcp");
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long value = strtoull(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--seed") == 0)
            board->seed = value;
        else if (strcmp(argv[i], "--connections") == 0)
            board->connections = (uint32_t)value;
        else if (strcmp(argv[i], "--processes") == 0)
            board->processes = (int)value;
        else if (strcmp(argv[i], "--kills") == 0)
            board->kills = (int)value;
        else
            VU_FAIL("unknown option %s", argv[i]);
    }
    VU_TRUE(board->processes <= PROCESSES_MAX && board->kills >= 0 &&
            board->kills + 2 <= board->processes);
}

int main(int argc, char **argv)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(board != MAP_FAILED);
    read_options(argc, argv);
    printf("storm --seed %llu\n", (unsigned long long)board->seed);
    fflush(stdout);
    if (namespace_enter(CLONE_NEWNET) || system("ip link set lo up"))
        vu_skip("no network namespace");
    return end_all(run()) ? 0 : 1;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process without a processor is not a dead one: liveness [SCENARIO ...]
 * Pairs of processes, all at once. One of each is stopped (SIGSTOP) for 10 s, which must cost no
 * request, however few retries there are; or it dies, which the other must learn at once, even if
 * it only waits; or packets get lost (SIDEWIRE_FAULTS), and then retries count as asked.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/namespace.h"
#include "traffic.h"

enum { MARK_HERE = 0x11, MARK_THERE = 0x22, BYTES = 4096 };

#define STOPPED_MS 10000
#define KNOWN_MS 1000 /* after the kernel has ended it: let_die() */
#define PATIENT 18    /* a timeout of a second */
#define CHILD_MS 5000 /* that a child of it lives on */
#define SPARED_MS 1500
#define CUT_OFF_MS 25000 /* of who hardly runs time does not count */

struct scenario;
struct side {
    const struct scenario *scenario;
    int sock;    /* to the other side */
    int control; /* to who stops and kills */
    struct vu_dev dev;
};

enum kind {
    PLAIN,
    SLICES,   /* it is stopped again and again */
    LINELESS, /* it takes no part in docs/liveness.md */
};

struct scenario {
    const char *name;
    void (*here)(struct side *side);  /* goes on to live */
    void (*there)(struct side *side); /* is stopped, or dies */
    int signal;                       /* what happens to the other one; 0: nothing */
    uint8_t timeout, retries;
    const char *faults; /* a script for this side: docs/faults.md */
    enum kind kind;
};

/* ---- TCP sockets of a process ---- */

static bool owns(pid_t pid, unsigned long inode, int *count)
{
    char path[64], wanted[64], seen[64];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    VU_TRUE(dir);
    *count = 0;
    for (struct dirent *entry; (entry = readdir(dir)); ++*count) {
        const ssize_t len = readlinkat(dirfd(dir), entry->d_name, seen, sizeof(seen) - 1);
        seen[len > 0 ? len : 0] = 0;
        found |= !strcmp(seen, wanted);
    }
    closedir(dir);
    return found;
}

enum { TCP_STANDS = 0x01, TCP_LISTENS = 0x0a };

/* The port of one in that state; 0: it has none. */
static uint16_t tcp_port(const char *table, pid_t pid, unsigned int wanted)
{
    char line[512];
    unsigned int port, state;
    unsigned long inode;
    int count;
    FILE *file = fopen(table, "re");
    VU_TRUE(file);
    uint16_t found = 0;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "%*d: %*[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*d %lu", &port, &state,
                   &inode) == 3 &&
            state == wanted && owns(pid, inode, &count))
            found = (uint16_t)port;
    fclose(file);
    return found;
}

/* Where the process listens. */
static uint16_t port_of(pid_t pid)
{
    const uint16_t port = tcp_port("/proc/net/tcp", pid, TCP_LISTENS);
    VU_CHECK(port, "process %d does not listen", (int)pid);
    return port;
}

static bool is_by_packets(void)
{
    const char *link = getenv("SIDEWIRE_LINK");
    return getenv("VU_HOSTS") || (link && !strcmp(link, "roce"));
}

/* ---- traffic ---- */

static void tell(int control)
{
    char word = 'r';
    vu_put(control, &word, 1);
}

/* Waits for a peer that takes no part in docs/liveness.md and may get no processor for long: until
 * its first packet is here, it is a plain one, and retries count as asked. */
static void hear_peer(struct side *side, struct traffic *traffic)
{
    char word;
    while (!vu_try_get(side->sock, &word, 1, 0)) {
        VU_TRUE(traffic_step(traffic, false));
        sched_yield();
    }
}

/* The other one may get no processor, either, but it is waited for. */
static void be_heard(struct side *side, struct traffic *traffic)
{
    while (!traffic->completed) {
        VU_TRUE(traffic_step(traffic, true));
        sched_yield();
    }
    tell(side->sock);
}

static void connect_traffic(struct side *side, struct traffic *traffic, uint8_t mark)
{
    const struct scenario *scenario = side->scenario;
    const bool is_first = scenario->kind == LINELESS && mark == MARK_THERE;
    traffic_memory(traffic, &side->dev, mark);
    traffic->retries = is_first ? 7 : scenario->retries;
    VU_TRUE(traffic_connect(traffic, side->sock, mark, is_first ? PATIENT : scenario->timeout));
    if (scenario->kind == LINELESS)
        (is_first ? be_heard : hear_peer)(side, traffic);
}

static void run_traffic(struct traffic *traffic, unsigned int ms)
{
    for (uint64_t end = vu_now_ms() + ms; vu_now_ms() < end;) {
        VU_CHECK(traffic_step(traffic, true), "%s", ibv_wc_status_str(traffic->failed));
        sched_yield();
    }
}

static void there_traffic(struct side *side)
{
    struct traffic traffic;
    connect_traffic(side, &traffic, MARK_THERE);
    while (traffic_step(&traffic, true))
        sched_yield();
    _exit(0); /* the other one went away */
}

static void there_answers(struct side *side)
{
    struct traffic traffic;
    connect_traffic(side, &traffic, MARK_THERE);
    while (traffic_step(&traffic, false))
        sched_yield();
    _exit(0);
}

/* Until it was stopped and goes on. */
static void here_goes_on(struct side *side)
{
    struct traffic traffic;
    char word;
    connect_traffic(side, &traffic, MARK_HERE);
    run_traffic(&traffic, 200);
    tell(side->control);
    while (!vu_try_get(side->control, &word, 1, 0))
        run_traffic(&traffic, 5);
    const uint64_t completed = traffic.completed;
    for (uint64_t end = vu_now_ms() + 5000; traffic.completed < completed + 100;) {
        run_traffic(&traffic, 5);
        VU_CHECK(vu_now_ms() < end, "nothing goes on: %llu requests since",
                 (unsigned long long)(traffic.completed - completed));
    }
    vu_ep_destroy(&traffic.ep);
    traffic_release(&traffic);
}

static uint64_t ended_ms(const struct side *side)
{
    uint64_t ms;
    vu_get(side->control, &ms, sizeof(ms));
    return ms;
}

/* That the other one is dead is known now. Its end is told later, if it took the kernel longer. */
static void report_death(const struct side *side)
{
    const uint64_t now_ms = vu_now_ms(), since_ms = ended_ms(side),
                   took_ms = now_ms > since_ms ? now_ms - since_ms : 0;
    printf("%s: known after %llu ms\n", side->scenario->name, (unsigned long long)took_ms);
    fflush(stdout);
    VU_CHECK(took_ms < KNOWN_MS, "known after %llu ms", (unsigned long long)took_ms);
}

/* Of the oldest request; or of a receive, whose completion may be looked at first. */
static void check_end(const struct traffic *traffic)
{
    VU_CHECK(traffic->failed == IBV_WC_RETRY_EXC_ERR || traffic->failed == IBV_WC_WR_FLUSH_ERR,
             "ended with %s", ibv_wc_status_str(traffic->failed));
}

/* Over packets a death is known at once by a connection, which takes a while to come about where
 * dozens of processes share two processors. Before that it is known by the retries, and by who
 * only waits not at all. NULL: there is no traffic. */
static void await_line(struct traffic *traffic)
{
    for (uint64_t end = vu_now_ms() + 15000; is_by_packets() && vu_now_ms() < end;) {
        if (tcp_port("/proc/net/tcp", getpid(), TCP_STANDS) ||
            tcp_port("/proc/net/tcp6", getpid(), TCP_STANDS))
            return;
        traffic ? run_traffic(traffic, 20) : vu_sleep_ms(20);
    }
}

static void here_sees_death(struct side *side)
{
    struct traffic traffic;
    connect_traffic(side, &traffic, MARK_HERE);
    await_line(&traffic);
    run_traffic(&traffic, 200);
    tell(side->control);
    for (uint64_t end = vu_now_ms() + 30000; traffic_step(&traffic, true);)
        VU_TRUE(vu_now_ms() < end);
    report_death(side);
    check_end(&traffic);
}

/* The two have no connection by which a death is known: the retries count, as soon as the other's
 * host says that its port is closed. */
static void here_gives_up(struct side *side)
{
    struct traffic traffic;
    connect_traffic(side, &traffic, MARK_HERE);
    run_traffic(&traffic, 200);
    tell(side->control);
    for (uint64_t end = vu_now_ms() + 15000; traffic_step(&traffic, true);)
        VU_TRUE(vu_now_ms() < end);
    check_end(&traffic);
}

/* ---- atomics ---- */

static void there_counts(struct side *side)
{
    static _Alignas(64) uint64_t words[BYTES / 8];
    struct vu_ep ep;
    const struct vu_ep_attr attr = {0};
    struct ibv_mr *mr = vu_reg(&side->dev, words, sizeof(words), VU_ACCESS_ALL);
    vu_ep_create(&side->dev, &attr, &ep);
    vu_connect(&ep, side->sock, NULL);
    vu_trade_keys(side->sock, mr);
    pause();
}

static void count_once(struct vu_ep *ep, const struct ibv_mr *mr, const struct vu_key *key,
                       uint64_t expected)
{
    const struct vu_send add = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                .flags = IBV_SEND_SIGNALED,
                                .addr = mr->addr,
                                .len_bytes = 8,
                                .lkey = mr->lkey,
                                .remote = key->addr,
                                .rkey = key->rkey,
                                .compare_add = 1};
    struct ibv_wc wc;
    VU_EQ(vu_post_send(ep->qp, &add), 0);
    VU_EQ(vu_poll(ep->scq, &wc, 1, 20000), 1);
    VU_EQ(wc.status, IBV_WC_SUCCESS);
    VU_EQ(*(uint64_t *)mr->addr, expected);
}

static void here_counts(struct side *side)
{
    static _Alignas(64) uint64_t words[BYTES / 8];
    struct vu_ep ep;
    const struct vu_ep_attr attr = {0};
    struct vu_conn conn = vu_conn_default;
    uint64_t counted = 0;
    char word;
    conn.timeout = side->scenario->timeout;
    conn.retry_cnt = side->scenario->retries;
    struct ibv_mr *mr = vu_reg(&side->dev, words, sizeof(words), VU_ACCESS_ALL);
    vu_ep_create(&side->dev, &attr, &ep);
    vu_connect(&ep, side->sock, &conn);
    const struct vu_key key = vu_trade_keys(side->sock, mr);
    for (uint64_t end = vu_now_ms() + 200; vu_now_ms() < end; counted++)
        count_once(&ep, mr, &key, counted);
    tell(side->control);
    while (!vu_try_get(side->control, &word, 1, 0)) {
        count_once(&ep, mr, &key, counted++);
        vu_sleep_ms(1);
    }
    for (int i = 0; i < 50; i++)
        count_once(&ep, mr, &key, counted++);
}

/* ---- who only waits ---- */

static void exchange(struct side *side, struct vu_ep *ep, struct ibv_mr *mr, bool sends)
{
    const struct vu_send send = {.opcode = IBV_WR_SEND,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = mr->addr,
                                 .len_bytes = 8,
                                 .lkey = mr->lkey};
    VU_EQ(vu_post_recv(ep->qp, 1, mr->addr, 64, mr->lkey), 0);
    VU_EQ(vu_post_recv(ep->qp, 2, mr->addr, 64, mr->lkey), 0);
    vu_barrier(side->sock);
    if (sends) {
        VU_EQ(vu_post_send(ep->qp, &send), 0);
        vu_expect(ep->scq, 0, IBV_WC_SUCCESS);
    } else {
        vu_expect(ep->rcq, 1, IBV_WC_SUCCESS);
    }
    vu_barrier(side->sock);
}

static void connect_waiting(struct side *side, struct vu_ep *ep, bool sends)
{
    static uint8_t memory[BYTES];
    const struct vu_ep_attr attr = {.channel = true};
    struct vu_conn conn = vu_conn_default;
    conn.timeout = side->scenario->timeout;
    conn.retry_cnt = side->scenario->retries;
    struct ibv_mr *mr = vu_reg(&side->dev, memory, sizeof(memory), VU_ACCESS_ALL);
    vu_ep_create(&side->dev, &attr, ep);
    vu_connect(ep, side->sock, &conn);
    if (strcmp(side->scenario->name, "kill_unheard") != 0)
        exchange(side, ep, mr, sends);
    else if (!sends)
        VU_EQ(vu_post_recv(ep->qp, 1, mr->addr, 64, mr->lkey), 0);
}

static void there_waits(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    tell(side->control);
    pause();
}

/* Asleep, as a server is. */
static void here_waits(struct side *side)
{
    struct vu_ep ep;
    struct ibv_wc wc;
    connect_waiting(side, &ep, false);
    await_line(NULL);
    VU_EQ(ibv_req_notify_cq(ep.rcq, 0), 0);
    tell(side->control);
    VU_TRUE(vu_cq_event(ep.channel, 30000));
    VU_EQ(ibv_poll_cq(ep.rcq, 1, &wc), 1);
    report_death(side);
    VU_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_ERR);
}

/* It was told by the program itself, so a death means nothing. */
static void there_leaves(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    vu_ep_destroy(&ep);
    tell(side->control);
    pause();
}

static void here_is_left(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, false);
    tell(side->control);
    ended_ms(side);
    vu_expect_none(ep.rcq, SPARED_MS);
    VU_TRUE(vu_ep_state(&ep) != IBV_QPS_ERR);
}

/* An end like any other: by itself, without a word. */
static void there_exits(struct side *side)
{
    struct vu_ep ep;
    char word;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    tell(side->control);
    vu_get(side->control, &word, 1);
    exit(0);
}

/* Called by both, parent and child. */
static void child_lives_on(struct side *side, long child)
{
    VU_TRUE(child >= 0);
    if (child == 0) {
        vu_sleep_ms(CHILD_MS);
        _exit(0);
    }
    tell(side->control);
    pause();
}

/* A child of it lives on. */
static void there_forks(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    child_lives_on(side, fork());
}

/* A child by the bare system call keeps all its sockets open, so that nobody sees one close. The
 * same as a process whose memory takes the kernel long to take down. */
static void there_clones(struct side *side)
{
    struct vu_ep ep;
    connect_waiting(side, &ep, true);
    vu_sleep_ms(500);
    child_lives_on(side, syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0));
}

/* ---- packets that get lost ---- */

/* The whole host does: its interface goes down. */
static void there_vanishes(struct side *side)
{
    struct traffic traffic;
    struct ifreq request = {0};
    const char *device = getenv("VU_DEVICE");
    VU_CHECK(device && !strncmp(device, "sw_", 3), "this is for two hosts");
    connect_traffic(side, &traffic, MARK_THERE);
    run_traffic(&traffic, 1000);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device + 3);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    VU_EQ(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    pause();
}

/* The connection by which both know of each other's lives stands, but that is no reason to wait. */
static void here_is_cut_off(struct side *side)
{
    struct traffic traffic;
    connect_traffic(side, &traffic, MARK_HERE);
    const uint64_t begun_ms = vu_now_ms();
    while (traffic_step(&traffic, true))
        VU_TRUE(vu_now_ms() < begun_ms + CUT_OFF_MS);
    printf("%s: given up %llu ms after it began\n", side->scenario->name,
           (unsigned long long)(vu_now_ms() - begun_ms));
    check_end(&traffic);
}

/* ---- strangers ---- */

enum { CALLS = 1500, SILENT = 100, SPARE_FDS = 40 };

static uint64_t refusals(const struct vu_dev *dev)
{
    char path[128];
    unsigned long long count;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/liveness_refused",
             ibv_get_device_name(dev->ctx->device));
    FILE *file = fopen(path, "re");
    VU_TRUE(file && fscanf(file, "%llu", &count) == 1);
    fclose(file);
    return count;
}

/* A good word, of one of the two to the other, but for its token. */
static void say_hello(const struct traffic *traffic, bool to_us, uint8_t words[24])
{
    enum { SLOT_SHIFT = 13 }; /* of a QPN */
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(traffic->ep.qp, &attr, IBV_QP_DEST_QPN, &init), 0);
    const uint32_t own = htonl(traffic->ep.qp->qp_num >> SLOT_SHIFT),
                   peer = htonl(attr.dest_qp_num >> SLOT_SHIFT),
                   slots[2] = {to_us ? peer : own, to_us ? own : peer};
    memcpy(words, "SW\1", 4);
    memcpy(words + 8, slots, sizeof(slots));
}

/* Says nothing, garbage, or a good word with a wrong token. */
static void call(const struct traffic *traffic, const uint16_t ports[2], int number,
                 int silent[SILENT])
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(ports[number & 1]),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t words[96];
    memset(words, number, sizeof(words));
    if (number % 3 == 1)
        say_hello(traffic, number & 1, words);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    VU_TRUE(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 && number % 3)
        send(fd, words, number % 4 < 2 ? 24 : sizeof(words), MSG_NOSIGNAL);
    if (silent[number % SILENT] >= 0)
        close(silent[number % SILENT]);
    silent[number % SILENT] = fd;
}

static void there_is_called(struct side *side)
{
    const pid_t self = getpid();
    vu_put(side->sock, &self, sizeof(self));
    there_traffic(side);
}

/* They come from the peer's own address, thousands of them, and change nothing. */
static void here_meets_strangers(struct side *side)
{
    struct traffic traffic;
    pid_t pid;
    int silent[SILENT], before, after;
    const uint64_t refused = refusals(&side->dev);
    vu_get(side->sock, &pid, sizeof(pid));
    connect_traffic(side, &traffic, MARK_HERE);
    run_traffic(&traffic, 300);
    const uint16_t ports[2] = {port_of(pid), port_of(getpid())};
    owns(pid, 0, &before);
    memset(silent, -1, sizeof(silent));
    for (int i = 0; i < 2 * CALLS; i++) {
        call(&traffic, ports, i, silent);
        run_traffic(&traffic, 1);
    }
    owns(pid, 0, &after);
    VU_CHECK(after < before + SPARE_FDS, "descriptors grew from %d to %d", before, after);
    /* A process that gets no processor does not tell what it has counted. */
    uint64_t seen = 0;
    for (uint64_t end = vu_now_ms() + 15000; seen != 2 * CALLS && vu_now_ms() < end;) {
        run_traffic(&traffic, 100);
        seen = refusals(&side->dev) - refused;
    }
    VU_EQ(seen, 2 * CALLS);
    tell(side->control);
    for (uint64_t end = vu_now_ms() + 30000; traffic_step(&traffic, true);)
        VU_TRUE(vu_now_ms() < end);
    report_death(side);
}

/* Those that wait send one message first, which asks for long: until a peer has been heard of, no
 * line stands that tells whether it lives, and it may get no processor. */
static const struct scenario scenarios[] = {
    {"stop", here_goes_on, there_traffic, SIGSTOP, 14, 7, NULL, PLAIN},
    {"stop_impatient", here_goes_on, there_answers, SIGSTOP, 8, 1, NULL, PLAIN},
    {"stop_no_retries", here_goes_on, there_traffic, SIGSTOP, 1, 0, NULL, PLAIN},
    {"stop_atomics", here_counts, there_counts, SIGSTOP, 8, 1, NULL, PLAIN},
    {"starve", here_goes_on, there_traffic, SIGSTOP, 8, 0, NULL, SLICES},
    {"stop_lineless", here_goes_on, there_answers, SIGSTOP, 8, 0, NULL, LINELESS},
    {"kill_lineless", here_gives_up, there_answers, SIGKILL, 14, 1, NULL, LINELESS},
    {"kill", here_sees_death, there_traffic, SIGKILL, 20, 7, NULL, PLAIN},
    {"kill_waiting", here_waits, there_waits, SIGKILL, 18, 7, NULL, PLAIN},
    {"kill_unheard", here_waits, there_waits, SIGKILL, 18, 7, NULL, PLAIN}, /* nothing was sent */
    {"kill_forked", here_waits, there_forks, SIGKILL, 18, 7, NULL, PLAIN},
    {"kill_cloned", here_waits, there_clones, SIGKILL, 18, 7, NULL, PLAIN},
    {"exit_waiting", here_waits, there_exits, 0, 18, 7, NULL, PLAIN},
    {"kill_left", here_is_left, there_leaves, SIGKILL, 18, 7, NULL, PLAIN},
    {"vanish", here_is_cut_off, there_vanishes, 0, 14, 1, NULL, PLAIN},
    {"strangers", here_meets_strangers, there_is_called, SIGKILL, 20, 7, NULL, PLAIN},
    {"cut", here_is_cut_off, there_traffic, 0, 14, 1, "cut at 3s for 1min\n", PLAIN},
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

/* ---- all of it ---- */

static void set_faults(const char *script)
{
    char name[] = "/tmp/liveness.XXXXXX", variable[64];
    const int fd = mkstemp(name);
    VU_TRUE(fd >= 0);
    VU_EQ(write(fd, script, strlen(script)), strlen(script));
    snprintf(variable, sizeof(variable), "@/proc/self/fd/%d", fd);
    VU_EQ(setenv("SIDEWIRE_FAULTS", variable, 1), 0);
    VU_EQ(unlink(name), 0);
}

struct start {
    const struct scenario *scenario;
    int control;
    bool is_here;
};

static void begin(int sock, void *arg)
{
    const struct start *start = arg;
    struct side side = {start->scenario, sock, start->control, {0}};
    char name[64];
    snprintf(name, sizeof(name), "%s %s", start->scenario->name, start->is_here ? "here" : "there");
    vu_set_side(name);
    vu_enter_host(start->is_here);
    if (start->is_here && start->scenario->faults)
        set_faults(start->scenario->faults);
    if (!start->is_here && start->scenario->kind == LINELESS)
        VU_EQ(setenv("SIDEWIRE_LIVENESS", "never", 1), 0);
    vu_dev_open(&side.dev);
    (start->is_here ? start->scenario->here : start->scenario->there)(&side);
}

static pid_t spawn_side(const struct scenario *scenario, int sock, bool is_here, int *control)
{
    int controls[2];
    vu_socketpair(controls);
    struct start start = {scenario, controls[1], is_here};
    pid_t pid = vu_spawn(begin, sock, &start);
    close(controls[1]);
    *control = controls[0];
    return pid;
}

static void stop_for_long(pid_t pid)
{
    VU_EQ(kill(pid, SIGSTOP), 0);
    vu_sleep_ms(STOPPED_MS);
    VU_EQ(kill(pid, SIGCONT), 0);
}

/* It gets a processor now and then, as among many others: for long enough to answer that it runs,
 * and perhaps not for what it was asked before. */
static void starve(pid_t pid)
{
    for (uint64_t end = vu_now_ms() + STOPPED_MS; vu_now_ms() < end;) {
        VU_EQ(kill(pid, SIGSTOP), 0);
        vu_sleep_ms(800);
        VU_EQ(kill(pid, SIGCONT), 0);
        vu_sleep_ms(10);
    }
}

/* Time counts from when the kernel has made it a zombie: before that it still has its sockets. The
 * kernel takes down the memory of a process first, which takes seconds where others are busy. */
static void let_die(const struct scenario *scenario, pid_t pid, int here, int there)
{
    siginfo_t end;
    if (scenario->signal)
        kill(pid, scenario->signal);
    else
        vu_try_put(there, "", 1);
    while (waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        continue;
    const uint64_t now_ms = vu_now_ms();
    vu_try_put(here, &now_ms, sizeof(now_ms));
}

/* One process for each scenario, with two children. */
static void run_scenario(int sock, void *arg)
{
    const struct scenario *scenario = arg;
    int pair[2], here, there;
    char word;
    (void)sock;
    vu_set_side(scenario->name);
    vu_socketpair(pair);
    const pid_t one = spawn_side(scenario, pair[0], true, &here);
    const pid_t other = spawn_side(scenario, pair[1], false, &there);
    close(pair[0]);
    close(pair[1]);
    const bool is_told = scenario->there == there_waits || scenario->there == there_forks ||
                         scenario->there == there_clones || scenario->there == there_exits ||
                         scenario->there == there_leaves;
    if (scenario->here != here_is_cut_off && vu_try_get(here, &word, 1, 20000) &&
        (!is_told || vu_try_get(there, &word, 1, 20000))) {
        if (scenario->signal == SIGSTOP) {
            (scenario->kind == SLICES ? starve : stop_for_long)(other);
            vu_try_put(here, &word, 1);
        } else {
            let_die(scenario, other, here, there);
        }
    }
    const int status = vu_reap(one, 30);
    kill(other, SIGKILL);
    vu_reap(other, 5);
    _exit(status == VU_SKIPPED ? VU_SKIPPED : status != 0);
}

static bool is_wanted(const struct scenario *scenario, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], scenario->name))
            return true;
    if (scenario->there == there_clones && is_by_packets())
        return false; /* only on one host there is more than sockets */
    return argc == 1 && scenario->here != here_meets_strangers && /* there must be a TCP port */
           scenario->there != there_vanishes;                     /* others could not go on */
}

int main(int argc, char **argv)
{
    pid_t pids[SCENARIOS] = {0};
    int result = 0;
    /* Who is stopped takes along what comes to its share of the host's port: not that of others. */
    if (is_by_packets() && !getenv("VU_HOSTS") && !namespace_own_network())
        puts("in the network of all, where other tests had better not run meanwhile");
    for (size_t i = 0; i < SCENARIOS; i++)
        if (is_wanted(&scenarios[i], argc, argv))
            pids[i] = vu_spawn(run_scenario, -1, (void *)&scenarios[i]);
    for (size_t i = 0; i < SCENARIOS; i++) {
        if (!pids[i])
            continue;
        const int status = vu_reap(pids[i], 60);
        if (status == VU_SKIPPED)
            result = result ? result : VU_SKIPPED;
        else if (status)
            result = 1;
        printf("%s: %s\n", scenarios[i].name, status ? "failed" : "good");
    }
    return result;
}

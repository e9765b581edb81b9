/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process without a processor is not a dead one: liveness [SCENARIO ...]
 * Pairs of processes, all at once. One of each is stopped (SIGSTOP) for 10 s, which must cost no
 * request, however few retries there are; or it dies, which the other must learn at once, even if
 * it only waits; or packets get lost (SIDEWIRE_FAULTS), and then retries count as asked.
 */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "liveness_side.h"
#include "preload/namespace.h"

#define STOPPED_MS 10000
#define READY_MS 60000 /* for what comes before the death, where others want the processors, too */
#define END_S 60
#define CUT_OFF_MS 25000 /* of who hardly runs time does not count */

/* ---- traffic ---- */

static void there_answers(struct side *side)
{
    struct traffic traffic;
    side_connect(side, &traffic, MARK_THERE);
    while (side_step(&traffic, false))
        continue;
    _exit(0);
}

/* Until it was stopped and goes on. */
static void here_goes_on(struct side *side)
{
    struct traffic traffic;
    char word;
    side_connect(side, &traffic, MARK_HERE);
    side_run(&traffic, 200);
    side_tell(side->control);
    while (!vu_try_get(side->control, &word, 1, 0))
        side_run(&traffic, 5);
    const uint64_t completed = traffic.completed;
    for (uint64_t end = vu_now_ms() + 5000; traffic.completed < completed + 100;) {
        side_run(&traffic, 5);
        VU_CHECK(vu_now_ms() < end, "nothing goes on: %llu requests since",
                 (unsigned long long)(traffic.completed - completed));
    }
    vu_ep_destroy(&traffic.ep);
    traffic_release(&traffic);
}

/* The end of the oldest request; or of a receive, whose completion may be looked at first. */
static void check_end(const struct traffic *traffic)
{
    VU_CHECK(traffic->failed == IBV_WC_RETRY_EXC_ERR || traffic->failed == IBV_WC_WR_FLUSH_ERR,
             "ended with %s", ibv_wc_status_str(traffic->failed));
}

static void here_sees_death(struct side *side)
{
    struct traffic traffic;
    side_connect(side, &traffic, MARK_HERE);
    side_await_line(&traffic);
    side_run(&traffic, 200);
    side_tell(side->control);
    for (uint64_t end = vu_now_ms() + 30000; traffic_step(&traffic, true);)
        VU_TRUE(vu_now_ms() < end);
    side_report_death(side);
    check_end(&traffic);
}

/* The two have no connection by which a death is known: the retries count, as soon as the other's
 * host says that its port is closed. */
static void here_gives_up(struct side *side)
{
    struct traffic traffic;
    side_connect(side, &traffic, MARK_HERE);
    side_run(&traffic, 200);
    side_tell(side->control);
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
    side_tell(side->control);
    while (!vu_try_get(side->control, &word, 1, 0)) {
        count_once(&ep, mr, &key, counted++);
        vu_sleep_ms(1);
    }
    for (int i = 0; i < 50; i++)
        count_once(&ep, mr, &key, counted++);
}

/* ---- packets that get lost ---- */

/* The whole host does: its interface goes down. */
static void there_vanishes(struct side *side)
{
    struct traffic traffic;
    struct ifreq request = {0};
    const char *device = getenv("VU_DEVICE");
    VU_CHECK(device && !strncmp(device, "sw_", 3), "this is for two hosts");
    side_connect(side, &traffic, MARK_THERE);
    side_run(&traffic, 1000);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device + 3);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    VU_EQ(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    pause();
}

/* The connection by which both know of each other's lives stands, but that is no reason to wait. */
static void here_is_cut_off(struct side *side)
{
    struct traffic traffic;
    side_connect(side, &traffic, MARK_HERE);
    const uint64_t begun_ms = vu_now_ms();
    while (side_step(&traffic, true))
        VU_TRUE(vu_now_ms() < begun_ms + CUT_OFF_MS);
    printf("%s: given up %llu ms after it began\n", side->scenario->name,
           (unsigned long long)(vu_now_ms() - begun_ms));
    check_end(&traffic);
}

/* Scenarios that wait send one message first, which asks for long: until a peer has been heard of,
 * no line stands that tells whether it lives, and it may get no processor. */
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
    if (scenario->here != here_is_cut_off && vu_try_get(here, &word, 1, READY_MS) &&
        (!is_told || vu_try_get(there, &word, 1, READY_MS))) {
        if (scenario->signal == SIGSTOP) {
            (scenario->kind == SLICES ? starve : stop_for_long)(other);
            vu_try_put(here, &word, 1);
        } else {
            let_die(scenario, other, here, there);
        }
    }
    const int status = vu_reap(one, END_S);
    if (status == -1)
        fprintf(stderr, "%s: still there after %d s\n", scenario->name, END_S);
    kill(other, SIGKILL);
    vu_reap(other, 5);
    _exit(status == VU_SKIPPED ? VU_SKIPPED : status != 0);
}

static bool is_wanted(const struct scenario *scenario, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], scenario->name))
            return true;
    if (scenario->there == there_clones && side_is_by_packets())
        return false; /* only on one host there is more than sockets */
    return argc == 1 && scenario->here != here_meets_strangers && /* there must be a TCP port */
           scenario->there != there_vanishes;                     /* others could not go on */
}

int main(int argc, char **argv)
{
    pid_t pids[SCENARIOS] = {0};
    int result = 0;
    /* A stopped process takes along what comes to its share of the host's port: not that of
     * others. */
    if (side_is_by_packets() && !getenv("VU_HOSTS") && !namespace_own_network())
        puts("in the network of all, where other tests had better not run meanwhile");
    for (size_t i = 0; i < SCENARIOS; i++)
        if (is_wanted(&scenarios[i], argc, argv))
            pids[i] = vu_spawn(run_scenario, -1, (void *)&scenarios[i]);
    for (size_t i = 0; i < SCENARIOS; i++) {
        if (!pids[i])
            continue;
        const int status = vu_reap(pids[i], READY_MS / 1000 + END_S);
        if (status == VU_SKIPPED)
            result = result ? result : VU_SKIPPED;
        else if (status)
            result = 1;
        printf("%s: %s\n", scenarios[i].name, status ? "failed" : "good");
    }
    return result;
}

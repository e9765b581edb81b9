/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Death at random instants: death [--seed N] [--iterations N] [--seconds N] [--lanes N]
 * In each lane a survivor lives through the whole run; victim after victim opens the device,
 * connects to it, exchanges traffic with it, and is killed with SIGKILL at a random instant of all
 * that. The survivor must get an error completion within GONE_MS of each death, keep only bytes of
 * victims it was connected to, and neither it nor the machine may keep anything of the dead.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "preload/namespace.h"
#include "traffic.h"

#define GONE_MS 20000 /* on a machine that all lanes keep busy */
#define SURVIVOR_MARK 0xc0
#define SOCKETS_SLACK 40 /* of other tests at the same time */
#define TIMEOUT 9        /* 2 ms: an undetected death shows after 17 ms */
#define WARM_UP 30       /* iterations before leaks are counted */

struct order { /* what the parent tells the survivor of an iteration */
    uint64_t seed;
    bool initiate, stop;
};

struct victim_args {
    uint64_t seed;
    uint8_t mark;
    bool initiate;
};

static void victim(int sock, void *arg)
{
    const struct victim_args *args = arg;
    struct vu_dev dev;
    struct traffic traffic;
    vu_set_side("victim");
    vu_dev_open(&dev);
    traffic_memory(&traffic, &dev, args->mark);
    if (!traffic_connect(&traffic, sock, args->seed, TIMEOUT))
        VU_FAIL("the survivor went away");
    for (int i = 0; i < 4000; i++)
        if (!traffic_step(&traffic, args->initiate))
            VU_FAIL("%s", ibv_wc_status_str(traffic.failed));
    traffic_disconnect(
        &traffic); /* some victims live to see this, too: the QP is simply gone then */
    traffic_release(&traffic);
    vu_dev_close(&dev);
    pause();
}

/* Runs one connection until the victim's death shows. Reports how long that took after the parent
 * said it had killed. */
static void survive(struct traffic *traffic, int control, int sock, const struct order *order)
{
    char told;
    if (!traffic_connect(traffic, sock, order->seed, TIMEOUT)) {
        vu_get(control, &told, 1);
        return;
    }
    bool good = true, killed = false;
    uint64_t killed_ms = 0;
    while (good) {
        good = traffic_step(traffic,
                            order->initiate ||
                                killed); /* who only receives learns of a death when it sends */
        if (!killed && vu_try_get(control, &told, 1, 0)) {
            killed = true;
            killed_ms = vu_now_ms();
        }
        VU_CHECK(!good || !killed || vu_now_ms() - killed_ms < GONE_MS,
                 "no error completion %d ms after the death (%u outstanding)", GONE_MS,
                 traffic->outstanding);
        if (!traffic->outstanding)
            sched_yield();
    }
    VU_CHECK(traffic->failed == IBV_WC_RETRY_EXC_ERR || traffic->failed == IBV_WC_WR_FLUSH_ERR,
             "ended with %s", ibv_wc_status_str(traffic->failed));
    if (!killed)
        vu_get(control, &told, 1);
    uint64_t start = vu_now_ms();
    traffic_disconnect(traffic);
    VU_CHECK(vu_now_ms() - start < GONE_MS, "destroying took %llu ms",
             (unsigned long long)(vu_now_ms() - start));
}

static void survivor(int control, void *arg)
{
    (void)arg;
    struct vu_dev dev;
    struct traffic traffic;
    struct order order;
    vu_set_side("survivor");
    vu_dev_open(&dev);
    traffic_memory(&traffic, &dev, SURVIVOR_MARK);
    char done = 'd';
    vu_put(control, &done, 1);
    while (vu_try_get(control, &order, sizeof(order), 60000) && !order.stop) {
        int sock = vu_get_fd(control);
        VU_TRUE(sock >= 0);
        survive(&traffic, control, sock, &order);
        close(sock);
        vu_put(control, &done, 1);
    }
    traffic_release(&traffic);
    vu_dev_close(&dev);
}

/* Entries of a directory whose names begin so. */
static int count_entries(const char *path, const char *beginning)
{
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += !strncmp(entry->d_name, beginning, strlen(beginning));
    closedir(dir);
    return count;
}

static int count_lines(const char *path, const char *holding)
{
    char line[1024];
    int count = 0;
    FILE *file = fopen(path, "re");
    VU_CHECK(file, "%s: %s", path, strerror(errno));
    while (fgets(line, sizeof(line), file))
        count += strstr(line, holding) != NULL;
    fclose(file);
    return count;
}

/* What could be left behind: in the survivor, and on the machine. */
struct census {
    int fds, maps;
};
struct machine_census {
    int shm, tmp, sockets;
};

static struct census take_census(pid_t pid)
{
    char fds[64], maps[64];
    snprintf(fds, sizeof(fds), "/proc/%d/fd", (int)pid);
    snprintf(maps, sizeof(maps), "/proc/%d/maps", (int)pid);
    return (struct census){.fds = count_entries(fds, ""), .maps = count_lines(maps, "")};
}

static struct machine_census take_machine_census(void)
{
    return (struct machine_census){
        .shm = count_entries("/dev/shm", ""),
        .tmp = count_entries("/tmp", "sidewire") /* compilers live there too */,
        .sockets = count_lines("/proc/net/unix", "@sidewire")};
}

#define FDS_MORE 8
#define MAPS_MORE 64

static bool is_alike(const struct census *before, const struct census *after)
{
    return after->fds <= before->fds + FDS_MORE && after->maps <= before->maps + MAPS_MORE;
}

/* A little slack: the library may cache, other programs use /tmp and sockets; hundreds of deaths
 * would show far above it. */
static void compare_census(const struct census *before, const struct census *after)
{
    VU_CHECK(after->fds <= before->fds + FDS_MORE, "descriptors grew from %d to %d", before->fds,
             after->fds);
    VU_CHECK(after->maps <= before->maps + MAPS_MORE, "mappings grew from %d to %d", before->maps,
             after->maps);
}

static void compare_machine_census(const struct machine_census *before,
                                   const struct machine_census *after)
{
    VU_CHECK(after->shm <= before->shm + 2, "/dev/shm grew from %d to %d", before->shm, after->shm);
    VU_CHECK(after->tmp <= before->tmp + 20, "/tmp grew from %d to %d", before->tmp, after->tmp);
    VU_CHECK(after->sockets <= before->sockets + SOCKETS_SLACK, "sockets grew from %d to %d",
             before->sockets, after->sockets);
}

__attribute__((noreturn)) static void fail_survivor(pid_t survivor_pid)
{
    int status = vu_reap(survivor_pid, 5);
    if (status == VU_SKIPPED)
        _exit(VU_SKIPPED);
    if (status > 128)
        VU_FAIL("the survivor was killed by signal %d (%s)", status - 128, strsignal(status - 128));
    VU_FAIL("the survivor %s", status == -1 ? "hangs" : "failed");
}

static void one_death(struct vu_random *random, uint32_t span_us, int control, pid_t survivor_pid,
                      int iteration)
{
    struct victim_args args = {.seed = vu_random(random),
                               .mark = (uint8_t)(1 + iteration % 63),
                               .initiate = vu_random_below(random, 3) > 0};
    struct order order = {.seed = vu_random(random),
                          .initiate = !args.initiate || vu_random_below(random, 2)};
    int socks[2], status;
    vu_socketpair(socks);
    if (!vu_try_put(control, &order, sizeof(order)))
        fail_survivor(survivor_pid);
    vu_put_fd(control, socks[0]);
    close(socks[0]);
    pid_t pid = vu_spawn(victim, socks[1], &args);
    close(socks[1]);
    usleep(vu_random_below(random, span_us));
    kill(pid, SIGKILL);
    VU_EQ(waitpid(pid, &status, 0), pid);
    VU_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
             "the victim ended by itself: status 0x%x", status);
    char told = 'k', done_told;
    if (!vu_try_put(control, &told, 1) || !vu_try_get(control, &done_told, 1, 3 * GONE_MS))
        fail_survivor(survivor_pid);
}

struct options {
    uint64_t seed;
    int iterations, seconds;
};

static void lane(int sock, void *arg)
{
    struct options *options = arg;
    char name[64], ready;
    snprintf(name, sizeof(name), "--seed %llu", (unsigned long long)options->seed);
    vu_set_side(name);
    int control[2], done;
    vu_socketpair(control);
    pid_t pid = vu_spawn(survivor, control[1], NULL);
    close(control[1]);
    if (!vu_try_get(control[0], &ready, 1, GONE_MS))
        fail_survivor(pid);
    struct vu_random random = {options->seed};
    struct census before = take_census(pid);
    uint64_t end = vu_now_ms() + (uint64_t)options->seconds * 1000;
    for (done = 0; done < options->iterations && vu_now_ms() < end; done++) {
        if (done == WARM_UP)
            before = take_census(pid);
        /* Half of the deaths come early: while opening, registering, connecting. */
        one_death(&random, done % 2 ? 8000 : 30000, control[0], pid, done);
    }
    struct census after;
    uint64_t patience = vu_now_ms() + GONE_MS;
    do { /* the last of them are being noticed */
        vu_sleep_ms(300);
        after = take_census(pid);
    } while (!is_alike(&before, &after) && vu_now_ms() < patience);
    compare_census(&before, &after);
    struct order stop = {.stop = true};
    vu_put(control[0], &stop, sizeof(stop));
    int status = vu_reap(pid, 10);
    VU_CHECK(status == 0, "the survivor ended with status %d", status);
    vu_put(sock, &done, sizeof(done));
}

#define LANES_MAX 16

int main(int argc, char **argv)
{
    struct options options = {(uint64_t)time(NULL), 100000, 60};
    int lanes = 4, deaths = 0, result = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            options.seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--iterations") == 0)
            options.iterations = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--lanes") == 0)
            lanes = atoi(argv[i + 1]);
        else
            VU_FAIL("usage: death [--seed N] [--iterations N] [--seconds N] [--lanes N]");
    }
    VU_TRUE(lanes >= 1 && lanes <= LANES_MAX);
    const char *link = getenv("SIDEWIRE_LINK");
    /* Calls of all processes of a host come to all who listen, and count as descriptors. */
    if (link && !strcmp(link, "tcp") && !namespace_own_network())
        puts("in the network of all, where other tests had better not run meanwhile");
    struct machine_census before = take_machine_census();
    pid_t pids[LANES_MAX];
    int socks[LANES_MAX];
    for (int i = 0; i < lanes; i++, options.seed++) {
        int pair[2];
        vu_socketpair(pair);
        pids[i] = vu_spawn(lane, pair[1], &options);
        close(pair[1]);
        socks[i] = pair[0];
    }
    for (int i = 0; i < lanes; i++) {
        int done = 0, status = vu_reap(pids[i], options.seconds + 30);
        if (status)
            result = status == VU_SKIPPED ? VU_SKIPPED : 1;
        else
            vu_get(socks[i], &done, sizeof(done));
        deaths += done;
    }
    if (result)
        return result;
    struct machine_census after = take_machine_census();
    for (int tries = 0; tries < 50 && after.sockets > before.sockets + SOCKETS_SLACK; tries++) {
        vu_sleep_ms(100); /* other tests come and go */
        after = take_machine_census();
    }
    compare_machine_census(&before, &after);
    printf("%d deaths survived\n", deaths);
    return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that is stopped at random instants: stop [--seed N] [--rounds N]
 * The process in the middle exchanges traffic with two others. While one of them is stopped
 * (SIGSTOP), traffic with the other goes on, memory can be registered and deregistered, also memory
 * the stopped one was writing; and when it goes on, it goes on where it was, but not in memory that
 * was taken from it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "traffic.h"

#define LONG_MS 20000 /* nothing in the running process waits for the stopped one */
#define STOPPED_MS 60
#define TIMEOUT \
    18 /* 1 s, 8 times: longer than any stop, also where the target has to do the work */
#define SPOILT 0xdd

static void peer(int sock, void *arg)
{
    struct vu_dev dev;
    struct traffic traffic;
    vu_set_side("peer");
    vu_dev_open(&dev);
    traffic_memory(&traffic, &dev, *(uint8_t *)arg);
    if (!traffic_connect(&traffic, sock, 1, TIMEOUT))
        VU_FAIL("no connection");
    while (traffic_step(&traffic, true))
        continue;
    _exit(0); /* the middle went away or took its memory back */
}

static void run_both(struct traffic *first, struct traffic *second, unsigned int ms)
{
    uint64_t end = vu_now_ms() + ms;
    while (vu_now_ms() < end) {
        VU_CHECK(traffic_step(first, true), "first: %s", ibv_wc_status_str(first->failed));
        VU_CHECK(traffic_step(second, true), "second: %s", ibv_wc_status_str(second->failed));
        sched_yield();
    }
}

/* Until so many more requests of ours are done. */
static void progress(struct traffic *first, struct traffic *second, const struct traffic *watched,
                     uint64_t more)
{
    uint64_t wanted = watched->completed + more, deadline = vu_now_ms() + LONG_MS;
    while (watched->completed < wanted) {
        run_both(first, second, 1);
        VU_CHECK(vu_now_ms() < deadline, "traffic stands still: %llu of %llu requests",
                 (unsigned long long)watched->completed, (unsigned long long)wanted);
    }
}

static void register_something(struct vu_dev *dev)
{
    uint64_t begun = vu_now_ms();
    void *block = malloc(70000);
    VU_TRUE(block);
    struct ibv_mr *mr = vu_reg(dev, block, 70000, VU_ACCESS_ALL);
    VU_EQ(ibv_dereg_mr(mr), 0);
    free(block);
    VU_CHECK(vu_now_ms() - begun < LONG_MS, "registering and deregistering took %llu ms",
             (unsigned long long)(vu_now_ms() - begun));
}

static void take_back(struct traffic *traffic, pid_t pid)
{
    uint64_t begun = vu_now_ms();
    VU_EQ(ibv_dereg_mr(traffic->mr), 0);
    VU_CHECK(vu_now_ms() - begun < LONG_MS, "deregistration took %llu ms",
             (unsigned long long)(vu_now_ms() - begun));
    memset(traffic->block, SPOILT, TRAFFIC_BYTES + 2 * TRAFFIC_GUARD);
    kill(pid, SIGCONT);
    vu_sleep_ms(100);
    for (size_t i = 0; i < TRAFFIC_BYTES + 2 * TRAFFIC_GUARD; i++)
        VU_CHECK(traffic->block[i] == SPOILT, "byte %zu changed to 0x%02x after deregistration", i,
                 traffic->block[i]);
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)time(NULL);
    int rounds = 15;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = atoi(argv[i + 1]);
        else
            VU_FAIL("usage: stop [--seed N] [--rounds N]");
    }
    char name[64];
    snprintf(name, sizeof(name), "--seed %llu", (unsigned long long)seed);
    vu_set_side(name);
    struct vu_random random = {seed};
    uint8_t marks[2] = {0x11, 0x22};
    int socks[2][2];
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        vu_socketpair(socks[i]);
        pids[i] = vu_spawn(peer, socks[i][1], &marks[i]);
        close(socks[i][1]);
    }
    struct vu_dev dev;
    struct traffic first, second;
    vu_dev_open(&dev);
    traffic_memory(&first, &dev, 0x33);
    traffic_memory(&second, &dev, 0x44);
    VU_TRUE(traffic_connect(&first, socks[0][0], seed, TIMEOUT));
    VU_TRUE(traffic_connect(&second, socks[1][0], seed + 1, TIMEOUT));
    for (int i = 0; i < rounds; i++) {
        run_both(&first, &second, vu_random_below(&random, 12));
        usleep(vu_random_below(&random, 900));
        VU_EQ(kill(pids[0], SIGSTOP), 0);
        run_both(&first, &second, STOPPED_MS);
        progress(&first, &second, &second, 200);
        register_something(&dev);
        if (i == rounds - 1)
            break;
        VU_EQ(kill(pids[0], SIGCONT), 0);
        progress(&first, &second, &first, 50);
    }
    take_back(&first, pids[0]);
    for (int i = 0; i < 2; i++) {
        kill(pids[i], SIGKILL);
        vu_reap(pids[i], 5);
    }
    vu_ep_destroy(&first.ep);
    free(first.block);
    vu_ep_destroy(&second.ep);
    traffic_release(&second);
    vu_dev_close(&dev);
    printf("seed %llu: %llu and %llu requests\n", (unsigned long long)seed,
           (unsigned long long)first.completed, (unsigned long long)second.completed);
    return 0;
}

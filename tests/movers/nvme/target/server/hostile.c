/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target under hostile hosts, beside a host that behaves well:
 *   nvme_hostile [--seed N] [--seconds N] [--threads N] [--srq RECEIVES]
 *
 * Each is a process of its own. Hostile ones come and go all the time (hostile_host.h), and what is
 * served to them changes. The other's requests go on, each of its bytes is what it wrote, and its
 * connection is never lost. In the end no connection, controller or request is left in the target,
 * and all of its memory for data is free.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "hostile_host.h"
#include "nvme/target/config/config.h"
#include "nvme/target/server/serving.h"
#include "nvme/target/server/thread.h"
#include "nvme/wire/dhchap.h"
#include "sidewire/nvme.h"
#include "test_port.h"

#define PEER_NQN "nqn.2026-01.test:peer"
#define SECRET "DHHC-1:01:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nuz7TWq:"

enum {
    HOSTS = 3, /* hostile ones at a time */
    LIFE_MIN_MS = 60,
    LIFE_MS = 500,
    TICK_MS = 100,
    TICKS_OF_CHANGE = 3,
    BATCH = 8,
    BLOCK_BYTES = 4096,
    BLOCKS = 16, /* of a request of the peer */
    PATIENCE_MS = 60000,
};

static struct board {
    atomic_bool is_listening, is_over, may_stop; /* the target, when the peer has gone */
    atomic_uint rounds;
    uint64_t seed;
    unsigned seconds, threads, shared_receives;
    char port[8], path[64];
} * board;

static _Noreturn void give_up(const char *who, const char *why)
{
    fprintf(stderr, "FAIL %s: %s\n", who, why);
    fflush(NULL);
    _exit(1);
}

/* ---- the target ---- */

static struct nvr_server server;
static struct nvr_serving serving;
static struct mover_watch ticks;
static unsigned tick_count;

static void keep_silent(void *context, bool is_bad, const char *line)
{
    (void)context;
    if (is_bad)
        fprintf(stderr, "target: %s\n", line);
}

/* The third namespace goes and comes back. */
static void change_what_is_served(void)
{
    char error[256] = "";
    uint32_t nsid;
    struct nvt_config *config = nvt_config_copy(serving.config);
    const struct nvt_config_editor editor = {config, "machine", error, sizeof(error)};
    struct nvt_config_subsystem *served = nvt_config_find_subsystem(config, HOSTILE_NQN);
    if (nvt_config_find_namespace(served, 3)
            ? nvt_config_remove_namespace(&editor, HOSTILE_NQN, 3)
            : nvt_config_add_namespace(&editor, HOSTILE_NQN, "ram:16M,nsid=3", &nsid))
        give_up("target", error);
    nvr_serving_apply(&serving, config);
}

static void take_tick(struct mover_watch *watch)
{
    uint64_t count;
    if (read(watch->fd, &count, sizeof(count)) != sizeof(count))
        return;
    if (atomic_load(&board->may_stop))
        nvr_server_stop(&server);
    else if (++tick_count % TICKS_OF_CHANGE == 0)
        change_what_is_served();
}

static void serve_first(void)
{
    char error[256] = "", at[32], file[96];
    uint32_t nsid;
    struct nvt_config *config = nvt_config_copy(serving.config);
    const struct nvt_config_editor editor = {config, "machine", error, sizeof(error)};
    snprintf(at, sizeof(at), "127.0.0.1:%s", board->port);
    snprintf(file, sizeof(file), "file:%s", board->path);
    if (nvt_config_add_subsystem(&editor, HOSTILE_NQN) ||
        nvt_config_add_namespace(&editor, HOSTILE_NQN, "null:64M", &nsid) ||
        nvt_config_add_namespace(&editor, HOSTILE_NQN, "null:64M,delay=3ms", &nsid) ||
        nvt_config_add_namespace(&editor, HOSTILE_NQN, "ram:16M", &nsid) ||
        nvt_config_add_subsystem(&editor, HOSTILE_LOCKED_NQN) ||
        nvt_config_admit(&editor, HOSTILE_LOCKED_NQN, HOSTILE_KNOWN_HOST, SECRET, false) ||
        nvt_config_add_namespace(&editor, HOSTILE_LOCKED_NQN, "ram:1M", &nsid) ||
        nvt_config_add_subsystem(&editor, PEER_NQN) ||
        nvt_config_add_namespace(&editor, PEER_NQN, "ram:4M", &nsid) ||
        nvt_config_add_namespace(&editor, PEER_NQN, file, &nsid) ||
        nvt_config_add_port(&editor, at, BLOCK_BYTES))
        give_up("target", error);
    /* Its numbers take long: they are the worker's. */
    nvt_config_find_host(config, HOSTILE_KNOWN_HOST)->dhchap_dhgroup = NVF_FFDHE2048;
    if (nvr_serving_apply(&serving, config))
        give_up("target", "does not serve what it is to serve");
}

static void check_rest(void)
{
    const struct nvt_target *target = &server.target;
    if (server.queue_count || target->ctrl_count || target->serial)
        give_up("target", "connections, controllers or requests are left");
    for (uint32_t i = 0; i < target->thread_count; i++)
        if (target->threads[i].pool.free_bytes != target->threads[i].pool.region.len_bytes)
            give_up("target", "memory of the pool is left");
}

/* Ends by exit(): sanitizers look for what is lost. */
static void run_target(void)
{
    const struct itimerspec every = {{.tv_nsec = TICK_MS * (long)NS_PER_MS},
                                     {.tv_nsec = TICK_MS * (long)NS_PER_MS}};
    const struct nvr_settings settings = {.pool_bytes = 2 << 20,
                                          .spin_us = 20,
                                          .queues_max = 256,
                                          .threads = board->threads,
                                          .shared_receives = board->shared_receives};
    serving.say = keep_silent;
    if (nvr_server_open(&server, &settings) || nvr_serving_open(&serving, &server))
        give_up("target", "does not begin");
    serve_first();
    ticks = (struct mover_watch){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
                                 .ready = take_tick};
    if (timerfd_settime(ticks.fd, 0, &every, NULL) || nvr_server_watch(&server, &ticks))
        give_up("target", "has no timer");
    atomic_store(&board->is_listening, true);
    if (nvr_server_run(&server))
        give_up("target", "has no threads");
    check_rest();
    uint64_t commands = 0, errors = 0;
    for (uint32_t i = 0; i < server.thread_count; i++) {
        commands += server.threads[i].base->commands;
        errors += server.threads[i].base->errors;
    }
    printf("%llu connections, %llu refused; %llu commands, %llu errors\n",
           (unsigned long long)server.connected, (unsigned long long)server.refused,
           (unsigned long long)commands, (unsigned long long)errors);
    nvr_server_close(&server);
    nvr_serving_close(&serving);
    close(ticks.fd);
    exit(0);
}

/* ---- the host that behaves well ---- */

struct peer {
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    uint64_t *data; /* of a batch */
};

static const size_t batch_words = (size_t)BATCH * BLOCKS * BLOCK_BYTES / 8;

static void peer_connect(struct peer *peer)
{
    struct sw_nvme_options options;
    struct sw_nvme_error error = {0};
    sw_nvme_options_init(&options);
    options.traddr = "127.0.0.1";
    options.trsvcid = board->port;
    options.subsysnqn = PEER_NQN;
    options.hostnqn = PEER_NQN ":host";
    options.hostid = "6f5d0d4e-4a3e-4b61-9d3c-0d8e6a7c1b2f";
    options.connect_timeout_ms = options.io_timeout_ms = options.keep_alive_ms = PATIENCE_MS;
    options.ctrl_loss_tmo_s = 0;
    if (sw_nvme_connect(&options, &error, &peer->controller) ||
        sw_nvme_queue_open(peer->controller, 0, &error, &peer->queue) ||
        sw_nvme_mem_alloc(peer->controller, batch_words * 8, &peer->mem))
        give_up("the peer", error.text);
    peer->data = sw_nvme_mem_data(peer->mem);
}

static void peer_move(struct peer *peer, uint32_t nsid, bool writes)
{
    struct sw_nvme_result results[BATCH];
    const uint64_t deadline_ns = sw_nvme_deadline_ms(PATIENCE_MS);
    for (uint32_t i = 0; i < BATCH; i++) {
        const struct sw_nvme_io io = {.nsid = nsid,
                                      .blocks = BLOCKS,
                                      .lba = (uint64_t)i * BLOCKS,
                                      .data =
                                          (uint8_t *)peer->data + (size_t)i * BLOCKS * BLOCK_BYTES,
                                      .bytes = BLOCKS * BLOCK_BYTES,
                                      .mem = peer->mem};
        if (writes ? sw_nvme_write(peer->queue, &io) : sw_nvme_read(peer->queue, &io))
            give_up("the peer", "a request does not begin");
    }
    for (uint32_t ended = 0; ended < BATCH;) {
        const uint32_t taken = sw_nvme_queue_take(peer->queue, results, BATCH);
        for (uint32_t i = 0; i < taken; i++)
            if (results[i].status)
                give_up("the peer", sw_nvme_status_text(results[i].status));
        ended += taken;
        if (!taken && sw_nvme_queue_wait(peer->queue, deadline_ns))
            give_up("the peer", "no answer comes");
    }
}

static void run_peer(void)
{
    struct peer peer;
    peer_connect(&peer);
    for (uint64_t round = 1; !atomic_load(&board->is_over); round++)
        for (uint32_t nsid = 1; nsid <= 2; nsid++) {
            for (size_t i = 0; i < batch_words; i++)
                peer.data[i] = round << 40 | (uint64_t)nsid << 32 | i;
            peer_move(&peer, nsid, true);
            memset(peer.data, 0, batch_words * 8);
            peer_move(&peer, nsid, false);
            for (size_t i = 0; i < batch_words; i++)
                if (peer.data[i] != (round << 40 | (uint64_t)nsid << 32 | i))
                    give_up("the peer", "what is read is not what was written");
            atomic_fetch_add(&board->rounds, 1);
            usleep(1000);
        }
    sw_nvme_queue_close(peer.queue);
    sw_nvme_mem_release(peer.mem);
    sw_nvme_disconnect(peer.controller);
    _exit(0);
}

/* ---- all of them ---- */

static struct {
    pid_t pid;
    uint64_t kill_ns; /* whatever it does then */
} hosts[HOSTS];
static pid_t target_pid, peer_pid;
static uint64_t lives;

static pid_t start_process(void (*run)(void))
{
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid)
        run();
    return pid;
}

/* The times are the seed's, too, as far as the machine keeps to them. */
static uint64_t life_ns(uint64_t seed)
{
    return (LIFE_MIN_MS + seed * 0x9e3779b97f4a7c15ull % LIFE_MS) * NS_PER_MS;
}

static void start_hosts(uint64_t now_ns)
{
    for (int i = 0; i < HOSTS; i++)
        if (!hosts[i].pid) {
            const uint64_t seed = board->seed * 1000003 + ++lives;
            hosts[i].kill_ns = now_ns + life_ns(seed);
            hosts[i].pid = fork();
            if (!hosts[i].pid)
                hostile_host_live(board->port, seed);
        }
}

static void check_status(pid_t pid, int status)
{
    char text[128];
    if (pid != target_pid && pid != peer_pid)
        return;
    snprintf(text, sizeof(text), "ended by %s %d, after %llu hostile hosts",
             WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
             (unsigned long long)lives);
    kill(pid == target_pid ? peer_pid : target_pid, SIGKILL);
    for (int i = 0; i < HOSTS; i++)
        if (hosts[i].pid)
            kill(hosts[i].pid, SIGKILL);
    give_up(pid == target_pid ? "the target" : "the peer", text);
}

/* Notes the hosts that have ended, and kills those whose time has come. */
static void see_to_hosts(uint64_t now_ns)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        check_status(pid, status);
        for (int i = 0; i < HOSTS; i++)
            if (hosts[i].pid == pid)
                hosts[i].pid = 0;
    }
    for (int i = 0; i < HOSTS; i++)
        if (hosts[i].pid && now_ns > hosts[i].kill_ns)
            kill(hosts[i].pid, SIGKILL);
}

static void attack(void)
{
    const uint64_t end_ns = mover_now_ns() + board->seconds * 1000 * NS_PER_MS;
    while (mover_now_ns() < end_ns) {
        start_hosts(mover_now_ns());
        usleep(5000);
        see_to_hosts(mover_now_ns());
    }
    for (int i = 0; i < HOSTS; i++)
        if (hosts[i].pid) {
            kill(hosts[i].pid, SIGKILL);
            waitpid(hosts[i].pid, NULL, 0);
        }
}

static void await_end(pid_t pid)
{
    int status = 0;
    waitpid(pid, &status, 0);
    if (status)
        check_status(pid, status);
}

static void make_file(void)
{
    strcpy(board->path, "/tmp/sidewire-hostile-XXXXXX");
    const int fd = mkstemp(board->path);
    if (fd < 0 || ftruncate(fd, 4 << 20))
        give_up("the test", "has no file");
    close(fd);
}

int main(int argc, char **argv)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    board->seed = board->threads = 1;
    board->seconds = 4;
    for (int i = 1; i + 1 < argc; i += 2) {
        const unsigned value = (unsigned)strtoul(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--seed"))
            board->seed = value;
        else if (!strcmp(argv[i], "--seconds"))
            board->seconds = value;
        else if (!strcmp(argv[i], "--threads"))
            board->threads = value;
        else if (!strcmp(argv[i], "--srq"))
            board->shared_receives = value;
        else
            give_up(argv[i], "no such option");
    }
    test_port_claim(board->port, sizeof(board->port));
    make_file();
    target_pid = start_process(run_target);
    while (!atomic_load(&board->is_listening)) {
        see_to_hosts(0);
        usleep(1000);
    }
    peer_pid = start_process(run_peer);
    attack();
    atomic_store(&board->is_over, true);
    await_end(peer_pid);
    atomic_store(&board->may_stop, true);
    await_end(target_pid);
    unlink(board->path);
    printf("seed %llu: %llu hostile hosts; %u batches of the peer\n",
           (unsigned long long)board->seed, (unsigned long long)lives, board->rounds);
    return board->rounds ? 0 : 1;
}

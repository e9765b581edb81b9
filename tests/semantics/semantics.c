/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the cases of sem.h:
 * semantics [--threads] [--jobs N] [--own-network] [--list] [--except NAME]... [NAME...]
 * Most cases wait most of their time, so several run at a time (--jobs). Over packets they would
 * lose datagrams to each other's stopped processes: there each has a network of its own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/namespace.h"
#include "sem.h"

#define CASE_TIMEOUT_S 60
#define NAMES_MAX 200
#define JOBS_MAX 16

static const struct sem_case *const tables[] = {
    sem_requester, sem_errors,      sem_lost,    sem_peers,      sem_states,  sem_queues,
    sem_events,    sem_srqs,        sem_data,    sem_order,      sem_memory,  sem_rereg,
    sem_windows,   sem_windows_inv, sem_newops,  sem_cqs,        sem_objects, sem_flush,
    sem_persist,   sem_uc,          sem_xrc,     sem_xrc_shared, sem_ud,      sem_ud_receivers,
    sem_mcast,     sem_counters,    sem_attrs,   sem_pacing,     sem_faults,  sem_faults_ud,
    sem_pieces,    sem_sleep,       sem_parting, sem_in_order,
};

void sem_misbehave(const char *script)
{
    char path[64];
    int fd = memfd_create("faults", 0);
    VU_TRUE(fd >= 0 && write(fd, script, strlen(script)) == (ssize_t)strlen(script));
    snprintf(path, sizeof(path), "@/proc/self/fd/%d", fd);
    VU_EQ(setenv("SIDEWIRE_FAULTS", path, 1), 0);
}

void rig_prepare(struct rig *rig, int sock, const struct rig_attr *attr)
{
    memset(rig, 0, sizeof(*rig));
    rig->sock = sock;
    vu_dev_open(&rig->dev);
    vu_ep_create(&rig->dev, &attr->ep, &rig->ep);
    rig->buf = aligned_alloc(4096, RIG_BYTES);
    VU_CHECK(rig->buf, "out of memory");
    memset(rig->buf, attr->fill, RIG_BYTES);
    rig->mr = vu_reg(&rig->dev, rig->buf, RIG_BYTES, attr->access ? attr->access : VU_ACCESS_ALL);
}

void rig_connect(struct rig *rig, const struct vu_conn *conn)
{
    rig->peer = vu_trade_keys(rig->sock, rig->mr);
    vu_connect(&rig->ep, rig->sock, conn && conn->timeout ? conn : NULL);
}

void rig_open(struct rig *rig, int sock, const struct rig_attr *attr)
{
    static const struct rig_attr none;
    rig_prepare(rig, sock, attr ? attr : &none);
    rig_connect(rig, attr ? &attr->conn : NULL);
}

struct vu_peer rig_trade(struct rig *rig)
{
    struct vu_peer self = vu_ep_self(&rig->ep), peer;
    rig->peer = vu_trade_keys(rig->sock, rig->mr);
    vu_put(rig->sock, &self, sizeof(self));
    vu_get(rig->sock, &peer, sizeof(peer));
    return peer;
}

void rig_rts(struct rig *rig, const struct vu_peer *peer, const struct vu_conn *conn)
{
    vu_ep_init(&rig->ep, conn);
    vu_ep_rtr(&rig->ep, peer, conn);
    vu_ep_rts(&rig->ep, conn);
}

void rig_second(struct rig *rig, struct vu_ep *second)
{
    vu_ep_create(&rig->dev, NULL, second);
    vu_connect(second, rig->sock, NULL);
}

void rig_close(struct rig *rig)
{
    vu_ep_destroy(&rig->ep);
    VU_EQ(ibv_dereg_mr(rig->mr), 0);
    vu_dev_close(&rig->dev);
    free(rig->buf);
}

struct vu_send rig_send(struct rig *rig, enum ibv_wr_opcode opcode, uint64_t wr_id, uint32_t offset,
                        uint32_t len_bytes)
{
    return (struct vu_send){.opcode = opcode,
                            .wr_id = wr_id,
                            .flags = IBV_SEND_SIGNALED,
                            .addr = rig->buf + offset,
                            .len_bytes = len_bytes,
                            .lkey = rig->mr->lkey,
                            .remote = rig->peer.addr + offset,
                            .rkey = rig->peer.rkey};
}

void rig_recv(struct rig *rig, uint64_t wr_id, uint32_t offset, uint32_t len_bytes)
{
    VU_EQ(vu_post_recv(rig->ep.qp, wr_id, rig->buf + offset, len_bytes, rig->mr->lkey), 0);
}

void rig_post(struct rig *rig, const struct vu_send *send)
{
    VU_EQ(vu_post_send(rig->ep.qp, send), 0);
}

static bool has_link(const char *name)
{
    const char *link = getenv("SIDEWIRE_LINK");
    return link && !strcmp(link, name);
}

static bool is_over_packets(void)
{
    return has_link("roce") || has_link("iwarp");
}

void rig_bytes_now(const struct rig *rig, uint32_t offset, uint32_t len_bytes, uint8_t value)
{
    for (uint32_t i = offset; i < offset + len_bytes; i++)
        VU_CHECK(rig->buf[i] == value, "byte %u is 0x%02x, not 0x%02x", i, rig->buf[i], value);
}

/* Over TCP a WRITE is complete when it was sent. */
static void wait_for_bytes(const struct rig *rig, uint32_t offset, uint32_t len_bytes,
                           uint8_t value)
{
    const volatile uint8_t *bytes = rig->buf + offset;
    for (int ms = 0; ms < 5000; ms++) {
        uint32_t i = 0;
        while (i < len_bytes && bytes[i] == value)
            i++;
        if (i == len_bytes)
            return;
        vu_sleep_ms(1);
    }
}

void rig_bytes(const struct rig *rig, uint32_t offset, uint32_t len_bytes, uint8_t value)
{
    if (has_link("iwarp"))
        wait_for_bytes(rig, offset, len_bytes, value);
    rig_bytes_now(rig, offset, len_bytes, value);
}

void rig_written(const struct rig *rig, uint32_t offset, uint32_t len_bytes, uint8_t value)
{
    const volatile uint8_t *bytes = rig->buf + offset;
    for (int ms = 0; is_over_packets() && bytes[len_bytes - 1] != value && ms < 5000; ms++)
        vu_sleep_ms(1);
    rig_bytes(rig, offset, len_bytes, value);
}

void rig_settle(void)
{
    if (is_over_packets())
        vu_sleep_ms(100);
}

void sem_idle(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_close(&rig);
}

void sem_two_idle(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_ep second;
    rig_open(&rig, sock, NULL);
    rig_second(&rig, &second);
    vu_barrier(sock);
    vu_ep_destroy(&second);
    rig_close(&rig);
}

static void run_a(int sock, void *arg)
{
    const struct sem_case *one = arg;
    one->a(sock, one->param & ~(SEM_ALONE | SEM_ON_WIRE));
}

static void run_b(int sock, void *arg)
{
    const struct sem_case *one = arg;
    one->b(sock, one->param & ~(SEM_ALONE | SEM_ON_WIRE));
}

#define USAGE                                                                              \
    "usage: semantics [--threads] [--jobs N] [--own-network] [--list] [--except NAME]... " \
    "[NAME...]"

struct options {
    enum vu_mode mode;
    bool list, own_network;
    int jobs;
    int count, except_count;
    char *names[NAMES_MAX], *except[NAMES_MAX];
};

static bool listed(char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static struct options parse(int argc, char **argv)
{
    struct options options = {.mode = VU_PROCESSES, .jobs = 1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0)
            options.mode = VU_THREADS;
        else if (strcmp(argv[i], "--list") == 0)
            options.list = true;
        else if (strcmp(argv[i], "--own-network") == 0)
            options.own_network = true;
        else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc)
            options.jobs = atoi(argv[++i]);
        else if (strcmp(argv[i], "--except") == 0 && i + 1 < argc &&
                 options.except_count < NAMES_MAX)
            options.except[options.except_count++] = argv[++i];
        else if (argv[i][0] != '-' && options.count < NAMES_MAX)
            options.names[options.count++] = argv[i];
        else
            VU_FAIL(USAGE);
    }
    if (options.jobs < 1 || options.jobs > JOBS_MAX)
        VU_FAIL(USAGE);
    return options;
}

static bool is_wanted(const struct options *options, const struct sem_case *one)
{
    if (options->count && !listed(options->names, options->count, one->name))
        return false;
    if (one->param & SEM_PROCESSES && options->mode == VU_THREADS)
        return false;
    if (one->param & SEM_ON_WIRE && !has_link("roce"))
        return false;
    if (has_link("iwarp") && !options->count && !sem_iwarp_has(one->name))
        return false;
    if (has_link("tcp") && !options->count && !sem_tcp_has(one->name))
        return false;
    return !listed(options->except, options->except_count, one->name);
}

/* A case under way, in a process of its own. */
struct job {
    const struct sem_case *one; /* NULL: none */
    const struct options *options;
    uint64_t start_ms;
    pid_t pid;
    int said; /* a file of what it prints, so that cases do not mix */
};

struct tally {
    int run, failed, skipped;
};

static void job_main(int sock, void *arg)
{
    (void)sock;
    const struct job *job = arg;
    bool alone = job->options->own_network || (job->one->param & SEM_ALONE) == SEM_ALONE;
    if (dup2(job->said, STDOUT_FILENO) < 0 || dup2(job->said, STDERR_FILENO) < 0)
        VU_FAIL("dup2: %s", strerror(errno));
    if (alone && !namespace_own_network())
        _exit(VU_SKIPPED);
    _exit(
        vu_run_pair(job->options->mode, run_a, run_b, (void *)(uintptr_t)job->one, CASE_TIMEOUT_S));
}

static void job_start(struct job *job, const struct options *options, const struct sem_case *one)
{
    *job = (struct job){.one = one, .options = options, .start_ms = vu_now_ms()};
    job->said = memfd_create("said", MFD_CLOEXEC);
    VU_CHECK(job->said >= 0, "memfd_create: %s", strerror(errno));
    job->pid = vu_spawn(job_main, -1, job);
}

static void job_end(struct job *job, int status, struct tally *tally)
{
    char text[4096];
    int rc = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    off_t at = 0;
    for (ssize_t n; (n = pread(job->said, text, sizeof(text), at)) > 0; at += n)
        fwrite(text, 1, (size_t)n, stdout);
    close(job->said);
    printf("%-4s %-48s %5llu ms\n",
           rc == 0            ? "ok"
           : rc == VU_SKIPPED ? "skip"
                              : "FAIL",
           job->one->name, (unsigned long long)(vu_now_ms() - job->start_ms));
    tally->run++;
    tally->skipped += rc == VU_SKIPPED;
    tally->failed += rc != 0 && rc != VU_SKIPPED;
    job->one = NULL;
}

static struct job *job_find(struct job *jobs, int count, pid_t pid)
{
    for (int i = 0; i < count; i++)
        if (pid ? jobs[i].one && jobs[i].pid == pid : !jobs[i].one)
            return &jobs[i];
    return NULL;
}

static void one_ends(struct job *jobs, int count, struct tally *tally)
{
    int status;
    pid_t pid = waitpid(-1, &status, 0);
    VU_CHECK(pid > 0, "waitpid: %s", strerror(errno));
    struct job *job = job_find(jobs, count, pid);
    if (job) /* not one that a case has left behind */
        job_end(job, status, tally);
}

static struct tally run_all(const struct options *options)
{
    struct tally tally = {0};
    struct job jobs[JOBS_MAX] = {0};
    int started = 0;
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        for (const struct sem_case *one = tables[t]; one->name; one++) {
            if (!is_wanted(options, one))
                continue;
            if (options->list) {
                puts(one->name);
                continue;
            }
            struct job *job;
            while (!(job = job_find(jobs, options->jobs, 0)))
                one_ends(jobs, options->jobs, &tally);
            job_start(job, options, one);
            started++;
        }
    }
    while (tally.run < started)
        one_ends(jobs, options->jobs, &tally);
    return tally;
}

/* In a child, as there is no way back. */
static bool may_have_own_network(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(!namespace_own_network());
    VU_TRUE(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    struct options options = parse(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (options.own_network && !may_have_own_network()) {
        puts("no networks of their own here: one case at a time");
        options.own_network = false;
        options.jobs = 1;
    }
    struct tally tally = run_all(&options);
    if (options.list)
        return 0;
    printf("%d cases, %d failed, %d skipped\n", tally.run, tally.failed, tally.skipped);
    if (tally.run == 0)
        VU_FAIL("no such case");
    if (tally.failed)
        return 1;
    if (tally.skipped == tally.run)
        vu_skip("no case could run");
    return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: memory that is taken away: B makes the file of its region shorter, or A that of its own.
 * The process that executes a request on it lives, whatever it does with signals, and A is told of
 * an error.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "sem.h"

#define LOST_BYTES (4u << 20)
#define SHORT_BYTES 8192u
#define PATIENCE_MS 20000

enum {
    OPCODE = 0xff,
    NAMED_FILE = 1 << 8,     /* of a tmpfs, instead of a memfd */
    SETS_HANDLER = 1 << 9,   /* after the memory was mapped */
    SETS_DEFAULT = 1 << 10,  /* the same */
    BLOCKS_BEFORE = 1 << 11, /* all signals, before anything else */
    BLOCKS_AFTER = 1 << 12,  /* after the memory was mapped */
    BY_THE_ENGINE = 1 << 13, /* the program sleeps meanwhile */
    GROWS_AGAIN = 1 << 14,   /* the file was made shorter, instead of a full file system */
    FOUND_BEFORE = 1 << 15,  /* by the other thread, before the request is made */
};

enum road { MAPPED, CMA, EXECUTED };

static enum road road_of(void)
{
    const char *rung = getenv("SIDEWIRE_DIRECT"), *link = getenv("SIDEWIRE_LINK");
    if ((link && strcmp(link, "direct") != 0) || (rung && !strcmp(rung, "ring")))
        return EXECUTED;
    return rung && !strcmp(rung, "cma") ? CMA : MAPPED;
}

/* A receive's owner is at fault, and who has the memory that the kernel does not find. */
static enum ibv_wc_status expected(int param)
{
    const enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param & OPCODE);
    const bool is_found = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || road_of() == EXECUTED;
    if (road_of() == MAPPED)
        return IBV_WC_REM_ACCESS_ERR;
    return is_found && opcode != IBV_WR_SEND ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR;
}

static void die_of_it(int number)
{
    (void)number;
    _exit(99);
}

static void block_all(void)
{
    sigset_t all;
    sigfillset(&all);
    VU_EQ(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
}

static void change_signals(int param)
{
    struct sigaction act = {.sa_handler = param & SETS_HANDLER ? die_of_it : SIG_DFL}, old;
    if (param & (SETS_HANDLER | SETS_DEFAULT)) {
        VU_EQ(sigaction(SIGBUS, &act, NULL), 0);
        VU_EQ(sigaction(SIGBUS, NULL, &old), 0);
        VU_TRUE(old.sa_handler == act.sa_handler);
    }
    if (param & BLOCKS_AFTER)
        block_all();
}

/* The engine fetches the peer's file, if it gets a processor. Until then requests go by cma. */
static void await_mapping(void)
{
    char line[512];
    bool found = false;
    for (uint64_t end = vu_now_ms() + PATIENCE_MS; !found; vu_sleep_ms(1)) {
        VU_CHECK(vu_now_ms() < end, "the peer's file is not mapped in %d ms", PATIENCE_MS);
        FILE *maps = fopen("/proc/self/maps", "re");
        VU_TRUE(maps);
        while (!found && fgets(line, sizeof(line), maps))
            found = strstr(line, "/memfd:lost") || strstr(line, "/sidewire-lost-");
        fclose(maps);
    }
}

static void lose_a(int sock, int param)
{
    const enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param & OPCODE);
    const struct rig_attr attr = {.ep = {.channel = param & BY_THE_ENGINE}};
    struct rig rig;
    if (param & BLOCKS_BEFORE)
        block_all();
    rig_open(&rig, sock, &attr);
    uint8_t *big =
        mmap(NULL, LOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = ibv_reg_mr(rig.ep.qp->pd, big, LOST_BYTES, VU_ACCESS_ALL);
    struct vu_key key = vu_trade_keys(sock, mr);
    struct vu_send send =
        rig_send(&rig, opcode, 1, 0, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : SHORT_BYTES);
    send.remote = key.addr;
    send.rkey = key.rkey;
    for (int i = 0; i < 3; i++) { /* the mapping is remembered by then */
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        if (i == 0 && road_of() == MAPPED)
            await_mapping();
    }
    change_signals(param);
    vu_barrier(sock);
    vu_barrier(sock);
    if (param & BY_THE_ENGINE) { /* what is posted in one go, is there still */
        send.addr = big;
        send.lkey = mr->lkey;
        send.len_bytes = LOST_BYTES;
        VU_EQ(ibv_req_notify_cq(rig.ep.scq, 0), 0);
        VU_EQ(vu_post_send(rig.ep.qp, &send), 0);
        VU_TRUE(vu_cq_event(rig.ep.channel, PATIENCE_MS));
    } else {
        VU_EQ(vu_post_send(rig.ep.qp, &send), 0);
    }
    vu_expect(rig.ep.scq, 1, expected(param));
    vu_barrier(sock);
    ibv_dereg_mr(mr);
    munmap(big, LOST_BYTES);
    rig_close(&rig);
}

static int open_file(int param)
{
    char path[] = "/dev/shm/sidewire-lost-XXXXXX";
    const int fd = param & NAMED_FILE ? mkstemp(path) : memfd_create("lost", MFD_CLOEXEC);
    if (param & NAMED_FILE)
        unlink(path);
    VU_TRUE(fd >= 0 && ftruncate(fd, LOST_BYTES) == 0);
    return fd;
}

static void lose_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    const int fd = open_file(param);
    uint8_t *bytes = mmap(NULL, LOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct ibv_mr *mr = ibv_reg_mr(rig.ep.qp->pd, bytes, LOST_BYTES, VU_ACCESS_ALL);
    VU_TRUE(bytes != MAP_FAILED && mr);
    for (uint64_t i = 0; i < 8; i++)
        VU_EQ(vu_post_recv(rig.ep.qp, i, bytes, LOST_BYTES, mr->lkey), 0);
    vu_trade_keys(sock, mr);
    vu_barrier(sock);
    VU_EQ(ftruncate(fd, param & BY_THE_ENGINE ? LOST_BYTES / 2 : 0), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    close(fd);
    ibv_dereg_mr(mr);
    munmap(bytes, LOST_BYTES);
    rig_close(&rig);
}

/* Messages of a shared queue are placed by its owner. */
static void shared_a(int sock, int param)
{
    struct rig rig;
    struct vu_ep ep;
    rig_open(&rig, sock, NULL);
    rig_second(&rig, &ep);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, (uint32_t)param & 0xffff);
    for (int i = 0; i < 2; i++) {
        vu_barrier(sock);
        VU_EQ(vu_post_send(ep.qp, &send), 0);
        vu_expect(ep.scq, 1, i ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    rig_close(&rig);
}

static void shared_b(int sock, int param)
{
    struct rig rig;
    struct vu_ep ep;
    rig_open(&rig, sock, NULL);
    const int fd = open_file(param);
    uint8_t *bytes = mmap(NULL, LOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct ibv_mr *mr = ibv_reg_mr(rig.ep.qp->pd, bytes, LOST_BYTES, VU_ACCESS_ALL);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(rig.dev.pd, &init);
    VU_TRUE(bytes != MAP_FAILED && mr && srq);
    const struct vu_ep_attr attr = {.srq = srq};
    vu_ep_create(&rig.dev, &attr, &ep);
    vu_connect(&ep, sock, NULL);
    for (uint64_t i = 0; i < 2; i++)
        VU_EQ(vu_post_srq(srq, i, bytes, SHORT_BYTES, mr->lkey), 0);
    vu_barrier(sock);
    vu_expect(ep.rcq, 0, IBV_WC_SUCCESS);
    VU_EQ(ftruncate(fd, 0), 0);
    vu_barrier(sock);
    vu_expect(ep.rcq, 1, IBV_WC_LOC_PROT_ERR);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_destroy_srq(srq), 0);
    close(fd);
    ibv_dereg_mr(mr);
    munmap(bytes, LOST_BYTES);
    rig_close(&rig);
}

static sigjmp_buf way_out;

static void leave(int number)
{
    (void)number;
    siglongjmp(way_out, 1);
}

/* The program's own use of such memory is its own affair. */
static bool gets_the_signal(volatile uint8_t *at)
{
    const struct sigaction act = {.sa_handler = leave};
    VU_EQ(sigaction(SIGBUS, &act, NULL), 0);
    if (sigsetjmp(way_out, 1))
        return true;
    *at = 1;
    return false;
}

/* A's own buffer: its requests have a local error. B looks on. */
static void own_a(int sock, int param)
{
    const enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param & OPCODE);
    const struct rig_attr attr = {.ep = {.channel = param & BY_THE_ENGINE}};
    struct rig rig;
    if (param & BLOCKS_BEFORE)
        block_all();
    rig_open(&rig, sock, &attr);
    const int fd = open_file(param);
    uint8_t *bytes = mmap(NULL, LOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct ibv_mr *mr = ibv_reg_mr(rig.ep.qp->pd, bytes, LOST_BYTES, VU_ACCESS_ALL);
    VU_TRUE(bytes != MAP_FAILED && mr);
    struct vu_send send =
        rig_send(&rig, opcode, 1, 0, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : SHORT_BYTES);
    send.addr = bytes;
    send.lkey = mr->lkey;
    memset(bytes, 0xa1, SHORT_BYTES);
    vu_barrier(sock);
    for (int i = 0; i < 3; i++) {
        VU_EQ(vu_post_send(rig.ep.qp, &send), 0);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    }
    VU_EQ(ftruncate(fd, 0), 0);
    VU_EQ(vu_post_send(rig.ep.qp, &send), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_LOC_PROT_ERR);
    if (!(param & BLOCKS_BEFORE))
        VU_TRUE(gets_the_signal(bytes));
    vu_barrier(sock);
    close(fd);
    ibv_dereg_mr(mr);
    munmap(bytes, LOST_BYTES);
    rig_close(&rig);
}

static void own_b(int sock, int param)
{
    struct rig rig;
    (void)param;
    rig_open(&rig, sock, NULL);
    for (uint64_t i = 0; i < 8; i++)
        rig_recv(&rig, i, 16384, SHORT_BYTES);
    vu_barrier(sock);
    vu_barrier(sock);
    rig_close(&rig);
}

/* ---- pages that are missing for a while ---- */

#define HOLE_AT (2u << 20)
#define FULL_BYTES (64u << 10) /* of the file system */

/* With a hole at HOLE_AT for which there is no room. `filler` takes the room. */
static int open_in_full_fs(int *filler)
{
    char top[] = "/tmp/sidewire-full-XXXXXX", path[64], size[32], block[4096] = {0};
    snprintf(size, sizeof(size), "size=%u", FULL_BYTES);
    if (!mkdtemp(top) || unshare(CLONE_NEWNS) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("sidewire-full", top, "tmpfs", 0, size)) {
        rmdir(top);
        vu_skip("no file system can be mounted here");
    }
    snprintf(path, sizeof(path), "%s/sidewire-lost-hole", top);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    snprintf(path, sizeof(path), "%s/filler", top);
    *filler = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    VU_TRUE(fd >= 0 && *filler >= 0 && ftruncate(fd, LOST_BYTES) == 0);
    for (int i = 0; i < 4; i++)
        VU_EQ(pwrite(fd, block, sizeof(block), i * 4096), 4096);
    while (write(*filler, block, sizeof(block)) > 0)
        ;
    umount2(top, MNT_DETACH);
    rmdir(top);
    return fd;
}

static struct vu_send hole_send(struct rig *rig, const struct vu_key *key, int param, uint64_t at)
{
    const enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param & OPCODE);
    struct vu_send send =
        rig_send(rig, opcode, 1, 0, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : SHORT_BYTES);
    send.remote = key->addr + at;
    send.rkey = key->rkey;
    send.compare_add = 0xa1;
    return send;
}

/* By a queue pair that nothing may happen to. */
static void serve_elsewhere(struct vu_ep *good, struct rig *rig, const struct vu_key *key)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    const int count = vu_is_iwarp(&rig->dev) ? 2 : 3;
    for (int i = 0; i < count; i++) {
        const struct vu_send send = hole_send(rig, key, (int)opcodes[i], 4096);
        VU_EQ(vu_post_send(good->qp, &send), 0);
        vu_expect(good->scq, 1, IBV_WC_SUCCESS);
    }
}

/* Two queue pairs: one fails at pages that are missing, the other one notices nothing, and finds
 * these pages once they are there. */
static void hole_a(int sock, int param)
{
    struct rig rig;
    struct vu_ep good;
    rig_open(&rig, sock, NULL);
    rig_second(&rig, &good);
    memset(rig.buf, 0xa1, SHORT_BYTES);
    const struct vu_key key = vu_trade_keys(sock, rig.mr);
    serve_elsewhere(&good, &rig, &key);
    if (road_of() == MAPPED)
        await_mapping();
    serve_elsewhere(&good, &rig, &key);
    vu_barrier(sock);
    vu_barrier(sock);
    const struct vu_send send = hole_send(&rig, &key, param, HOLE_AT);
    VU_EQ(vu_post_send(rig.ep.qp, &send), 0);
    serve_elsewhere(&good, &rig, &key);
    vu_expect(rig.ep.scq, 1, expected(param));
    serve_elsewhere(&good, &rig, &key);
    vu_barrier(sock);
    vu_barrier(sock);
    memset(rig.buf, 0xa1, SHORT_BYTES);
    VU_EQ(vu_post_send(good.qp, &send), 0);
    vu_expect(good.scq, 1, IBV_WC_SUCCESS);
    if (send.opcode != IBV_WR_RDMA_WRITE)
        rig_bytes(&rig, 0, send.len_bytes, 0);
    serve_elsewhere(&good, &rig, &key);
    vu_barrier(sock);
    vu_ep_destroy(&good);
    rig_close(&rig);
}

static void hole_b(int sock, int param)
{
    struct rig rig;
    struct vu_ep good;
    int filler = -1;
    const int fd = param & GROWS_AGAIN ? open_file(param) : open_in_full_fs(&filler);
    rig_open(&rig, sock, NULL);
    rig_second(&rig, &good);
    uint8_t *bytes = mmap(NULL, LOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct ibv_mr *mr = ibv_reg_mr(rig.ep.qp->pd, bytes, LOST_BYTES, VU_ACCESS_ALL);
    VU_TRUE(bytes != MAP_FAILED && mr);
    vu_trade_keys(sock, mr);
    vu_barrier(sock);
    if (param & GROWS_AGAIN)
        VU_EQ(ftruncate(fd, 16384), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_EQ(param & GROWS_AGAIN ? ftruncate(fd, LOST_BYTES) : ftruncate(filler, 0), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    const enum ibv_wr_opcode opcode = (enum ibv_wr_opcode)(param & OPCODE);
    const uint32_t changed =
        opcode == IBV_WR_RDMA_WRITE ? SHORT_BYTES : opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    static uint8_t is[SHORT_BYTES];
    VU_EQ(pread(fd, is, sizeof(is), HOLE_AT), SHORT_BYTES);
    for (uint32_t i = 0; i < SHORT_BYTES; i++)
        VU_EQ(is[i], i < changed ? 0xa1 : 0);
    vu_ep_destroy(&good);
    close(fd);
    close(filler);
    ibv_dereg_mr(mr);
    munmap(bytes, LOST_BYTES);
    rig_close(&rig);
}

/* ---- a page that another thread has found missing ---- */

#define PAGE 4096u

static struct {
    uint8_t *view; /* by which requests access A's pages */
    int fd;
    atomic_int state; /* 1: the other thread shall find the first page missing; 2: it has */
} found;

/* The other mapping of A's file. */
static uint8_t *find_view(const uint8_t *own)
{
    char line[512];
    uint8_t *view = NULL;
    FILE *maps = fopen("/proc/self/maps", "re");
    VU_TRUE(maps);
    while (!view && fgets(line, sizeof(line), maps)) {
        uint8_t *start = (uint8_t *)strtoull(line, NULL, 16);
        if (strstr(line, "/memfd:lost") && start != own)
            view = start;
    }
    fclose(maps);
    VU_TRUE(view);
    return view;
}

/* Its access leaves other memory in the place of the page, which is there again by then. */
static void *find_missing(void *arg)
{
    static uint8_t bytes[2 * PAGE];
    memset(bytes, 0xa1, sizeof(bytes));
    while (atomic_load(&found.state) != 1)
        sched_yield();
    VU_EQ(ftruncate(found.fd, 0), 0);
    (void)*(volatile uint8_t *)found.view;
    VU_EQ(ftruncate(found.fd, LOST_BYTES), 0);
    VU_EQ(pwrite(found.fd, bytes, sizeof(bytes), 0), sizeof(bytes));
    atomic_store(&found.state, 2);
    return arg;
}

static void let_find(void)
{
    atomic_store(&found.state, 1);
    while (atomic_load(&found.state) != 2)
        sched_yield();
}

/* A reader of the second page has looked at the first one. */
static void on_second_page(int number)
{
    (void)number;
    let_find();
    mprotect(found.view + PAGE, PAGE, PROT_READ | PROT_WRITE);
}

/* A WRITE from two pages. */
static void found_a(int sock, int param)
{
    struct rig rig;
    pthread_t thread;
    rig_open(&rig, sock, NULL);
    found.fd = open_file(param);
    uint8_t *bytes = mmap(NULL, LOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, found.fd, 0);
    struct ibv_mr *mr = ibv_reg_mr(rig.ep.qp->pd, bytes, LOST_BYTES, VU_ACCESS_ALL);
    VU_TRUE(bytes != MAP_FAILED && mr);
    memset(bytes, 0xa1, 2 * PAGE);
    found.view = find_view(bytes);
    const struct sigaction act = {.sa_handler = on_second_page};
    VU_EQ(sigaction(SIGSEGV, &act, NULL), 0);
    struct vu_send first = rig_send(&rig, IBV_WR_RDMA_WRITE, 0, 2 * PAGE, PAGE);
    rig_post(&rig, &first); /* from then on who posts also sends, and takes the signal */
    vu_expect(rig.ep.scq, 0, IBV_WC_SUCCESS);
    VU_EQ(pthread_create(&thread, NULL, find_missing, NULL), 0);
    struct ibv_sge sges[] = {{(uintptr_t)bytes, 2048, mr->lkey},
                             {(uintptr_t)bytes + PAGE, 2048, mr->lkey}};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = sges,
                             .num_sge = 2,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {rig.peer.addr, rig.peer.rkey}},
                       *bad;
    if (param & FOUND_BEFORE)
        let_find();
    else
        VU_EQ(mprotect(found.view + PAGE, PAGE, PROT_NONE), 0);
    VU_EQ(ibv_post_send(rig.ep.qp, &wr, &bad), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    pthread_join(thread, NULL);
    vu_barrier(sock);
    vu_barrier(sock);
    close(found.fd);
    ibv_dereg_mr(mr);
    munmap(bytes, LOST_BYTES);
    rig_close(&rig);
}

static void found_b(int sock, int param)
{
    struct rig rig;
    (void)param;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_bytes(&rig, 0, PAGE, 0xa1);
    vu_barrier(sock);
    rig_close(&rig);
}

#define HOLE(name, param)                                               \
    {                                                                   \
        "missing_pages__" name, hole_a, hole_b, SEM_PROCESSES | (param) \
    }
#define OWN(name, param)                                                   \
    {                                                                      \
        "own_memory__lost_to_" name, own_a, own_b, SEM_PROCESSES | (param) \
    }
#define LOST(name, param)                                                     \
    {                                                                         \
        "peer_memory__lost_to_" name, lose_a, lose_b, SEM_PROCESSES | (param) \
    }

const struct sem_case sem_lost[] = {
    LOST("a_write", IBV_WR_RDMA_WRITE),
    LOST("a_read", IBV_WR_RDMA_READ),
    LOST("an_atomic", IBV_WR_ATOMIC_FETCH_AND_ADD),
    LOST("a_send", IBV_WR_SEND),
    LOST("a_write_to_tmpfs", IBV_WR_RDMA_WRITE | NAMED_FILE),
    LOST("a_read_of_tmpfs", IBV_WR_RDMA_READ | NAMED_FILE),
    LOST("a_write_by_the_engine", IBV_WR_RDMA_WRITE | BY_THE_ENGINE),
    LOST("a_read_by_the_engine", IBV_WR_RDMA_READ | BY_THE_ENGINE | NAMED_FILE),
    LOST("who_sets_a_handler", IBV_WR_RDMA_WRITE | SETS_HANDLER),
    LOST("who_sets_the_default", IBV_WR_RDMA_READ | SETS_DEFAULT),
    LOST("who_blocks_all_signals", IBV_WR_RDMA_WRITE | BLOCKS_BEFORE),
    LOST("who_blocks_all_signals_later", IBV_WR_RDMA_READ | BLOCKS_AFTER),
    LOST("who_does_all_of_that", IBV_WR_SEND | BLOCKS_BEFORE | SETS_HANDLER | BLOCKS_AFTER),
    {"peer_memory__lost_to_a_shared_queue", shared_a, shared_b, SEM_PROCESSES | SHORT_BYTES},
    {"peer_memory__lost_to_a_shared_queue_in_short", shared_a, shared_b, SEM_PROCESSES | 64},
    HOLE("write_to_a_full_fs", IBV_WR_RDMA_WRITE),
    HOLE("read_of_a_full_fs", IBV_WR_RDMA_READ),
    HOLE("atomic_in_a_full_fs", IBV_WR_ATOMIC_FETCH_AND_ADD),
    HOLE("write_until_it_grows", IBV_WR_RDMA_WRITE | GROWS_AGAIN),
    HOLE("read_until_it_grows", IBV_WR_RDMA_READ | GROWS_AGAIN | NAMED_FILE),
    OWN("a_write", IBV_WR_RDMA_WRITE),
    OWN("a_read", IBV_WR_RDMA_READ | NAMED_FILE),
    OWN("an_atomic", IBV_WR_ATOMIC_FETCH_AND_ADD),
    OWN("a_send", IBV_WR_SEND),
    OWN("who_blocks_all_signals", IBV_WR_RDMA_READ | BLOCKS_BEFORE),
    {"own_memory__another_thread_finds_it_missing", found_a, found_b, SEM_PROCESSES},
    {"own_memory__another_thread_found_it_missing", found_a, found_b, SEM_PROCESSES | FOUND_BEFORE},
    {0},
};

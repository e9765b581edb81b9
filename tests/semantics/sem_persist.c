/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: FLUSH for persistence (IBTA Vol1 annex A19): on files it has been synced when it has
 * completed, and memory that forgets does not get the right. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sidewire/flush.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sem.h"

#define BYTES (128u * 1024)
#define WRITTEN 0xa1
#define SLOW_MS 2500        /* beyond twice the timers that the tests' queue pairs have */
#define SEEN_DIRTY_MS 40000 /* of the minute that a case has */
#define RIGHTS (VU_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)

static void open_admitting(struct rig *rig, int sock)
{
    const struct rig_attr attr = {.ep = flush_ep, .conn = flush_conn};
    rig_open(rig, sock, &attr);
}

/* --- the side with the file --- */

static uint8_t *map_file(size_t len_bytes)
{
    char path[] = "sidewire-persist-XXXXXX";
    struct statfs fs;
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || fstatfs(fd, &fs) || fs.f_type == 0x01021994 /* tmpfs */)
        vu_skip("no file of a disk can be made here");
    unlink(path);
    VU_EQ(ftruncate(fd, (off_t)len_bytes), 0);
    uint8_t *at = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    VU_CHECK(at != MAP_FAILED, "mmap: %s", strerror(errno));
    close(fd);
    for (size_t i = 0; i < len_bytes; i += 4096) /* so that smaps counts all pages */
        *(volatile uint8_t *)(at + i);
    return at;
}

static void tell_key(int sock, const struct vu_key *key)
{
    vu_put(sock, key, sizeof(*key));
}

/* What it shares with the other side. */
struct file_side {
    struct rig rig;
    uint8_t *file;
    struct ibv_mr *mr; /* of the file */
};

static void open_file_side(struct file_side *side, int sock)
{
    open_admitting(&side->rig, sock);
    side->file = map_file(BYTES);
    side->mr = vu_reg(&side->rig.dev, side->file, BYTES, RIGHTS | IBV_ACCESS_MW_BIND);
}

static void tell_region(const struct file_side *side)
{
    const struct vu_key key = {(uintptr_t)side->file, BYTES, side->mr->rkey};
    tell_key(side->rig.sock, &key);
}

static void close_file_side(struct file_side *side)
{
    if (side->mr)
        VU_EQ(ibv_dereg_mr(side->mr), 0);
    munmap(side->file, BYTES);
    rig_close(&side->rig);
}

/* The part of the mapping at `at` that is not on disk yet, in KiB. */
static unsigned long dirty_kib(const uint8_t *at)
{
    unsigned long start, kib, sum = 0;
    char line[512];
    bool here = false;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    VU_CHECK(smaps, "no smaps");
    while (fgets(line, sizeof(line), smaps)) {
        if (sscanf(line, "%lx-%*x %*s", &start) == 1 && strchr(line, '-') && !strstr(line, "kB"))
            here = start == (uintptr_t)at;
        else if (here && (sscanf(line, "Shared_Dirty: %lu", &kib) == 1 ||
                          sscanf(line, "Private_Dirty: %lu", &kib) == 1))
            sum += kib;
    }
    fclose(smaps);
    return sum;
}

/* --- the side that flushes --- */

/* Its key comes from the other side. */
static struct vu_key open_flushing(struct rig *rig, int sock)
{
    struct vu_key key;
    open_admitting(rig, sock);
    vu_get(sock, &key, sizeof(key));
    return key;
}

static int post_flush(struct rig *rig, uint64_t wr_id, const struct vu_key *key, uint8_t level)
{
    return rig_flush(rig, wr_id, key, IBV_FLUSH_PERSISTENT, level);
}

static void post_write(struct rig *rig, uint64_t wr_id, const struct vu_key *key,
                       uint32_t len_bytes)
{
    memset(rig->buf, WRITTEN, len_bytes);
    struct vu_send write = rig_send(rig, IBV_WR_RDMA_WRITE, wr_id, 0, len_bytes);
    write.remote = key->addr;
    write.rkey = key->rkey;
    rig_post(rig, &write);
}

/* --- cases --- */

/* A completed WRITE leaves the pages dirty, a completed FLUSH does not. */
static void synced_a(int sock, int level)
{
    struct rig rig;
    struct vu_key key = open_flushing(&rig, sock);
    for (uint8_t is_dirty = 0; !is_dirty; vu_get(sock, &is_dirty, sizeof(is_dirty))) {
        post_write(&rig, 1, &key, BYTES);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    VU_EQ(post_flush(&rig, 2, &key, (uint8_t)level), 0);
    VU_EQ(vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Lets the peer write until what it wrote is seen to wait for the disk: now and then, and for as
 * long as much else waits for the disk, the kernel writes it back by itself before anybody looks.
 */
static void see_dirty(int sock, const uint8_t *file)
{
    const uint64_t start = vu_now_ms();
    int tries = 0;
    for (uint8_t is_dirty = 0; !is_dirty; tries++) {
        VU_TRUE(vu_now_ms() - start < SEEN_DIRTY_MS);
        vu_sleep_ms(tries < 20 ? 0 : 20);
        vu_barrier(sock);
        is_dirty = dirty_kib(file) == BYTES / 1024;
        vu_put(sock, &is_dirty, sizeof(is_dirty));
    }
}

static void synced_b(int sock, int level)
{
    (void)level;
    struct file_side side;
    open_file_side(&side, sock);
    tell_region(&side);
    see_dirty(sock, side.file);
    vu_barrier(sock); /* flushed */
    VU_EQ(dirty_kib(side.file), 0);
    VU_EQ(side.file[0], WRITTEN);
    VU_EQ(side.file[BYTES - 1], WRITTEN);
    close_file_side(&side);
}

/* A log: the record, made persistent; then the word that says that it is there, likewise. */
static void log_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key = open_flushing(&rig, sock);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig.ep.qp);
    for (uint64_t n = 1; n <= 20; n++) {
        memset(rig.buf, (int)n, 4096);
        ibv_wr_start(ex);
        ex->wr_flags = 0;
        ibv_wr_rdma_write(ex, key.rkey, key.addr + n * 4096);
        ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf, 4096);
        ibv_wr_flush(ex, key.rkey, key.addr + n * 4096, 4096, IBV_FLUSH_PERSISTENT,
                     IBV_FLUSH_RANGE);
        ibv_wr_atomic_write(ex, key.rkey, key.addr, &n);
        ex->wr_id = n;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_flush(ex, key.rkey, key.addr, 8, IBV_FLUSH_PERSISTENT | IBV_FLUSH_GLOBAL,
                     IBV_FLUSH_RANGE);
        VU_EQ(ibv_wr_complete(ex), 0);
        vu_expect(rig.ep.scq, n, IBV_WC_SUCCESS);
        vu_put(sock, &n, sizeof(n));
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void log_b(int sock, int param)
{
    (void)param;
    struct file_side side;
    open_file_side(&side, sock);
    tell_region(&side);
    for (int i = 0; i < 20; i++) {
        uint64_t n;
        vu_get(sock, &n, sizeof(n));
        VU_EQ(*(volatile uint64_t *)side.file, n);
        VU_EQ(side.file[n * 4096], (uint8_t)n);
        VU_EQ(dirty_kib(side.file), 0);
        vu_barrier(sock);
    }
    close_file_side(&side);
}

/* The FLUSH ends with what syncing meets with. */
static void msync_fails(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    VU_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    VU_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void error_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key = open_flushing(&rig, sock);
    post_write(&rig, 1, &key, BYTES);
    VU_EQ(post_flush(&rig, 2, &key, IBV_FLUSH_RANGE), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 2, IBV_WC_REM_OP_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void error_b(int sock, int param)
{
    (void)param;
    struct file_side side;
    msync_fails(); /* before any thread is there */
    open_file_side(&side, sock);
    tell_region(&side);
    VU_TRUE(vu_async_event(side.rig.dev.ctx, IBV_EVENT_QP_FATAL, 20000));
    vu_barrier(sock);
    close_file_side(&side);
}

/* A disk that has much to do. Where the test may not have it, the disk is as fast as it is. */
static void *slow_disk(void *arg)
{
    const int fd = (int)(intptr_t)arg;
    struct seccomp_notif call = {0};
    while (!ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &call)) {
        struct seccomp_notif_resp answer = {.id = call.id,
                                            .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        vu_sleep_ms(SLOW_MS);
        VU_EQ(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer), 0);
        memset(&call, 0, sizeof(call));
    }
    return NULL;
}

static void msync_is_slow(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    pthread_t thread;
    VU_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    const long fd =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (fd < 0)
        vu_skip("no notifications of seccomp here");
    VU_EQ(pthread_create(&thread, NULL, slow_disk, (void *)(intptr_t)fd), 0);
    pthread_detach(thread);
}

/* A FLUSH waits for the disk longer than the timers of its queue pair have. */
static void slow_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key = open_flushing(&rig, sock);
    const uint64_t begun_ms = vu_now_ms();
    post_write(&rig, 1, &key, BYTES);
    VU_EQ(post_flush(&rig, 2, &key, IBV_FLUSH_RANGE), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    VU_TRUE(vu_now_ms() - begun_ms >= SLOW_MS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void slow_b(int sock, int param)
{
    (void)param;
    struct file_side side;
    msync_is_slow();
    open_file_side(&side, sock);
    tell_region(&side);
    vu_barrier(sock);
    VU_EQ(side.file[BYTES - 1], WRITTEN);
    close_file_side(&side);
}

/* The region goes while it is flushed: the request ends one way or the other. */
static void dereg_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct ibv_wc wc;
    struct vu_key key = open_flushing(&rig, sock);
    post_write(&rig, 1, &key, BYTES);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(post_flush(&rig, 2, &key, IBV_FLUSH_MR), 0);
    vu_barrier(sock);
    VU_EQ(vu_poll(rig.ep.scq, &wc, 1, 20000), 1);
    VU_CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR, "%s",
             ibv_wc_status_str(wc.status));
    vu_barrier(sock);
    rig_close(&rig);
}

static void dereg_b(int sock, int param)
{
    (void)param;
    struct file_side side;
    open_file_side(&side, sock);
    tell_region(&side);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(side.mr), 0);
    side.mr = NULL;
    vu_barrier(sock);
    close_file_side(&side);
}

/* Through a window, which may give the right if the region has it. */
static void window_b(int sock, int param)
{
    (void)param;
    struct file_side side;
    open_file_side(&side, sock);
    struct ibv_mw *mw = ibv_alloc_mw(side.rig.dev.pd, IBV_MW_TYPE_2);
    VU_CHECK(mw, "ibv_alloc_mw: %s", strerror(errno));
    struct ibv_mw_bind_info info = {side.mr, (uintptr_t)side.file, BYTES,
                                    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_PERSISTENT};
    struct ibv_send_wr *bad, bind = {.wr_id = 1,
                                     .opcode = IBV_WR_BIND_MW,
                                     .send_flags = IBV_SEND_SIGNALED,
                                     .bind_mw = {mw, ibv_inc_rkey(mw->rkey), info}};
    VU_EQ(ibv_post_send(side.rig.ep.qp, &bind, &bad), 0);
    vu_expect(side.rig.ep.scq, 1, IBV_WC_SUCCESS);
    const struct vu_key key = {(uintptr_t)side.file, BYTES, bind.bind_mw.rkey};
    tell_key(sock, &key);
    see_dirty(sock, side.file);
    vu_barrier(sock); /* flushed */
    VU_EQ(dirty_kib(side.file), 0);
    VU_EQ(ibv_dealloc_mw(mw), 0);
    close_file_side(&side);
}

static bool admits(struct vu_dev *dev, void *at, int flags, int fd)
{
    at = at ? at : mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, fd, 0);
    VU_TRUE(at != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(dev->pd, at, 4096, RIGHTS);
    if (mr)
        VU_EQ(ibv_dereg_mr(mr), 0);
    else
        VU_EQ(errno, EINVAL);
    return mr;
}

static void memory_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    open_admitting(&rig, sock);
    uint8_t *file = map_file(4096);
    int memfd = memfd_create("test", MFD_CLOEXEC);
    VU_EQ(ftruncate(memfd, 4096), 0);
    VU_TRUE(admits(&rig.dev, file, 0, -1));
    VU_TRUE(!admits(&rig.dev, rig.buf, 0, -1));
    VU_TRUE(!admits(&rig.dev, NULL, MAP_SHARED, memfd));
    VU_TRUE(!admits(&rig.dev, NULL, MAP_PRIVATE, memfd));
    VU_TRUE(!admits(&rig.dev, NULL, MAP_SHARED | MAP_ANONYMOUS, -1));
    /* Nor later; and the region stays what it was. */
    VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS),
          IBV_REREG_MR_ERR_INPUT);
    VU_EQ(errno, EINVAL);
    post_write(&rig, 1, &rig.peer, 64);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void quiet_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    open_admitting(&rig, sock);
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_persist[] = {
    {"persist__range_is_synced", synced_a, synced_b, IBV_FLUSH_RANGE},
    {"persist__region_is_synced", synced_a, synced_b, IBV_FLUSH_MR},
    {"persist__log_in_order", log_a, log_b, 0},
    {"persist__error_of_the_disk", error_a, error_b, SEM_PROCESSES},
    {"persist__a_slow_disk", slow_a, slow_b, SEM_PROCESSES},
    {"persist__deregistered_meanwhile", dereg_a, dereg_b, 0},
    {"persist__through_a_window", synced_a, window_b, IBV_FLUSH_RANGE},
    {"persist__only_memory_that_has_it", memory_a, quiet_b, 0},
    {0},
};

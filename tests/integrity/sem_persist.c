/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: FLUSH for persistence (IBTA Vol1 annex A19): on files it has been synced when it has
 * completed, and memory that forgets does not get the right. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sidewire/flush.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sem.h"

#define BYTES (128u * 1024)
#define WRITTEN 0xa1
#define RIGHTS (VU_ACCESS_ALL | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)

static const struct rig_attr admitting = {
    .ep = {.extended = true, .send_ops = IBV_QP_EX_WITH_FLUSH},
    .conn = {.access = RIGHTS,
             .rd_atomic = 8,
             .dest_rd_atomic = 8,
             .timeout = 14,
             .retry_cnt = 7,
             .rnr_retry = 7,
             .min_rnr_timer = 12},
};

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

static void tell_key(int sock, const struct ibv_mr *mr)
{
    struct vu_key key = {(uintptr_t)mr->addr, mr->length, mr->rkey};
    vu_put(sock, &key, sizeof(key));
}

/* Of the mapping at `at`: how much is not on disk yet, in KiB. */
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

static int post_flush(struct rig *rig, uint64_t wr_id, const struct vu_key *key, uint8_t level)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig->ep.qp);
    ibv_wr_start(ex);
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_flush(ex, key->rkey, key->addr, key->len_bytes, IBV_FLUSH_PERSISTENT, level);
    return ibv_wr_complete(ex);
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
    struct vu_key key;
    rig_open(&rig, sock, &admitting);
    vu_get(sock, &key, sizeof(key));
    post_write(&rig, 1, &key, BYTES);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock); /* written */
    vu_barrier(sock); /* and seen to be dirty */
    VU_EQ(post_flush(&rig, 2, &key, (uint8_t)level), 0);
    VU_EQ(vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
    vu_barrier(sock);
    rig_close(&rig);
}

static void synced_b(int sock, int level)
{
    (void)level;
    struct rig rig;
    rig_open(&rig, sock, &admitting);
    uint8_t *file = map_file(BYTES);
    struct ibv_mr *mr = vu_reg(&rig.dev, file, BYTES, RIGHTS);
    tell_key(sock, mr);
    vu_barrier(sock);
    VU_EQ(dirty_kib(file), BYTES / 1024);
    vu_barrier(sock);
    vu_barrier(sock); /* flushed */
    VU_EQ(dirty_kib(file), 0);
    VU_EQ(file[0], WRITTEN);
    VU_EQ(file[BYTES - 1], WRITTEN);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(file, BYTES);
    rig_close(&rig);
}

/* A log: the record, made persistent; then the word that says that it is there, likewise. */
static void log_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key;
    rig_open(&rig, sock, &admitting);
    vu_get(sock, &key, sizeof(key));
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
    struct rig rig;
    rig_open(&rig, sock, &admitting);
    uint8_t *file = map_file(BYTES);
    struct ibv_mr *mr = vu_reg(&rig.dev, file, BYTES, RIGHTS);
    tell_key(sock, mr);
    for (int i = 0; i < 20; i++) {
        uint64_t n;
        vu_get(sock, &n, sizeof(n));
        VU_EQ(*(volatile uint64_t *)file, n);
        VU_EQ(file[n * 4096], (uint8_t)n);
        VU_EQ(dirty_kib(file), 0);
        vu_barrier(sock);
    }
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(file, BYTES);
    rig_close(&rig);
}

/* What syncing meets with is what the FLUSH ends with. */
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
    struct vu_key key;
    rig_open(&rig, sock, &admitting);
    vu_get(sock, &key, sizeof(key));
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
    struct rig rig;
    msync_fails(); /* before any thread is there */
    rig_open(&rig, sock, &admitting);
    uint8_t *file = map_file(BYTES);
    struct ibv_mr *mr = vu_reg(&rig.dev, file, BYTES, RIGHTS);
    tell_key(sock, mr);
    VU_TRUE(vu_async_event(rig.dev.ctx, IBV_EVENT_QP_FATAL, 5000));
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(file, BYTES);
    rig_close(&rig);
}

/* The region goes while it is flushed: the request ends one way or the other. */
static void dereg_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key;
    struct ibv_wc wc;
    rig_open(&rig, sock, &admitting);
    vu_get(sock, &key, sizeof(key));
    post_write(&rig, 1, &key, BYTES);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(post_flush(&rig, 2, &key, IBV_FLUSH_MR), 0);
    vu_barrier(sock);
    VU_EQ(vu_poll(rig.ep.scq, &wc, 1, 5000), 1);
    VU_CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR, "%s",
             ibv_wc_status_str(wc.status));
    vu_barrier(sock);
    rig_close(&rig);
}

static void dereg_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, &admitting);
    uint8_t *file = map_file(BYTES);
    struct ibv_mr *mr = vu_reg(&rig.dev, file, BYTES, RIGHTS);
    tell_key(sock, mr);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(file, BYTES);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Through a window, which may give the right if the region has it. */
static void window_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, &admitting);
    uint8_t *file = map_file(BYTES);
    struct ibv_mr *mr = vu_reg(&rig.dev, file, BYTES, RIGHTS | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(rig.dev.pd, IBV_MW_TYPE_2);
    VU_CHECK(mw, "ibv_alloc_mw: %s", strerror(errno));
    struct ibv_mw_bind_info info = {mr, (uintptr_t)file, BYTES,
                                    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_PERSISTENT};
    struct ibv_send_wr *bad, bind = {.wr_id = 1,
                                     .opcode = IBV_WR_BIND_MW,
                                     .send_flags = IBV_SEND_SIGNALED,
                                     .bind_mw = {mw, ibv_inc_rkey(mw->rkey), info}};
    VU_EQ(ibv_post_send(rig.ep.qp, &bind, &bad), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    struct vu_key key = {(uintptr_t)file, BYTES, bind.bind_mw.rkey};
    vu_put(sock, &key, sizeof(key));
    vu_barrier(sock);
    VU_EQ(dirty_kib(file), BYTES / 1024);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_EQ(dirty_kib(file), 0);
    VU_EQ(ibv_dealloc_mw(mw), 0);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(file, BYTES);
    rig_close(&rig);
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
    rig_open(&rig, sock, &admitting);
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
    rig_open(&rig, sock, &admitting);
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_persist[] = {
    {"persist__range_is_synced", synced_a, synced_b, IBV_FLUSH_RANGE},
    {"persist__region_is_synced", synced_a, synced_b, IBV_FLUSH_MR},
    {"persist__log_in_order", log_a, log_b, 0},
    {"persist__error_of_the_disk", error_a, error_b, SEM_PROCESSES},
    {"persist__deregistered_meanwhile", dereg_a, dereg_b, 0},
    {"persist__through_a_window", synced_a, window_b, IBV_FLUSH_RANGE},
    {"persist__only_memory_that_has_it", memory_a, quiet_b, 0},
    {0},
};

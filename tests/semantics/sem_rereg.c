/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: what becomes of regions that are registered anew. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sem_region.h"

#define FILL 0xb5

/* Rights are taken and given back; the key stays what it was. */
static void access_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_key key = region_hear_key(sock);
    VU_EQ(region_try_write(&rig, 1, &key), IBV_WC_SUCCESS);
    vu_barrier(sock);
    VU_EQ(region_hear_key(sock).rkey, key.rkey);
    VU_EQ(region_try_write(&rig, 2, &key), IBV_WC_REM_ACCESS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void access_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = FILL, .access = LOCAL_AND(IBV_ACCESS_REMOTE_READ)};
    rig_open(&rig, sock, &attr);
    uint32_t key = rig.mr->rkey;
    VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, VU_ACCESS_ALL), 0);
    VU_EQ(rig.mr->rkey, key);
    VU_EQ(rig.mr->lkey, key);
    region_tell_key(sock, rig.mr);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 4096, WRITTEN);
    memset(rig.buf, FILL, 4096);
    VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
          0);
    region_tell_key(sock, rig.mr);
    vu_barrier(sock);
    rig_bytes(&rig, 0, RIG_BYTES, FILL);
    rig_close(&rig);
}

/* Another PD and back: between, the region is none of this QP's business. */
static void pd_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_key key = region_hear_key(sock);
    VU_EQ(region_try_write(&rig, 1, &key), param ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void pd_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = FILL};
    rig_open(&rig, sock, &attr);
    struct ibv_pd *other = ibv_alloc_pd(rig.dev.ctx);
    uint32_t key = rig.mr->rkey;
    VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
    VU_TRUE(rig.mr->pd == other);
    VU_EQ(ibv_dealloc_pd(other), EBUSY);
    if (!param)
        VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_PD, rig.dev.pd, NULL, 0, 0), 0);
    VU_EQ(rig.mr->rkey, key);
    region_tell_key(sock, rig.mr);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 4096, param ? FILL : WRITTEN);
    VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_PD, rig.dev.pd, NULL, 0, 0), 0);
    VU_EQ(ibv_dealloc_pd(other), 0);
    rig_close(&rig);
}

/* Other memory has another key: the old one finds nothing, not even where both overlap. All three
 * changes at once. */
enum moved { MOVED_NEW_KEY, MOVED_OLD_KEY };

static void moved_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_key before = rig.peer, now = region_hear_key(sock);
    VU_TRUE(before.rkey != now.rkey);
    before.addr = now.addr;
    if (param == MOVED_NEW_KEY)
        VU_EQ(region_try_write(&rig, 1, &now), IBV_WC_SUCCESS);
    else
        VU_EQ(region_try_write(&rig, 1, &before), IBV_WC_REM_ACCESS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void moved_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = FILL, .access = LOCAL_AND(IBV_ACCESS_REMOTE_READ)};
    rig_open(&rig, sock, &attr);
    int all = IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD;
    size_t len = RIG_BYTES / 2;
    VU_EQ(ibv_rereg_mr(rig.mr, all, rig.dev.pd, rig.buf + 65536, len, VU_ACCESS_ALL), 0);
    VU_TRUE(rig.mr->addr == rig.buf + 65536);
    VU_EQ(rig.mr->length, len);
    region_tell_key(sock, rig.mr);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 65536, FILL);
    rig_bytes(&rig, 65536, 4096, param == MOVED_NEW_KEY ? WRITTEN : FILL);
    rig_close(&rig);
}

/* A refused call leaves the region as it was, usable by its old key. */
static void refused_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    VU_EQ(region_try_write(&rig, 1, &rig.peer), IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void refused_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct ibv_mr *mr = rig.mr;
    struct ibv_mr before = *mr;
    const struct {
        int flags;
        void *addr;
        size_t len_bytes;
        int access, error;
    } cases[] = {
        {0, NULL, 0, 0, EINVAL},
        {1 << 3, NULL, 0, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_PD, NULL, 0, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, NULL, 4096, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, rig.buf, 0, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, rig.buf, 4096, VU_ACCESS_ALL, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, rig.buf, SIZE_MAX, 0, EINVAL},
        {IBV_REREG_MR_CHANGE_TRANSLATION, (void *)4096, 4096, 0, EFAULT},
        {IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL},
        {IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, IBV_ACCESS_LOCAL_WRITE | 1 << 12, EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        errno = 0;
        VU_EQ(ibv_rereg_mr(mr, cases[i].flags, NULL, cases[i].addr, cases[i].len_bytes,
                           cases[i].access),
              IBV_REREG_MR_ERR_INPUT);
        VU_EQ(errno, cases[i].error);
        VU_EQ(memcmp(mr, &before, sizeof(before)), 0);
    }
    vu_barrier(sock);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 4096, WRITTEN);
    rig_close(&rig);
}

/* The region moves while A writes all of it again and again: once ibv_rereg_mr has returned, the
 * old memory is the program's own, and no byte of a WRITE by the old key lands in the new. */
#define RACE_BYTES (3u << 20)
#define RACE_ROUNDS 10

static void race_a(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    vu_dev_open(&dev);
    uint8_t *from = malloc(RACE_BYTES);
    memset(from, WRITTEN, RACE_BYTES);
    struct ibv_mr *mr = vu_reg(&dev, from, RACE_BYTES, IBV_ACCESS_LOCAL_WRITE);
    for (int i = 0; i < RACE_ROUNDS; i++) {
        struct vu_ep ep;
        vu_ep_create(&dev, NULL, &ep);
        vu_connect(&ep, sock, NULL);
        struct vu_key key = region_hear_key(sock);
        struct vu_send write = {.opcode = IBV_WR_RDMA_WRITE,
                                .flags = IBV_SEND_SIGNALED,
                                .addr = from,
                                .len_bytes = RACE_BYTES,
                                .lkey = mr->lkey,
                                .remote = key.addr,
                                .rkey = key.rkey};
        struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
        vu_barrier(sock);
        while (wc.status == IBV_WC_SUCCESS) {
            VU_EQ(vu_post_send(ep.qp, &write), 0);
            VU_EQ(vu_poll(ep.scq, &wc, 1, 20000), 1);
        }
        if (!vu_is_iwarp(&dev) || wc.status != IBV_WC_WR_FLUSH_ERR) /* refused before it was sent */
            VU_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
        vu_barrier(sock);
        vu_ep_destroy(&ep);
    }
    VU_EQ(ibv_dereg_mr(mr), 0);
    free(from);
    vu_dev_close(&dev);
}

static void race_b(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    vu_dev_open(&dev);
    uint8_t *memory[2];
    for (int i = 0; i < 2; i++) {
        memory[i] = malloc(RACE_BYTES);
        memset(memory[i], FILL, RACE_BYTES);
    }
    struct ibv_mr *mr = vu_reg(&dev, memory[0], RACE_BYTES, VU_ACCESS_ALL);
    for (int i = 0; i < RACE_ROUNDS; i++) {
        uint8_t *old = memory[i % 2], *now = memory[(i + 1) % 2];
        struct vu_ep ep;
        vu_ep_create(&dev, NULL, &ep);
        vu_connect(&ep, sock, NULL);
        region_tell_key(sock, mr);
        vu_barrier(sock);
        struct ibv_wc wc;
        VU_EQ(vu_poll(ep.rcq, &wc, 1, (unsigned int)(i % 5)), 0); /* the ring wants polling */
        VU_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, now, RACE_BYTES, 0), 0);
        memset(old, FILL, RACE_BYTES);
        vu_barrier(sock);
        region_full_bytes(old, RACE_BYTES, FILL);
        region_full_bytes(now, RACE_BYTES, FILL);
        vu_ep_destroy(&ep);
    }
    VU_EQ(ibv_dereg_mr(mr), 0);
    free(memory[0]);
    free(memory[1]);
    vu_dev_close(&dev);
}

/* Longer than what TCP holds, so that it is under way when the refusal comes. */
#define LONG_BYTES (32u << 20)

static void long_write_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    uint8_t *from = calloc(1, LONG_BYTES);
    VU_TRUE(from);
    struct ibv_mr *mr = vu_reg(&rig.dev, from, LONG_BYTES, IBV_ACCESS_LOCAL_WRITE);
    const struct vu_key key = region_hear_key(sock);
    const struct vu_send write = {.opcode = IBV_WR_RDMA_WRITE,
                                  .wr_id = 1,
                                  .flags = IBV_SEND_SIGNALED,
                                  .addr = from,
                                  .len_bytes = LONG_BYTES,
                                  .lkey = mr->lkey,
                                  .remote = key.addr,
                                  .rkey = key.rkey};
    rig_post(&rig, &write);
    struct ibv_wc wc;
    VU_EQ(vu_poll(rig.ep.scq, &wc, 1, 20000), 1);
    VU_EQ(wc.status, IBV_WC_REM_ACCESS_ERR); /* over iWARP, too */
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    free(from);
    rig_close(&rig);
}

static void long_write_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = FILL};
    rig_open(&rig, sock, &attr);
    struct ibv_mr *mr = vu_reg(&rig.dev, rig.buf, RIG_BYTES, VU_ACCESS_ALL);
    const struct vu_key key = {(uintptr_t)mr->addr, mr->length, mr->rkey};
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_put(sock, &key, sizeof(key));
    vu_barrier(sock);
    rig_bytes(&rig, 0, RIG_BYTES, FILL);
    rig_close(&rig);
}

const struct sem_case sem_rereg[] = {
    {"rereg__access", access_a, access_b, 0},
    {"rereg__pd_and_back", pd_a, pd_b, 0},
    {"rereg__pd_of_others", pd_a, pd_b, 1},
    {"rereg__moved_new_key", moved_a, moved_b, MOVED_NEW_KEY},
    {"rereg__moved_old_key", moved_a, moved_b, MOVED_OLD_KEY},
    {"rereg__refused", refused_a, refused_b, 0},
    {"rereg__under_writes", race_a, race_b, 0},
    {"dereg__long_write", long_write_a, long_write_b, 0},
    {0},
};

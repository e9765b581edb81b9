/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: the kinds of region beside plain ones. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sem_region.h"

#define FILL 0xb5

/* A zero-based region starts at 0 for peers and for local elements, wherever it is. */
static void zero_based_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_key key = rig.peer;
    key.addr = 4096;
    VU_EQ(region_try_write(&rig, 1, &key), IBV_WC_SUCCESS);
    vu_barrier(sock);
    VU_EQ(region_try_write(&rig, 2, &rig.peer), IBV_WC_REM_ACCESS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void zero_based_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = FILL, .access = VU_ACCESS_ALL | IBV_ACCESS_ZERO_BASED};
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 4096, FILL);
    rig_bytes(&rig, 4096, 4096, WRITTEN);
    vu_barrier(sock);
    rig_close(&rig);
}

/* A region known by an address of the program's choice; relaxed ordering is a mere permission. */
static void iova_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_key key = region_hear_key(sock);
    key.addr = 0x7700000000 + 8192;
    VU_EQ(region_try_write(&rig, 1, &key), IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void iova_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = FILL};
    rig_open(&rig, sock, &attr);
    struct ibv_mr *mr = ibv_reg_mr_iova2(rig.dev.pd, rig.buf, RIG_BYTES, 0x7700000000,
                                         VU_ACCESS_ALL | IBV_ACCESS_RELAXED_ORDERING);
    VU_TRUE(mr);
    region_tell_key(sock, mr);
    vu_barrier(sock);
    rig_bytes(&rig, 0, 8192, FILL);
    rig_bytes(&rig, 8192, 4096, WRITTEN);
    VU_EQ(ibv_dereg_mr(mr), 0);
    rig_close(&rig);
}

/* On-demand memory is what is mapped there when it is accessed: B replaces it between two WRITEs.
 * With the whole address space as a region, any address will do. */
enum odp { ODP_EXPLICIT, ODP_IMPLICIT };

static void odp_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_key key = region_hear_key(sock);
    for (uint64_t i = 0; i < 2; i++) {
        VU_EQ(region_try_write(&rig, i, &key), IBV_WC_SUCCESS);
        vu_barrier(sock);
        vu_barrier(sock);
    }
    struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 3, 4096, 64);
    read.remote = key.addr + 4096;
    read.rkey = key.rkey;
    rig_post(&rig, &read);
    vu_expect(rig.ep.scq, 3, IBV_WC_SUCCESS);
    rig_bytes(&rig, 4096, 64, FILL);
    vu_barrier(sock);
    rig_close(&rig);
}

static void odp_b(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    const int prot = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    uint8_t *at = mmap(NULL, 65536, prot, anonymous, -1, 0);
    bool whole = param == ODP_IMPLICIT;
    struct ibv_mr *mr = ibv_reg_mr(rig.dev.pd, whole ? NULL : at, whole ? SIZE_MAX : 65536,
                                   VU_ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
    VU_TRUE(mr);
    struct vu_key key = {(uintptr_t)at, 65536, mr->rkey};
    vu_put(sock, &key, sizeof(key));
    for (int i = 0; i < 2; i++) {
        vu_barrier(sock);
        region_full_bytes(at, 4096, WRITTEN);
        VU_TRUE(mmap(at, 65536, prot, anonymous | MAP_FIXED, -1, 0) == at);
        memset(at, FILL, 65536);
        vu_barrier(sock);
    }
    struct ibv_sge sge = {(uintptr_t)at, 65536, mr->lkey}, past = sge, other = sge;
    const enum ibv_advise_mr_advice prefetch = IBV_ADVISE_MR_ADVICE_PREFETCH;
    VU_EQ(ibv_advise_mr(rig.dev.pd, prefetch, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
    VU_EQ(ibv_advise_mr(rig.dev.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), 0);
    VU_EQ(ibv_advise_mr(rig.dev.pd, prefetch, 1 << 5, &sge, 1), EINVAL);
    VU_EQ(ibv_advise_mr(rig.dev.pd, prefetch, 0, &sge, 0), EINVAL);
    VU_EQ(ibv_advise_mr(rig.dev.pd, (enum ibv_advise_mr_advice)9, 0, &sge, 1), ENOTSUP);
    other.lkey = rig.mr->lkey; /* of other memory */
    VU_EQ(ibv_advise_mr(rig.dev.pd, prefetch, 0, &other, 1), EFAULT);
    past.addr = whole ? 4096 : past.addr + 4096;
    VU_EQ(ibv_advise_mr(rig.dev.pd, prefetch, 0, &past, 1), EFAULT);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(at, 65536);
    rig_close(&rig);
}

/* A null region: sends zeros, drops what is received or read into it, and is nothing to peers. */
static void null_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = WRITTEN};
    rig_open(&rig, sock, &attr);
    struct ibv_mr *null = ibv_alloc_null_mr(rig.dev.pd);
    VU_TRUE(null);
    struct vu_key theirs = region_hear_key(sock); /* said once the receive is posted */
    struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 100000);
    write.addr = (void *)0x1234;
    write.lkey = null->lkey;
    rig_post(&rig, &write);
    struct vu_send read = write, send = rig_send(&rig, IBV_WR_SEND, 3, 0, 100000);
    read.opcode = IBV_WR_RDMA_READ;
    read.wr_id = 2;
    rig_post(&rig, &read);
    rig_post(&rig, &send);
    for (uint64_t i = 1; i <= 3; i++)
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    write.wr_id = 4;
    write.remote = 0;
    write.rkey = theirs.rkey; /* the peer's null region */
    rig_post(&rig, &write);
    vu_expect(rig.ep.scq, 4, IBV_WC_REM_ACCESS_ERR);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(null), 0);
    rig_close(&rig);
}

static void null_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = FILL};
    rig_prepare(&rig, sock, &attr);
    struct ibv_mr *null = ibv_alloc_null_mr(rig.dev.pd);
    VU_TRUE(null);
    rig_connect(&rig, NULL);
    VU_EQ(vu_post_recv(rig.ep.qp, 10, (void *)0x5678, 200000, null->lkey), 0);
    region_tell_key(sock, null);
    VU_EQ(vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS).byte_len, 100000);
    rig_bytes(&rig, 0, 100000, 0);
    rig_bytes(&rig, 100000, RIG_BYTES - 100000, FILL);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(null), 0);
    rig_close(&rig);
}

/* Device memory, and a mapping made for a descriptor: both are reached by keys alone. */
enum foreign { DEVICE_MEMORY, DMA_BUF };

static void foreign_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_key key = region_hear_key(sock);
    VU_EQ(region_try_write(&rig, 1, &key), IBV_WC_SUCCESS);
    vu_barrier(sock);
    key.addr += 8192 - 4096 + 1;
    VU_EQ(region_try_write(&rig, 2, &key), IBV_WC_REM_ACCESS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void device_memory_b(struct rig *rig, int sock)
{
    struct ibv_device_attr_ex attr;
    VU_EQ(ibv_query_device_ex(rig->dev.ctx, NULL, &attr), 0);
    struct ibv_alloc_dm_attr ask = {.length = attr.max_dm_size + 4096};
    VU_TRUE(!ibv_alloc_dm(rig->dev.ctx, &ask));
    VU_EQ(errno, ENOMEM);
    ask.length = 16384;
    struct ibv_dm *dm = ibv_alloc_dm(rig->dev.ctx, &ask);
    VU_TRUE(dm);
    const unsigned int access = VU_ACCESS_ALL | IBV_ACCESS_ZERO_BASED;
    VU_TRUE(!ibv_reg_dm_mr(rig->dev.pd, dm, 0, 16384, VU_ACCESS_ALL));
    VU_TRUE(!ibv_reg_dm_mr(rig->dev.pd, dm, 8192, 8193, access));
    VU_EQ(errno, EINVAL);
    struct ibv_mr *mr = ibv_reg_dm_mr(rig->dev.pd, dm, 4096, 8192, access);
    VU_TRUE(mr);
    VU_EQ(ibv_memcpy_to_dm(dm, 0, rig->buf, 16384), 0);
    struct vu_key key = {0, 8192, mr->rkey};
    vu_put(sock, &key, sizeof(key));
    vu_barrier(sock);
    VU_EQ(ibv_memcpy_from_dm(rig->buf, dm, 0, 16384), 0);
    rig_bytes(rig, 0, 4096, FILL);
    rig_bytes(rig, 4096, 4096, WRITTEN);
    rig_bytes(rig, 8192, 8192, FILL);
    VU_TRUE(ibv_memcpy_to_dm(dm, 2, rig->buf, 4) != 0);
    VU_TRUE(ibv_memcpy_from_dm(rig->buf, dm, 16384, 4) != 0);
    vu_barrier(sock);
    VU_EQ(ibv_free_dm(dm), EBUSY);
    VU_EQ(ibv_dereg_mr(mr), 0);
    VU_EQ(ibv_free_dm(dm), 0);
}

static void dma_buf_b(struct rig *rig, int sock)
{
    int fd = memfd_create("exporter", MFD_CLOEXEC), pipes[2];
    VU_EQ(ftruncate(fd, 65536), 0);
    VU_EQ(pipe(pipes), 0);
    VU_TRUE(!ibv_reg_dmabuf_mr(rig->dev.pd, 0, 4096, 0, pipes[0], VU_ACCESS_ALL));
    VU_EQ(errno, EOPNOTSUPP); /* nothing that could be mapped */
    VU_TRUE(!ibv_reg_dmabuf_mr(rig->dev.pd, 0, 4096, 0, -1, VU_ACCESS_ALL));
    VU_EQ(errno, EBADF);
    VU_TRUE(!ibv_reg_dmabuf_mr(rig->dev.pd, 61440, 8192, 0, fd, VU_ACCESS_ALL));
    VU_EQ(errno, EINVAL);
    struct ibv_mr *mr =
        ibv_reg_dmabuf_mr(rig->dev.pd, 8192 + 64, 8192, 0x10000 + 64, fd, VU_ACCESS_ALL);
    VU_TRUE(mr);
    struct vu_key key = {0x10000 + 64, 8192, mr->rkey};
    vu_put(sock, &key, sizeof(key));
    vu_barrier(sock);
    VU_EQ(pread(fd, rig->buf, 16384, 8192), 16384);
    rig_bytes(rig, 0, 64, 0);
    rig_bytes(rig, 64, 4096, WRITTEN);
    rig_bytes(rig, 64 + 4096, 4096, 0);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

static void foreign_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = FILL};
    rig_open(&rig, sock, &attr);
    if (param == DEVICE_MEMORY)
        device_memory_b(&rig, sock);
    else
        dma_buf_b(&rig, sock);
    rig_close(&rig);
}

/* A device opened from another context's descriptor, and that one's PD and region in it, by the
 * process itself and by another one. */
struct told {
    uint32_t pd, mr;
    uint64_t addr;
};
enum { LENT_FROM = 12288, LENT_TO = 65536 };

static void import_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = WRITTEN};
    rig_open(&rig, sock, &attr);
    int fd = fcntl(rig.dev.ctx->cmd_fd, F_DUPFD_CLOEXEC, 0);
    vu_put_fd(sock, fd);
    close(fd);
    struct told told = {rig.dev.pd->handle, rig.mr->handle, (uintptr_t)rig.buf};
    vu_put(sock, &told, sizeof(told));
    struct ibv_context *ctx = ibv_import_device(fcntl(rig.dev.ctx->cmd_fd, F_DUPFD_CLOEXEC, 0));
    VU_TRUE(ctx);
    struct ibv_pd *pd = ibv_import_pd(ctx, told.pd);
    VU_TRUE(pd);
    struct ibv_mr *mr = ibv_import_mr(pd, told.mr);
    VU_TRUE(mr);
    VU_EQ(mr->rkey, rig.mr->rkey);
    VU_EQ(mr->length, RIG_BYTES);
    VU_EQ(ibv_dealloc_pd(rig.dev.pd), EBUSY);
    struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 4096);
    write.lkey = mr->lkey;
    rig_post(&rig, &write);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    ibv_unimport_mr(mr);
    ibv_unimport_pd(pd);
    VU_EQ(ibv_close_device(ctx), 0);
    (void)param;
    bool was_used;
    vu_get(sock, &was_used, sizeof(was_used));
    vu_barrier(sock);
    rig_bytes(&rig, LENT_FROM, 4096, was_used ? 0x3c : WRITTEN); /* by a queue pair of the peer's */
    rig_close(&rig);
}

/* The other process's region as source and as target of requests between queue pairs of ours.
 * false: peers may not map its memory, as the run demands. */
static bool use_lent(struct rig *rig, struct ibv_context *ctx, const struct told *told)
{
    struct ibv_pd *pd = ibv_import_pd(ctx, told->pd);
    VU_TRUE(pd);
    struct ibv_mr *lent = ibv_import_mr(pd, told->mr);
    const char *rung = getenv("SIDEWIRE_DIRECT");
    if (!lent && rung && (!strcmp(rung, "cma") || !strcmp(rung, "ring"))) {
        VU_EQ(errno, EOPNOTSUPP);
        ibv_unimport_pd(pd);
        return false;
    }
    VU_TRUE(lent);
    VU_EQ(lent->length, RIG_BYTES);
    struct ibv_mr *own = ibv_reg_mr(pd, rig->buf, RIG_BYTES, VU_ACCESS_ALL);
    VU_TRUE(own);
    struct vu_dev dev = rig->dev;
    struct vu_ep ep;
    struct vu_ep_attr attr = {0};
    dev.ctx = ctx;
    dev.pd = pd;
    vu_ep_create(&dev, &attr, &ep);
    vu_connect_here(&ep);
    struct vu_send out = {.opcode = IBV_WR_RDMA_WRITE,
                          .wr_id = 1,
                          .flags = IBV_SEND_SIGNALED,
                          .addr = (void *)(uintptr_t)told->addr,
                          .len_bytes = 4096,
                          .lkey = lent->lkey,
                          .remote = (uintptr_t)rig->buf + LENT_TO,
                          .rkey = own->rkey};
    VU_EQ(vu_post_send(ep.qp, &out), 0);
    vu_expect(ep.scq, 1, IBV_WC_SUCCESS);
    rig_bytes(rig, LENT_TO, 4096, WRITTEN);
    memset(rig->buf + LENT_TO, 0x3c, 4096);
    struct vu_send in = out;
    in.wr_id = 2;
    in.addr = rig->buf + LENT_TO;
    in.lkey = own->lkey;
    in.remote = told->addr + LENT_FROM;
    in.rkey = lent->rkey;
    VU_EQ(vu_post_send(ep.qp, &in), 0);
    vu_expect(ep.scq, 2, IBV_WC_SUCCESS);
    const struct vu_send nothing = {/* its answer says that the WRITE is there */
                                    .opcode = IBV_WR_RDMA_READ,
                                    .wr_id = 3,
                                    .flags = IBV_SEND_SIGNALED};
    VU_EQ(vu_post_send(ep.qp, &nothing), 0);
    vu_expect(ep.scq, 3, IBV_WC_SUCCESS);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(own), 0);
    VU_TRUE(!ibv_import_mr(pd, told->mr + 1)); /* none there, or of another PD */
    ibv_unimport_mr(lent);
    ibv_unimport_pd(pd);
    return true;
}

static void import_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    int fd = vu_get_fd(sock);
    struct told told;
    vu_get(sock, &told, sizeof(told));
    struct ibv_context *ctx = ibv_import_device(fd);
    VU_TRUE(ctx);
    VU_EQ(strcmp(ctx->device->name, rig.dev.ctx->device->name), 0);
    VU_TRUE(!ibv_import_pd(ctx, told.pd + 100000));
    VU_EQ(errno, EOPNOTSUPP);
    bool was_used = use_lent(&rig, ctx, &told);
    VU_EQ(ibv_close_device(ctx), 0);
    vu_put(sock, &was_used, sizeof(was_used));
    vu_barrier(sock);
    rig_bytes(&rig, 0, 4096, WRITTEN);
    rig_close(&rig);
}

const struct sem_case sem_memory[] = {
    {"region__zero_based", zero_based_a, zero_based_b, 0},
    {"region__iova_relaxed", iova_a, iova_b, 0},
    {"region__on_demand", odp_a, odp_b, ODP_EXPLICIT},
    {"region__on_demand_implicit", odp_a, odp_b, ODP_IMPLICIT},
    {"region__null", null_a, null_b, 0},
    {"region__device_memory", foreign_a, foreign_b, DEVICE_MEMORY},
    {"region__dma_buf", foreign_a, foreign_b, DMA_BUF},
    {"import__device_pd_region", import_a, import_b, 0},
    {0},
};

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs in the guest: one process registers memory that keeps its contents, the other writes records
 * into it by RDMA and flushes each.
 *   pmem write SEED PATH    a file, a device or a PCI BAR; without end, "acked NUMBER" for each
 *                           record that a FLUSH has acknowledged
 *   pmem refuse PATH        registering it for persistence fails
 *   pmem enable BAR0        has an NVMe device show its persistent memory region
 * A record is RECORD_BYTES, each the same: of SEED and its number.
 */
#include <errno.h>
#include <fcntl.h>
#include <sidewire/flush.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "verbs_util/pair.h"

#define RECORD_BYTES 4096u
#define RECORDS 64u
#define MAP_BYTES (2u << 20) /* device DAX maps no less */
#define RIGHTS                                                                   \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)
#define PMRCTL 0xe04 /* of NVM Express: enable */

static const struct vu_ep_attr flush_ep = {.extended = true, .send_ops = IBV_QP_EX_WITH_FLUSH};
static const struct vu_conn flush_conn = {
    .access = RIGHTS & ~IBV_ACCESS_LOCAL_WRITE,
    .rd_atomic = 8,
    .dest_rd_atomic = 8,
    .timeout = 20,
    .retry_cnt = 7,
    .rnr_retry = 7,
    .min_rnr_timer = 12,
};

struct work {
    const char *path;
    unsigned int seed;
};

static void *map_path(const char *path, size_t len_bytes)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    VU_CHECK(fd >= 0, "%s: %s", path, strerror(errno));
    const int prot = PROT_READ | PROT_WRITE;
    void *at = mmap(NULL, len_bytes, prot, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    printf("%s: MAP_SYNC %s\n", path, at == MAP_FAILED ? strerror(errno) : "yes");
    if (at == MAP_FAILED)
        at = mmap(NULL, len_bytes, prot, MAP_SHARED, fd, 0);
    VU_CHECK(at != MAP_FAILED, "mmap of %s: %s", path, strerror(errno));
    close(fd);
    return at;
}

static void fill(uint8_t *at, unsigned int seed, unsigned int number)
{
    for (size_t i = 0; i < RECORD_BYTES; i += 8) {
        const uint32_t word[2] = {seed, number};
        memcpy(at + i, word, sizeof(word));
    }
}

/* The side whose memory it is: it registers and waits to be killed. */
static void hold(int sock, void *arg)
{
    const struct work *work = arg;
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, &flush_ep, &ep);
    struct ibv_mr *mr = vu_reg(&dev, map_path(work->path, MAP_BYTES), MAP_BYTES, RIGHTS);
    vu_trade_keys(sock, mr);
    vu_connect(&ep, sock, &flush_conn);
    vu_barrier(sock);
    for (;;)
        pause();
}

static void write_record(struct vu_ep *ep, struct ibv_mr *mr, const struct vu_key *key,
                         const struct work *work, unsigned int number)
{
    const uint64_t to = key->addr + (uint64_t)(number % RECORDS) * RECORD_BYTES;
    fill(mr->addr, work->seed, number);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(ep->qp);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = 0;
    ibv_wr_rdma_write(ex, key->rkey, to);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)mr->addr, RECORD_BYTES);
    ex->wr_id = 2;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_flush(ex, key->rkey, to, RECORD_BYTES, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
    VU_EQ(ibv_wr_complete(ex), 0);
    struct ibv_wc wc;
    VU_EQ(vu_poll(ep->scq, &wc, 1, 30000), 1);
    VU_CHECK(wc.status == IBV_WC_SUCCESS, "record %u: %s", number, ibv_wc_status_str(wc.status));
    printf("acked %u\n", number);
    fflush(stdout);
}

static void write_all(int sock, void *arg)
{
    struct vu_dev dev;
    struct vu_ep ep;
    vu_dev_open(&dev);
    vu_ep_create(&dev, &flush_ep, &ep);
    void *buf = aligned_alloc(RECORD_BYTES, RECORD_BYTES);
    struct ibv_mr *mr = vu_reg(&dev, buf, RECORD_BYTES, IBV_ACCESS_LOCAL_WRITE);
    const struct vu_key key = vu_trade_keys(sock, mr);
    vu_connect(&ep, sock, &flush_conn);
    vu_barrier(sock);
    for (unsigned int number = 0; number < RECORDS; number++)
        write_record(&ep, mr, &key, arg, number);
    for (;;)
        pause();
}

static int refuse(const char *path)
{
    struct vu_dev dev;
    vu_dev_open(&dev);
    void *at = map_path(path, MAP_BYTES);
    errno = 0;
    struct ibv_mr *mr = ibv_reg_mr(dev.pd, at, MAP_BYTES, RIGHTS);
    printf("persistent: %s\n", mr ? "taken" : strerror(errno));
    errno = 0;
    mr = ibv_reg_mr(dev.pd, at, MAP_BYTES,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    printf("atomics: %s\n", mr ? "taken" : strerror(errno));
    return 0;
}

static int enable(const char *path)
{
    volatile uint32_t *bar = map_path(path, 4096);
    bar[PMRCTL / sizeof(*bar)] = 1;
    printf("PMRCTL %x\n", bar[PMRCTL / sizeof(*bar)]);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && !strcmp(argv[1], "refuse"))
        return refuse(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "enable"))
        return enable(argv[2]);
    if (argc != 4 || strcmp(argv[1], "write") != 0)
        return 2;
    struct work work = {argv[3], (unsigned int)strtoul(argv[2], NULL, 0)};
    return vu_run_pair(VU_PROCESSES, write_all, hold, &work, 3600);
}

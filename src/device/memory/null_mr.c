/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions without memory, and what an element of one stands for: a source of zeros that is never
 * populated, or one small piece of memory mapped over and over as a sink. Both are made when the
 * first such region is, as long as the longest message, and stay.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/shm.h"
#include "device/memory/mr_impl.h"
#include "device/rules/device_limits.h"

#define SINK_BYTES (4ull << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *zeros, *sink;

static uint8_t *map_sink(void)
{
    uint8_t *all = mmap(NULL, SW_MAX_MSG_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = all == MAP_FAILED ? -1 : sw_fd_own(sw_shm_create("sidewire-sink", SINK_BYTES));
    bool good = fd >= 0;
    for (uint64_t at = 0; good && at < SW_MAX_MSG_BYTES; at += SINK_BYTES)
        good = mmap(all + at, SINK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) != MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (!good && all != MAP_FAILED)
        munmap(all, SW_MAX_MSG_BYTES);
    return good ? all : NULL;
}

static int make_once(void)
{
    pthread_mutex_lock(&lock);
    if (!zeros) {
        zeros =
            sw_map_sparse(NULL, SW_MAX_MSG_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (!sink)
        sink = map_sink();
    int rc = zeros && sink ? 0 : -ENOMEM;
    pthread_mutex_unlock(&lock);
    return rc;
}

int sw_mr_reg_null(struct sw_pd *pd, struct sw_mr **out)
{
    int rc = make_once();
    struct sw_mr *mr = rc ? NULL : calloc(1, sizeof(*mr));
    if (!mr)
        return -ENOMEM;
    rc = sw_mr_claim(mr);
    if (rc) {
        free(mr);
        return rc;
    }
    uint32_t gen = sw_mr_generation();
    struct sw_pub_mr *entry = &sw_nic.pub->mrs[mr->index];
    mr->pd = pd;
    mr->key = sw_mr_draw_key(mr->index);
    sw_pd_ref(pd);
    entry->access = IBV_ACCESS_LOCAL_WRITE; /* not SW_PUB_LOCAL_USE: there is no address */
    entry->kind = SW_PUB_NULL;
    entry->qpn = 0;
    entry->pd = pd->id;
    entry->iova = entry->va = 0;
    entry->len_bytes = UINT64_MAX;
    entry->extent_count = 0;
    atomic_store_explicit(&entry->key_word, (uint64_t)gen << 32 | mr->key, memory_order_release);
    *out = mr;
    return 0;
}

bool sw_null_resolve(uint32_t pd, const struct ibv_sge *sge, uint32_t need, uint8_t **va)
{
    if (sge->length > SW_MAX_MSG_BYTES)
        return false;
    const struct sw_pub_mr *mr = &sw_nic.pub->mrs[sw_key_index(sge->lkey)];
    uint64_t word = atomic_load_explicit(&mr->key_word, memory_order_acquire);
    if (word == 0 || (uint32_t)word != sge->lkey || mr->kind != SW_PUB_NULL || mr->pd != pd)
        return false;
    *va = need & IBV_ACCESS_LOCAL_WRITE ? sink : zeros;
    return true;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "sem_region.h"

#include <string.h>

/* There a WRITE is complete when it was sent. The request behind it tells what became of it: a READ
 * of nothing, whose key nobody looks at. */
static enum ibv_wc_status outcome_by_iwarp(struct rig *rig)
{
    struct ibv_wc wc;
    const struct vu_send nothing = {.opcode = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED};
    rig_post(rig, &nothing);
    VU_EQ(vu_poll(rig->ep.scq, &wc, 1, 20000), 1);
    return wc.status == IBV_WC_SUCCESS ? wc.status : IBV_WC_REM_ACCESS_ERR;
}

enum ibv_wc_status region_try_write(struct rig *rig, uint64_t wr_id, const struct vu_key *key)
{
    memset(rig->buf, WRITTEN, 4096);
    struct vu_send write = rig_send(rig, IBV_WR_RDMA_WRITE, wr_id, 0, 4096);
    write.remote = key->addr;
    write.rkey = key->rkey;
    rig_post(rig, &write);
    struct ibv_wc wc;
    VU_EQ(vu_poll(rig->ep.scq, &wc, 1, 20000), 1);
    VU_EQ(wc.wr_id, wr_id);
    return vu_is_iwarp(&rig->dev) ? outcome_by_iwarp(rig) : wc.status;
}

void region_tell_key(int sock, const struct ibv_mr *mr)
{
    struct vu_key key = {(uintptr_t)mr->addr, mr->length, mr->rkey};
    vu_put(sock, &key, sizeof(key));
}

struct vu_key region_hear_key(int sock)
{
    struct vu_key key;
    vu_get(sock, &key, sizeof(key));
    return key;
}

void region_full_bytes(const uint8_t *at, size_t len_bytes, uint8_t value)
{
    for (size_t i = 0; i < len_bytes; i++)
        VU_CHECK(at[i] == value, "byte %zu is 0x%02x, not 0x%02x", i, at[i], value);
}

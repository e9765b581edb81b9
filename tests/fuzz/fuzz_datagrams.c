/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer may write anything into its ring of datagrams, and say that any part of it is new. Around
 * the ring nothing can be read; whatever is in it is taken out within a bounded number of looks,
 * and no program is told of more than its receive holds.
 */
#include <string.h>
#include <sys/mman.h>

#include "device/queue/ah.h"
#include "device/serve/mcast.h"
#include "fuzz.h"
#include "link/direct/datagram/receive.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/state.h"
#include "link_harness.h"

enum { STEPS_MAX = 256, WANT = 8, QPS = 2, QKEY = 5 };
/* Every look takes 64 records, and the shortest is one unit. */
#define LOOKS_MAX (SW_DATAGRAM_UNITS / 64 + 32)

static struct sw_inbox inbox;
static struct sw_qp *qps[QPS]; /* with a queue of its own, and with a shared one */
static union ibv_gid group = {.raw = {0xff, 0x0e, 0x55}};
static uint32_t position; /* where the next record is looked for, if all went well */

static struct sw_inbox_header *header(void)
{
    return (struct sw_inbox_header *)inbox.base;
}

/* An inbox of which only the header and the ring are there. */
static void start_ring(void)
{
    if (inbox.base)
        return;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint8_t *base = mmap(NULL, SW_INBOX_FIRST_BLOCK + 4096, PROT_NONE, flags, -1, 0);
    harness_needs(base != MAP_FAILED);
    harness_needs(mprotect(base, SW_INBOX_FIRST_BLOCK, PROT_READ | PROT_WRITE) == 0);
    inbox.base = base;
}

static void make_qp(int i)
{
    struct sw_qp_init init = {.type = IBV_QPT_UD,
                              .pd = harness.pd,
                              .send_cq = harness.cq,
                              .recv_cq = harness.cq,
                              .srq = i ? harness.srq : NULL,
                              .cap = {.max_recv_wr = 64, .max_recv_sge = 2}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    harness_needs(sw_qp_create(harness.ctx, &init, &qps[i]) == 0);
    harness_needs(sw_qp_modify(qps[i], &attr,
                               IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    attr.qp_state = IBV_QPS_RTR;
    harness_needs(sw_qp_modify(qps[i], &attr, IBV_QP_STATE) == 0);
}

static void receive(void)
{
    sw_datagram_receive(harness.cq, WANT);
    position = atomic_load(&header()->datagrams_consumed);
}

static void open_ring(struct feed *feed)
{
    start_ring();
    memset(header(), 0, sizeof(*header()));
    memset(sw_inbox_datagram(inbox.base, SW_DATAGRAM_UNITS - 128), 0, 128 * SW_DATAGRAM_UNIT);
    memset(sw_inbox_datagram(inbox.base, 0), 0, 128 * SW_DATAGRAM_UNIT);
    atomic_store(&inbox.dead, false);
    pthread_mutex_lock(&sw_direct.lock);
    sw_datagram_open(&inbox);
    pthread_mutex_unlock(&sw_direct.lock);
    position = 0;
    for (int i = 0; i < QPS; i++)
        make_qp(i);
    harness.qp = qps[0];
    harness_needs(sw_mcast_attach(qps[0], &group) == 0);
    if (feed_u8(feed) & 1) { /* near the end of the ring: nonsense takes us there */
        atomic_store(&header()->datagrams_produced, SW_DATAGRAM_UNITS - 3);
        atomic_store(&sw_inbox_record(inbox.base, 0)->seq, 1);
        receive();
    }
}

static void write_record(struct feed *feed)
{
    const uint64_t units[] = {0, 1, 2, 3, 66, 129, SW_DATAGRAM_UNITS, UINT16_MAX};
    const uint64_t sizes[] = {0,         1, 3, 64, 65, SW_DATAGRAM_BYTES, SW_DATAGRAM_BYTES + 1,
                              UINT16_MAX};
    const uint64_t dests[] = {sw_qp_num(qps[0]), sw_qp_num(qps[1]), SW_MULTICAST_QPN, 0,
                              sw_qp_num(qps[0]) ^ 0x2000};
    const uint32_t at = position + feed_u8(feed) % 2;
    struct sw_datagram_record *record = sw_inbox_record(inbox.base, at);
    record->size = (uint16_t)feed_value(feed, sizes, 8);
    record->flags = feed_u8(feed) & 15;
    record->dest_qpn = (uint32_t)feed_value(feed, dests, 5);
    record->qkey = feed_u8(feed) & 7 ? QKEY : feed_u32(feed);
    record->imm = feed_u32(feed);
    record->grh[0] = 6 << 4;
    memcpy(record->grh + 24, group.raw, sizeof(group.raw));
    if (feed_u8(feed) & 1)
        feed_bytes(feed, record->grh, sizeof(record->grh));
    atomic_store(&header()->datagrams_produced, at + (uint32_t)feed_value(feed, units, 8));
    atomic_store(&record->seq, at + 1);
    position =
        at + (record->flags & SW_DATAGRAM_SKIP ? record->size : sw_datagram_units(record->size));
}

static void write_anything(struct feed *feed)
{
    const size_t room = SW_INBOX_FIRST_BLOCK - SW_INBOX_DATAGRAMS;
    size_t at = feed_u32(feed) % room, len = feed_u8(feed);
    feed_bytes(feed, inbox.base + SW_INBOX_DATAGRAMS + at, len < room - at ? len : room - at);
}

static void post_recv(struct feed *feed)
{
    uint32_t offset = feed_u16(feed) % 2048, len = feed_u16(feed) % 8192;
    harness.qp = qps[feed_u8(feed) & 1];
    harness_post_recv(offset, len);
}

static void poll_all(void)
{
    struct ibv_wc wc;
    int count;
    receive();
    while ((count = sw_cq_poll(harness.cq, 1, &wc)) == 1) {
        harness_needs(wc.qp_num == sw_qp_num(qps[0]) || wc.qp_num == sw_qp_num(qps[1]));
        if (wc.status == IBV_WC_SUCCESS)
            harness_needs(wc.byte_len >= SW_GRH_BYTES && wc.byte_len <= wc.wr_id &&
                          wc.byte_len <= SW_GRH_BYTES + SW_DATAGRAM_BYTES);
    }
    harness_needs(count == 0);
}

static void step(struct feed *feed)
{
    switch (feed_u8(feed) % 8) {
    case 0:
    case 1:
        write_record(feed);
        break;
    case 2:
        write_anything(feed);
        break;
    case 3:
        atomic_store(&header()->datagrams_produced, feed_u32(feed));
        break;
    case 4:
        post_recv(feed);
        break;
    case 5:
        atomic_store(&header()->datagrams_urgent, feed_u8(feed));
        sw_datagram_serve(feed_u8(feed) & 1);
        break;
    case 6:
        atomic_store(&header()->datagrams_consumed, feed_u32(feed)); /* says nothing to us */
        break;
    default:
        poll_all();
        break;
    }
}

static void close_ring(struct feed *feed)
{
    if (feed_u8(feed) & 1) { /* its client has died: at most two looks until it is empty */
        const uint64_t long_after_ns = 1000 * SW_NS_PER_MS;
        atomic_store(&inbox.dead, true);
        sw_datagram_bury(long_after_ns);
        sw_datagram_bury(2 * long_after_ns);
        harness_needs(!sw_datagram_waits(&inbox));
    }
    for (int i = 0; i < (int)LOOKS_MAX && sw_datagram_waits(&inbox); i++) {
        poll_all();
    }
    harness_needs(!sw_datagram_waits(&inbox));
    poll_all();
    harness_needs(sw_mcast_detach(qps[0], &group) == 0);
    sw_datagram_close(&inbox);
    harness_needs(sw_qp_destroy(qps[1]) == 0);
    harness.qp = qps[0];
    harness_finish();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    harness_start();
    open_ring(&feed);
    for (int i = 0; i < STEPS_MAX && feed.left; i++)
        step(&feed);
    close_ring(&feed);
    return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: faults on purpose over packets (docs/faults.md), rule by rule, as the other side and the
 * counters see them; what datagrams meet is in sem_faults_ud.c. Each pair is alone in its network,
 * so the numbers are known. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sem.h"

static unsigned long long read_port(const struct vu_dev *dev, const char *file)
{
    char port[600];
    snprintf(port, sizeof(port), "%s/ports/1", dev->ctx->device->ibdev_path);
    return sem_read_counter(port, file);
}

static unsigned long long counted(const struct vu_dev *dev, const char *name)
{
    char file[64];
    snprintf(file, sizeof(file), "hw_counters/%s", name);
    return read_port(dev, file);
}

/* A SEND of so many packets, by the side that sends; the other checks its bytes. */
static void message(struct rig *rig, struct vu_ep *ep, bool sends, uint32_t packets, uint8_t value)
{
    uint32_t len_bytes = packets * (128u << rig->dev.mtu);
    memset(rig->buf, sends ? value : (uint8_t)~value, len_bytes);
    if (!sends)
        VU_EQ(vu_post_recv(ep->qp, value, rig->buf, len_bytes, rig->mr->lkey), 0);
    vu_barrier(rig->sock);
    if (sends) {
        struct vu_send send = rig_send(rig, IBV_WR_SEND, value, 0, len_bytes);
        VU_EQ(vu_post_send(ep->qp, &send), 0);
        vu_expect(ep->scq, value, IBV_WC_SUCCESS);
    } else {
        VU_EQ(vu_expect(ep->rcq, value, IBV_WC_SUCCESS).byte_len, len_bytes);
        rig_bytes(rig, 0, len_bytes, value);
    }
}

/* One packet is sent again, and no other. A machine that gives a process no time lets timers run
 * out as well: then another round is looked at. */
#define ROUNDS 12

static void third(int sock, bool sends)
{
    struct rig rig;
    char script[40 * ROUNDS] = "";
    bool once = false;
    for (int i = 0; i < ROUNDS && sends; i++)
        sprintf(script + strlen(script), "drop packet 3 of qp %d once\n", i + 2);
    sem_misbehave(script);
    rig_open(&rig, sock, NULL);
    for (int i = 0; i < ROUNDS && !once; i++) {
        struct vu_ep ep;
        unsigned long long before = counted(&rig.dev, "retrans_pkts");
        unsigned long long gaps = counted(&rig.dev, "packet_seq_err");
        unsigned long long early = counted(&rig.dev, "out_of_sequence");
        vu_ep_create(&rig.dev, NULL, &ep);
        vu_connect(&ep, sock, NULL);
        message(&rig, &ep, sends, 8, (uint8_t)(i + 1));
        vu_barrier(sock);
        unsigned long long again = counted(&rig.dev, "retrans_pkts") - before;
        VU_TRUE(again > 0);
        VU_TRUE(counted(&rig.dev, "out_of_sequence") > early);
        once = again == 1 && counted(&rig.dev, "packet_seq_err") > gaps;
        vu_barrier(sock);
        vu_ep_destroy(&ep);
    }
    VU_TRUE(once);
    vu_barrier(sock);
    rig_close(&rig);
}

static void third_a(int sock, int param)
{
    (void)param;
    third(sock, true);
}

static void third_b(int sock, int param)
{
    (void)param;
    third(sock, false);
}

/* What a message of eight packets meets, and the counters that tell. */
struct fault {
    const char *sender, *receiver; /* scripts */
    const char *counter;
    unsigned long long least, most; /* of that counter */
};
static const struct fault faults[] = {
    {"corrupt psn 0x125 once\n", "", "rx_icrc_encapsulated", 1, 1},
    {"", "corrupt received psn 0x125 once\n", "rx_icrc_encapsulated", 1, 1},
    {"drop psn 0x123 once\n", "", "out_of_sequence", 1, 1000},
    {"", "drop received packet 4 of qp 1 opcode send\n", "out_of_sequence", 1, 1000},
    {"", "drop opcode ack times 6\n", "local_ack_timeout_err", 1, 1000},
    {"drop received opcode ack times 2\n", "", "retrans_pkts", 1, 1000},
    {"duplicate packet 2 opcode send once\n", "", "duplicate_request", 1, 1000},
    {"", "duplicate received packet 2 opcode send once\n", "duplicate_request", 1, 1000},
    {"reorder 30ms psn 0x124 once\n", "", "out_of_sequence", 1, 1000},
    {"", "reorder 30ms received psn 0x124 once\n", "out_of_sequence", 1, 1000},
};
#define FAULTS (sizeof(faults) / sizeof(faults[0]))

static void fault(int sock, int param, bool sends)
{
    const struct fault *one = &faults[param];
    struct rig rig;
    sem_misbehave(sends ? one->sender : one->receiver);
    rig_open(&rig, sock, NULL);
    message(&rig, &rig.ep, sends, 8, 0x5a);
    vu_sleep_ms(50); /* what is held comes */
    vu_barrier(sock);
    unsigned long long seen = counted(&rig.dev, one->counter);
    VU_CHECK(seen >= one->least && seen <= one->most, "%s is %llu", one->counter, seen);
    vu_barrier(sock);
    rig_close(&rig);
}

static void fault_a(int sock, int param)
{
    fault(sock, param, true);
}

static void fault_b(int sock, int param)
{
    fault(sock, param, false);
}

/* The receiver says for a while that there is no receive; from its first device on, so a machine on
 * which it takes long to connect may see nothing of it. */
#define RNR_MS 300u

static void rnr(int sock, bool sends)
{
    struct rig rig;
    uint64_t start_ms = vu_now_ms(), other_ms;
    if (!sends)
        sem_misbehave("rnr for 300ms\n");
    rig_open(&rig, sock, NULL);
    vu_put(sock, &start_ms, sizeof(start_ms));
    vu_get(sock, &other_ms, sizeof(other_ms));
    bool in_time = vu_now_ms() - (sends ? other_ms : start_ms) < RNR_MS - 100;
    message(&rig, &rig.ep, sends, 1, 7);
    VU_TRUE(!sends || vu_now_ms() - other_ms >= RNR_MS);
    vu_barrier(sock);
    VU_TRUE(!in_time || counted(&rig.dev, "rnr_nak_retry_err") > 0);
    VU_TRUE(counted(&rig.dev, "send_rnr_err") >= counted(&rig.dev, "rnr_nak_retry_err"));
    VU_EQ(counted(&rig.dev, "retry_rnr_exceeded_err"), 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void rnr_a(int sock, int param)
{
    (void)param;
    rnr(sock, true);
}

static void rnr_b(int sock, int param)
{
    (void)param;
    rnr(sock, false);
}

/* WRITEs go on until the link has been cut for a second and is back; all are in memory then. Time
 * runs from the first device on: as above. */
#define CUT_AT_MS 500u
#define CUT_WRITES 64u

static void cut_a(int sock, int param)
{
    (void)param;
    const struct rig_attr attr = {.conn = vu_conn_default};
    struct rig_attr patient = attr;
    patient.conn.timeout = 17; /* 0.5 s */
    struct rig rig;
    sem_misbehave("cut at 500ms for 1s\n");
    uint64_t start_ms = vu_now_ms(), longest_ms = 0;
    uint32_t count = 0;
    rig_open(&rig, sock, &patient);
    bool in_time = vu_now_ms() - start_ms < CUT_AT_MS - 100;
    for (; vu_now_ms() - start_ms < CUT_AT_MS + 1200; count++) {
        uint64_t before_ms = vu_now_ms();
        uint32_t i = count % CUT_WRITES;
        memset(rig.buf + i * 4096, (int)i, 4096);
        struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, i, i * 4096, 4096);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        longest_ms = vu_now_ms() - before_ms > longest_ms ? vu_now_ms() - before_ms : longest_ms;
    }
    VU_CHECK(!in_time || longest_ms >= 900, "%llu ms", (unsigned long long)longest_ms);
    VU_TRUE(!in_time || counted(&rig.dev, "local_ack_timeout_err") > 0);
    VU_EQ(counted(&rig.dev, "retry_exceeded_err"), 0);
    vu_put(sock, &count, sizeof(count));
    rig_close(&rig);
}

static void cut_b(int sock, int param)
{
    (void)param;
    const struct rig_attr attr = {.fill = 0xff};
    struct rig rig;
    uint32_t count;
    rig_open(&rig, sock, &attr);
    vu_get(sock, &count, sizeof(count));
    VU_TRUE(count > 0);
    for (uint32_t i = 0; i < CUT_WRITES; i++)
        rig_bytes(&rig, i * 4096, 4096, i < count ? (uint8_t)i : 0xff);
    rig_close(&rig);
}

/* A cut that is longer than the retries. */
static void cut_for_good_a(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.timeout = 12; /* 17 ms */
    attr.conn.retry_cnt = 3;
    struct rig rig;
    sem_misbehave("cut\n");
    rig_open(&rig, sock, &attr);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 100);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_RETRY_EXC_ERR);
    VU_EQ(counted(&rig.dev, "retry_exceeded_err"), 1);
    VU_TRUE(counted(&rig.dev, "local_ack_timeout_err") > 0);
    vu_barrier(sock);
    rig_close(&rig);
}

/* The queue pair that refuses is in ERR at once, but says so until the peer has heard it. */
static void refusal_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 100);
    send.rkey ^= 0xff;
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_REM_ACCESS_ERR);
    VU_TRUE(counted(&rig.dev, "local_ack_timeout_err") > 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void refusal_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    sem_misbehave("drop opcode ack times 3\n");
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Requests that were done before a refusal end well, although their answers are lost, and the queue
 * pair that gave them is in ERR. */
static void answers_a(int sock, int param)
{
    (void)param;
    enum { BYTES = 5000 };
    /* The eighth answer comes after as many timeouts, and on a busy machine later. */
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.timeout = 16; /* 268 ms */
    struct rig rig;
    rig_open(&rig, sock, &attr);
    struct vu_send sends[3] = {rig_send(&rig, IBV_WR_RDMA_READ, 1, 4096, BYTES),
                               rig_send(&rig, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 8),
                               rig_send(&rig, IBV_WR_RDMA_WRITE, 3, 0, 100)};
    sends[1].compare_add = 5;
    sends[2].rkey ^= 0xff;
    for (int i = 0; i < 3; i++)
        rig_post(&rig, &sends[i]);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    rig_bytes(&rig, 4096, BYTES, 0x42);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    rig_bytes(&rig, 0, 8, 0x42);
    vu_expect(rig.ep.scq, 3, IBV_WC_REM_ACCESS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void answers_b(int sock, int param)
{
    (void)param;
    static const struct rig_attr attr = {.fill = 0x42};
    struct rig rig;
    uint64_t word = 0x4242424242424242;
    sem_misbehave("drop opcode response times 8\ndrop opcode atomic times 2\n");
    rig_open(&rig, sock, &attr);
    rig_recv(&rig, 7, 8192, 8);
    vu_expect(rig.ep.rcq, 7, IBV_WC_WR_FLUSH_ERR); /* ERR, long before the last answer */
    vu_barrier(sock);
    word += 5; /* once */
    VU_TRUE(!memcmp(rig.buf, &word, sizeof(word)));
    rig_close(&rig);
}

/* A program that has been told of a message may end the connection at once. The message has
 * arrived, though its ACK is lost. */
static void last_ack_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    struct vu_send sends[2] = {rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 10000),
                               rig_send(&rig, IBV_WR_SEND, 2, 0, 100)};
    for (int i = 0; i < 2; i++)
        rig_post(&rig, &sends[i]);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    VU_TRUE(counted(&rig.dev, "local_ack_timeout_err") > 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void last_ack_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    sem_misbehave("drop opcode ack times 3\n");
    rig_open(&rig, sock, NULL);
    rig_recv(&rig, 7, 16384, 100);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 7, IBV_WC_SUCCESS);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

/* But nobody reads the memory of who has ended the connection, nor sends him anything new. */
static void ended_a(int sock, int param)
{
    (void)param;
    struct rig_attr attr = {.conn = vu_conn_default};
    attr.conn.timeout = 14; /* 67 ms */
    attr.conn.retry_cnt = 3;
    struct rig rig;
    rig_open(&rig, sock, &attr);
    struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 1, 0, 100);
    vu_barrier(sock);
    if (param == 0)
        rig_post(&rig, &read);
    vu_barrier(sock);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 2, 0, 100);
    rig_post(&rig, &send);
    if (param == 0)
        vu_expect(rig.ep.scq, 1, IBV_WC_RETRY_EXC_ERR);
    vu_expect(rig.ep.scq, 2, param == 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void ended_b(int sock, int param)
{
    struct rig rig;
    if (param == 0)
        sem_misbehave("drop opcode response times 3\n");
    rig_open(&rig, sock, NULL);
    rig_recv(&rig, 7, 16384, 100);
    vu_barrier(sock);
    if (param == 0)
        while (!counted(&rig.dev, "duplicate_request"))
            usleep(1000);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    vu_barrier(sock);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Packets that are sent again do not count again (docs/counters.md): the answers to READs, too. */
static void counted_once_a(int sock, int param)
{
    (void)param;
    enum { BYTES = 10000 };
    static const char *const names[2] = {"counters/port_xmit_data", "counters/port_rcv_data"};
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 1, 0, BYTES);
    rig_post(&rig, &read);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_TRUE(counted(&rig.dev, "duplicate_request") > 0);
    for (int i = 0; i < 2; i++)
        VU_EQ(read_port(&rig.dev, names[i]), BYTES / 4);
    vu_barrier(sock);
    rig_close(&rig);
}

static void counted_once_b(int sock, int param)
{
    sem_misbehave("drop opcode response times 3\n");
    sem_idle(sock, param);
}

/* The region of a lost READ answer is gone when it is asked for again. */
static void answer_gone_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 1, 0, 100);
    struct vu_send bad = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, 0, 100);
    bad.rkey ^= 0xff;
    rig_post(&rig, &read);
    rig_post(&rig, &bad);
    vu_expect(rig.ep.scq, 1, IBV_WC_REM_ACCESS_ERR);
    vu_expect(rig.ep.scq, 2, IBV_WC_WR_FLUSH_ERR);
    rig_bytes(&rig, 0, 100, 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void answer_gone_b(int sock, int param)
{
    (void)param;
    static const struct rig_attr attr = {.fill = 0x42};
    struct rig rig;
    sem_misbehave("drop opcode response for 500ms\n");
    rig_open(&rig, sock, &attr);
    struct ibv_mr *own = vu_reg(&rig.dev, rig.buf, 8, IBV_ACCESS_LOCAL_WRITE);
    VU_EQ(vu_post_recv(rig.ep.qp, 7, rig.buf, 8, own->lkey), 0);
    vu_expect(rig.ep.rcq, 7, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(ibv_dereg_mr(rig.mr), 0);
    rig.mr = own;
    vu_barrier(sock);
    rig_close(&rig);
}

/* The answer of a READ is late, so it is asked for again, which comes when the READ is complete and
 * its memory unmapped. The region is still there. */
static void answer_unmapped_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key;
    sem_misbehave("delay 300ms opcode read packet 2\n");
    rig_open(&rig, sock, NULL);
    vu_get(sock, &key, sizeof(key));
    struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 1, 0, 100);
    read.remote = key.addr;
    read.rkey = key.rkey;
    rig_post(&rig, &read);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    rig_bytes(&rig, 0, 100, 7);
    vu_barrier(sock);
    vu_barrier(sock);
    rig_close(&rig);
}

static void answer_unmapped_b(int sock, int param)
{
    (void)param;
    enum { BYTES = 1 << 20 };
    struct rig rig;
    sem_misbehave("delay 150ms opcode response once\n");
    rig_open(&rig, sock, NULL);
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(memory != MAP_FAILED);
    memset(memory, 7, BYTES);
    struct ibv_mr *mr = ibv_reg_mr(rig.dev.pd, memory, BYTES, IBV_ACCESS_REMOTE_READ);
    VU_TRUE(mr);
    const struct vu_key key = {.addr = (uintptr_t)memory, .rkey = mr->rkey};
    vu_put(sock, &key, sizeof(key));
    vu_barrier(sock);
    VU_EQ(munmap(memory, BYTES), 0);
    for (int i = 0; i < 100 && !counted(&rig.dev, "duplicate_request"); i++)
        vu_sleep_ms(20);
    vu_sleep_ms(400);
    VU_TRUE(counted(&rig.dev, "duplicate_request") > 0);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Atomics are executed once, whatever is lost, damaged and doubled. */
static void atomics_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    sem_misbehave("seed 3\ndrop 15%\nduplicate 20%\nreorder 1ms 10%\ncorrupt 5%\n");
    rig_open(&rig, sock, NULL);
    for (uint64_t i = 0; i < 100; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 8);
        uint64_t original;
        send.compare_add = 1;
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        memcpy(&original, rig.buf, sizeof(original));
        VU_EQ(original, i);
    }
    vu_barrier(sock);
    VU_TRUE(counted(&rig.dev, "retrans_pkts") > 0);
    VU_TRUE(counted(&rig.dev, "duplicate_request") > 0);
    VU_TRUE(counted(&rig.dev, "rx_icrc_encapsulated") > 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void atomics_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    uint64_t value;
    sem_misbehave("seed 4\ndrop 15% received\nduplicate 20%\nreorder 1ms 10%\n");
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    memcpy(&value, rig.buf, sizeof(value));
    VU_EQ(value, 100);
    vu_barrier(sock);
    rig_close(&rig);
}

#define ONE(name, index)                                                     \
    {                                                                        \
        "faults__" name, fault_a, fault_b, (index) | SEM_ALONE | SEM_ON_WIRE \
    }

const struct sem_case sem_faults[] = {
    {"faults__third_packet_lost", third_a, third_b, SEM_ALONE | SEM_ON_WIRE},
    ONE("psn_corrupted_once", 0),
    ONE("psn_corrupted_once_as_it_came", 1),
    ONE("first_packet_lost", 2),
    ONE("packet_lost_as_it_came", 3),
    ONE("acks_lost", 4),
    ONE("acks_lost_as_they_came", 5),
    ONE("packet_doubled", 6),
    ONE("packet_doubled_as_it_came", 7),
    ONE("packet_late", 8),
    ONE("packet_late_as_it_came", 9),
    {"faults__refusal_lost", refusal_a, refusal_b, SEM_ALONE | SEM_ON_WIRE},
    {"faults__answers_before_a_refusal_lost", answers_a, answers_b, SEM_ALONE | SEM_ON_WIRE},
    {"faults__last_ack_lost", last_ack_a, last_ack_b, SEM_ALONE | SEM_ON_WIRE},
    {"faults__read_of_who_has_ended", ended_a, ended_b, 0 | SEM_ALONE | SEM_ON_WIRE},
    {"faults__send_to_who_has_ended", ended_a, ended_b, 1 | SEM_ALONE | SEM_ON_WIRE},
    {"faults__answer_lost_counts_once", counted_once_a, counted_once_b, SEM_ALONE | SEM_ON_WIRE},
    {"faults__answer_lost_and_memory_gone", answer_gone_a, answer_gone_b, SEM_ALONE | SEM_ON_WIRE},
    {"faults__answer_late_and_memory_unmapped", answer_unmapped_a, answer_unmapped_b,
     SEM_ALONE | SEM_ON_WIRE},
    {"faults__receiver_not_ready", rnr_a, rnr_b, SEM_ALONE | SEM_ON_WIRE},
    {"faults__cut_of_a_second", cut_a, cut_b, SEM_ALONE | SEM_ON_WIRE},
    {"faults__cut_for_good", cut_for_good_a, sem_idle, SEM_ALONE | SEM_ON_WIRE},
    {"faults__atomics_once", atomics_a, atomics_b, SEM_ALONE | SEM_ON_WIRE},
    {0},
};
_Static_assert(FAULTS == 10, "each has its case");

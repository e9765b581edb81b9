/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: the counters of port and device, which are those of all processes. Each pair is alone in
 * its network, so the numbers are known. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ud_side.h"

#define COUNTED_BYTES 10000u
#define ROUNDS 64u
#define TOLD_MS 15000
#define MCAST_QPN 0xffffffu

typedef char port_path[512];

unsigned long long sem_read_counter(const char *port, const char *name)
{
    char path[600], text[32] = {0};
    snprintf(path, sizeof(path), "%s/%s", port, name);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(text, sizeof(text), file))
        VU_FAIL("%s: %s", path, strerror(errno));
    fclose(file);
    return strtoull(text, NULL, 10);
}

unsigned long long sem_wait_counter(const char *port, const char *name, unsigned long long wanted)
{
    unsigned long long seen;
    uint64_t end_ms = vu_now_ms() + TOLD_MS;
    while ((seen = sem_read_counter(port, name)) != wanted && vu_now_ms() < end_ms)
        vu_sleep_ms(10);
    return seen;
}

static void path_of(const struct vu_dev *dev, port_path out)
{
    snprintf(out, sizeof(port_path), "%s/ports/1", dev->ctx->device->ibdev_path);
}

/* What a connection has moved, in words of four bytes and in packets of the path's MTU: each byte
 * is sent once and received once, whichever side asked for it; also when the connection is over. */
static void connection(int sock, bool sends)
{
    static const char *const names[4] = {"counters/port_xmit_data", "counters/port_xmit_packets",
                                         "counters/port_rcv_data", "counters/port_rcv_packets"};
    struct rig rig;
    port_path port;
    rig_open(&rig, sock, NULL);
    path_of(&rig.dev, port);
    rig_recv(&rig, 0, 0, COUNTED_BYTES);
    vu_barrier(sock);
    struct vu_send requests[3] = {rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 20000, COUNTED_BYTES),
                                  rig_send(&rig, IBV_WR_SEND, 2, 20000, COUNTED_BYTES),
                                  rig_send(&rig, IBV_WR_RDMA_READ, 3, 20000, COUNTED_BYTES)};
    for (int i = 0; i < 3 && sends; i++) {
        rig_post(&rig, &requests[i]);
        vu_expect(rig.ep.scq, (uint64_t)i + 1, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    if (!sends)
        vu_expect(rig.ep.rcq, 0, IBV_WC_SUCCESS);
    const unsigned int mtu = 128u << rig.dev.mtu, packets = (COUNTED_BYTES + mtu - 1) / mtu;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++)
            sem_expect_counter(port, names[i], i % 2 ? 3 * packets : 3 * COUNTED_BYTES / 4);
        sem_expect_counter(port, "counters/multicast_xmit_packets", 0);
        sem_expect_counter(port, "counters/unicast_xmit_packets", 3 * packets);
        vu_barrier(sock);
        vu_ep_to(&rig.ep, IBV_QPS_ERR);
    }
    VU_EQ(vu_post_send(rig.ep.qp, &requests[0]), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_WR_FLUSH_ERR);
    vu_barrier(sock);
    sem_expect_counter(port, "hw_counters/req_cqe_flush_error", 2); /* one of each side */
    vu_barrier(sock);
    rig_close(&rig);
}

static void connection_a(int sock, int param)
{
    (void)param;
    connection(sock, true);
}

static void connection_b(int sock, int param)
{
    (void)param;
    connection(sock, false);
}

/* Three datagrams, of which the last finds no receive, and two to a group that three QPs are in: a
 * port gets one copy, its QPs all have it. */
static void datagrams(int sock, bool sends)
{
    const union ibv_gid gid = {.raw = {0xff, 0x0e, [15] = 7}};
    struct ud_side side;
    port_path port;
    ud_open(&side, sock, NULL);
    path_of(&side.dev, port);
    struct ibv_qp *other = ud_qp(&side, UD_QKEY);
    struct ibv_ah *group = ud_ah(&side, &gid);
    VU_EQ(ibv_attach_mcast(side.qp, &gid, 0), 0);
    if (!sends)
        VU_EQ(ibv_attach_mcast(other, &gid, 0), 0);
    for (uint64_t i = 0; i < 2 && !sends; i++)
        ud_recv(&side, side.qp, i, UD_SLOT);
    vu_barrier(sock);
    vu_sleep_ms(20); /* a join is not seen at once by who has just looked */
    for (uint64_t i = 0; i < 5 && sends; i++) {
        struct ud_send send = {.wr_id = i, .len_bytes = 1000};
        if (i > 2) {
            send.ah = group;
            send.qpn = MCAST_QPN;
        }
        ud_send(&side, &send);
    }
    vu_barrier(sock);
    if (!sends) {
        vu_expect(side.rcq, 0, IBV_WC_SUCCESS);
        vu_expect(side.rcq, 1, IBV_WC_SUCCESS);
    }
    vu_expect_none(side.rcq, UD_QUIET_MS);
    vu_barrier(sock);
    sem_expect_counter(port, "counters/unicast_xmit_packets", 3);
    sem_expect_counter(port, "counters/unicast_rcv_packets", 3);
    sem_expect_counter(port, "counters/multicast_xmit_packets", 2);
    sem_expect_counter(port, "counters/multicast_rcv_packets", 2 * 2);
    sem_expect_counter(port, "counters/port_xmit_packets", 5);
    sem_expect_counter(port, "counters/port_rcv_packets", 7);
    sem_expect_counter(port, "counters/port_xmit_data", 5 * 1000 / 4);
    sem_expect_counter(port, "counters/port_rcv_data", 7 * 1000 / 4);
    sem_expect_counter(port, "hw_counters/rx_drop_no_recv", 1 + 2 * 3);
    vu_barrier(sock);
    VU_EQ(ibv_detach_mcast(side.qp, &gid, 0), 0);
    if (!sends)
        VU_EQ(ibv_detach_mcast(other, &gid, 0), 0);
    VU_EQ(ibv_destroy_qp(other), 0);
    sem_expect_counter(port, "counters/unicast_xmit_packets", 3);
    VU_EQ(ibv_destroy_ah(group), 0);
    ud_close(&side);
}

static void datagrams_a(int sock, int param)
{
    (void)param;
    datagrams(sock, true);
}

static void datagrams_b(int sock, int param)
{
    (void)param;
    datagrams(sock, false);
}

/* Somebody looks on who opens no device: he sees what living processes have moved, is not held up
 * by one that is stopped, and sees nothing of one that has ended. */
static void moves_a(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    struct vu_ep ep;
    port_path port;
    vu_dev_open(&dev);
    vu_ep_create(&dev, NULL, &ep);
    struct vu_peer self = vu_ep_self(&ep);
    vu_ep_init(&ep, &vu_conn_default);
    vu_ep_rtr(&ep, &self, &vu_conn_default);
    vu_ep_rts(&ep, &vu_conn_default);
    uint8_t *buf = aligned_alloc(4096, 8192);
    VU_TRUE(buf);
    struct ibv_mr *mr = vu_reg(&dev, buf, 8192, VU_ACCESS_ALL);
    path_of(&dev, port);
    vu_put(sock, port, sizeof(port));
    pid_t pid = getpid();
    vu_put(sock, &pid, sizeof(pid));
    for (int i = 0; i < 2; i++) {
        struct vu_send write = {.opcode = IBV_WR_RDMA_WRITE,
                                .wr_id = 1,
                                .flags = IBV_SEND_SIGNALED,
                                .addr = buf,
                                .len_bytes = 4096,
                                .lkey = mr->lkey,
                                .remote = (uintptr_t)buf + 4096,
                                .rkey = mr->rkey};
        vu_barrier(sock);
        for (uint32_t n = 0; n < ROUNDS; n++) {
            VU_EQ(vu_post_send(ep.qp, &write), 0);
            vu_expect(ep.scq, 1, IBV_WC_SUCCESS);
        }
        vu_barrier(sock);
    }
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_dev_close(&dev);
    free(buf);
}

static void looks_b(int sock, int param)
{
    (void)param;
    port_path port;
    pid_t pid;
    vu_get(sock, port, sizeof(port));
    vu_get(sock, &pid, sizeof(pid));
    VU_EQ(sem_read_counter(port, "counters/port_xmit_data"), 0);
    for (uint32_t i = 1; i <= 2; i++) {
        vu_barrier(sock);
        vu_barrier(sock);
        sem_expect_counter(port, "counters/port_xmit_data", i * ROUNDS * 1024);
        sem_expect_counter(port, "counters/port_rcv_data", i * ROUNDS * 1024);
        VU_EQ(sem_read_counter(port, "hw_counters/sent_pkts"),
              sem_read_counter(port, "hw_counters/rcvd_pkts"));
    }
    vu_stop(pid);
    VU_EQ(sem_read_counter(port, "counters/port_xmit_data"), 0);
    VU_EQ(kill(pid, SIGCONT), 0);
    sem_expect_counter(port, "counters/port_xmit_data", 2 * ROUNDS * 1024);
    vu_barrier(sock);
    char none;
    VU_TRUE(!vu_try_get(sock, &none, 1, 10000)); /* it ends */
    uint64_t start_ms = vu_now_ms();
    while (sem_read_counter(port, "counters/port_xmit_data") && vu_now_ms() - start_ms < 10000)
        vu_sleep_ms(10);
    VU_EQ(sem_read_counter(port, "counters/port_xmit_data"), 0);
}

/* In the middle of a list of requests the queue pair is taken: what it had moved before counts. */
static void midway_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.extended = true}};
    port_path port;
    rig_open(&rig, sock, &attr);
    path_of(&rig.dev, port);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig.ep.qp);
    for (unsigned long long i = 0; i < 2; i++) {
        ibv_wr_start(ex);
        ex->wr_id = i;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(ex, rig.peer.rkey, rig.peer.addr);
        sem_expect_counter(port, "counters/port_xmit_data", i * 1024);
        ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf, 4096);
        VU_EQ(ibv_wr_complete(ex), 0);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        sem_expect_counter(port, "counters/port_xmit_data", (i + 1) * 1024);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

/* Two devices: what happens to a connection is counted by its own, which is not the first. Here a
 * peer makes the file of its region shorter, which only who maps it finds out. */
#define LOST_BYTES (1u << 20)
#define SECOND "sw_two0"

static bool maps_memory(void)
{
    const char *rung = getenv("SIDEWIRE_DIRECT"), *link = getenv("SIDEWIRE_LINK");
    return rung && !strcmp(rung, "mapped") && !link;
}

static void second_device_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    port_path port;
    if (!maps_memory())
        return;
    const bool has_two = !system("ip link add two0 type veth peer name two1 && "
                                 "ip link set two1 up && ip link set two0 up && "
                                 "ip address add 10.98.7.1/24 dev two0 nodad");
    vu_put(sock, &has_two, sizeof(has_two));
    if (!has_two)
        vu_skip("no second interface");
    VU_EQ(setenv("VU_DEVICE", SECOND, 1), 0);
    rig_open(&rig, sock, NULL);
    struct vu_key key = vu_trade_keys(sock, rig.mr);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 8192);
    send.remote = key.addr;
    send.rkey = key.rkey;
    for (int i = 0; i < 3; i++) { /* it is mapped by then */
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    vu_barrier(sock);
    VU_EQ(vu_post_send(rig.ep.qp, &send), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_REM_ACCESS_ERR);
    path_of(&rig.dev, port);
    VU_EQ(sem_read_counter(port, "hw_counters/peer_memory_lost"), 1);
    VU_EQ(sem_read_counter("/sys/class/infiniband/sw_lo/ports/1", "hw_counters/peer_memory_lost"),
          0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void second_device_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    bool has_two;
    if (!maps_memory())
        return;
    vu_get(sock, &has_two, sizeof(has_two));
    if (!has_two)
        vu_skip("no second interface");
    VU_EQ(setenv("VU_DEVICE", SECOND, 1), 0);
    rig_open(&rig, sock, NULL);
    int fd = memfd_create("lost", MFD_CLOEXEC);
    VU_TRUE(fd >= 0 && ftruncate(fd, LOST_BYTES) == 0);
    void *bytes = mmap(NULL, LOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    VU_TRUE(bytes != MAP_FAILED);
    struct ibv_mr *mr = vu_reg(&rig.dev, bytes, LOST_BYTES, VU_ACCESS_ALL);
    vu_trade_keys(sock, mr);
    vu_barrier(sock);
    VU_EQ(ftruncate(fd, 0), 0);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    munmap(bytes, LOST_BYTES);
    close(fd);
    rig_close(&rig);
}

const struct sem_case sem_counters[] = {
    {"port_counters__both_sides", connection_a, connection_b, SEM_ALONE},
    {"port_counters__datagrams", datagrams_a, datagrams_b, SEM_ALONE},
    {"port_counters__of_other_processes", moves_a, looks_b, SEM_ALONE},
    {"port_counters__of_the_second_device", second_device_a, second_device_b, SEM_ALONE},
    {"port_counters__in_the_middle_of_a_list", midway_a, sem_idle, SEM_ALONE},
    {0},
};

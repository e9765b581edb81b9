/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hundreds of strangers call a program that may have 256 descriptors: doors tcp | iwarp, in a
 * network of its own. They say nothing, half a word, or what is refused, and close nothing. The
 * program keeps its descriptors, what it is connected to goes on, and new connections come about
 * beside them. Where it has no descriptor left by its own doing, its engine sleeps.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../preload/namespace.h"
#include "crowd.h"
#include "verbs_util/pair.h"
#include "wire/iwarp/mpa.h"
#include "wire/iwarp/pairing.h"

enum {
    DESCRIPTORS = 256,
    OWN = 80, /* that the program wants for itself, in the middle of it */
    ROUNDS = 3,
    WRITES = 50,
    STARVED_MS = 500,
    ACCEPTS_MAX = 100, /* tries in that time */
    TIMEOUT_S = 120,
    TCP_PORT = 4791,
    LEN_BYTES = 64
};

static bool is_iwarp;

/* The engine's calls come here: what is linked first counts. With six arguments, as whoever passes
 * fewer leaves room for them; AddressSanitizer takes it for a fault to read those as variable ones.
 */
#define EXPORTED __attribute__((visibility("default")))
EXPORTED long count_call(long number, long a, long b, long c, long d, long e,
                         long f) __asm__("syscall");
static atomic_uint accepts, refusals; /* those in vain, for want of a descriptor */
long count_call(long number, long a, long b, long c, long d, long e, long f)
{
    static _Atomic(long (*)(long, ...)) next;
    if (!atomic_load(&next))
        atomic_store(&next, (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"));
    const long rc = atomic_load(&next)(number, a, b, c, d, e, f);
    if (number == SYS_accept4) {
        atomic_fetch_add(&accepts, 1);
        atomic_fetch_add(&refusals, rc < 0 && errno == EMFILE);
    }
    return rc;
}

struct side {
    int sock;
    struct vu_dev dev;
    uint8_t bytes[LEN_BYTES];
    struct ibv_mr *mr;
    struct vu_key key; /* the other side's */
};

/* ---- what strangers say ---- */

static void say_frame(struct crowd_word *word, const struct sw_pairing *pairing)
{
    uint8_t private_data[SW_PAIRING_BYTES];
    sw_pairing_encode(pairing, private_data);
    const struct sw_mpa_frame frame = {.flags = SW_MPA_ENHANCED,
                                       .revision = 2,
                                       .ird = 1,
                                       .ord = 1,
                                       .private_len = sizeof(private_data),
                                       .private_data = private_data};
    word->len_bytes = (uint32_t)sw_mpa_encode(&frame, word->bytes);
}

/* To a queue pair that this process does not have, and to bring datagrams. */
static struct crowd_order order_of_tcp(uint32_t qpn)
{
    struct crowd_order order = {.port = TCP_PORT};
    const struct sw_pairing refused = {.kind = SW_PAIRING_REQUEST,
                                       .own_qpn = qpn,
                                       .peer_qpn = qpn ^ 0x1000,
                                       .own_psn = 1,
                                       .peer_psn = 2},
                            datagrams = {.kind = SW_PAIRING_DATAGRAMS, .peer_qpn = qpn};
    order.words[1] = (struct crowd_word){.len_bytes = 6, .bytes = "MPA ID"};
    say_frame(&order.words[2], &refused);
    say_frame(&order.words[3], &datagrams);
    return order;
}

static struct crowd_order order_of_iwarp(uint16_t port)
{
    struct crowd_order order = {.port = port};
    order.words[1] = (struct crowd_word){.len_bytes = 6, .bytes = "MPA ID"};
    return order;
}

/* ---- connections ---- */

static void open_side(struct side *side, int sock)
{
    struct rlimit limit;
    VU_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = DESCRIPTORS;
    VU_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    side->sock = sock;
    vu_dev_open(&side->dev);
    side->mr = vu_reg(&side->dev, side->bytes, LEN_BYTES, VU_ACCESS_ALL);
    side->key = vu_trade_keys(sock, side->mr);
}

static void write_once(struct side *side, struct vu_ep *ep, uint64_t wr_id)
{
    const struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                                 .wr_id = wr_id,
                                 .flags = IBV_SEND_SIGNALED,
                                 .addr = side->bytes,
                                 .len_bytes = LEN_BYTES,
                                 .lkey = side->mr->lkey,
                                 .remote = side->key.addr,
                                 .rkey = side->key.rkey};
    VU_EQ(vu_post_send(ep->qp, &send), 0);
    vu_expect(ep->scq, wr_id, IBV_WC_SUCCESS);
}

/* The listener's port is known to strangers before the other side calls. */
static void connect_by_cm(struct side *side, struct vu_ep *ep, const struct crowd *crowd)
{
    uint16_t port;
    vu_ep_init(ep, &vu_conn_default);
    if (crowd) {
        port = vu_cm_listen(ep);
        const struct crowd_order order = order_of_iwarp(port);
        crowd_call(crowd, &order);
        vu_put(side->sock, &port, sizeof(port));
        vu_cm_answer(ep, &vu_conn_default);
    } else {
        vu_get(side->sock, &port, sizeof(port));
        vu_cm_call(ep, port, &vu_conn_default);
    }
    vu_cm_connected(ep);
    vu_barrier(side->sock);
}

static void connect_pair(struct side *side, struct vu_ep *ep, const struct crowd *crowd)
{
    const struct vu_ep_attr attr = {.send_wr = 4, .recv_wr = 4};
    vu_ep_create(&side->dev, &attr, ep);
    if (is_iwarp)
        connect_by_cm(side, ep, crowd);
    else
        vu_connect(ep, side->sock, NULL);
    write_once(side, ep, 1);
    vu_barrier(side->sock);
}

/* ---- descriptors ---- */

static int open_descriptors(int *fds, int most)
{
    int count = 0;
    while (count < most && (fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    return count;
}

static void close_descriptors(const int *fds, int count)
{
    while (count-- > 0)
        close(fds[count]);
}

static void keeps_descriptors(void)
{
    int fds[OWN];
    const int count = open_descriptors(fds, OWN);
    VU_CHECK(count == OWN, "%d descriptors are left to the program: %s", count, strerror(errno));
    close_descriptors(fds, count);
}

/* The program uses up all that it may have, and is called. A stranger that goes at that moment may
 * leave a descriptor to the next one, and so on. */
static void starve(struct side *side, struct vu_ep *ep)
{
    int fds[DESCRIPTORS];
    const int count = open_descriptors(fds, DESCRIPTORS);
    VU_EQ(errno, EMFILE);
    const unsigned before = atomic_load(&accepts), refused_before = atomic_load(&refusals);
    for (uint64_t i = 0; i < WRITES; i++) {
        write_once(side, ep, i);
        vu_sleep_ms(STARVED_MS / WRITES);
    }
    const unsigned seen = atomic_load(&accepts) - before;
    const unsigned refused = atomic_load(&refusals) - refused_before;
    close_descriptors(fds, count);
    printf("%u tries to accept a call, %u without a descriptor\n", seen, refused);
    fflush(stdout);
    VU_TRUE(seen && refused < ACCEPTS_MAX);
}

/* ---- the two ---- */

static void serve_side(int sock, void *arg)
{
    (void)arg;
    struct crowd crowd;
    struct side side = {0};
    struct vu_ep first, later[ROUNDS];
    crowd_start(&crowd);
    open_side(&side, sock);
    connect_pair(&side, &first, &crowd);
    const struct crowd_order order = order_of_tcp(first.qp->qp_num);
    if (!is_iwarp)
        crowd_call(&crowd, &order);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        keeps_descriptors();
        write_once(&side, &first, i);
        connect_pair(&side, &later[i], &crowd);
    }
    starve(&side, &first);
    vu_barrier(sock);
    connect_pair(&side, &later[0], &crowd);
    crowd_stop(&crowd);
    vu_barrier(sock);
    _exit(0); /* the queue pairs with it */
}

static void peer_side(int sock, void *arg)
{
    (void)arg;
    struct side side = {0};
    struct vu_ep first, later[ROUNDS];
    open_side(&side, sock);
    connect_pair(&side, &first, NULL);
    for (uint64_t i = 0; i < ROUNDS; i++)
        connect_pair(&side, &later[i], NULL);
    vu_barrier(sock);
    connect_pair(&side, &later[0], NULL);
    write_once(&side, &first, 1);
    vu_barrier(sock);
    _exit(0);
}

int main(int argc, char **argv)
{
    VU_TRUE(argc == 2);
    is_iwarp = !strcmp(argv[1], "iwarp");
    if (!namespace_own_network()) {
        printf("SKIP: no network namespace\n");
        return VU_SKIPPED;
    }
    return vu_run_pair(VU_PROCESSES, serve_side, peer_side, NULL, TIMEOUT_S);
}

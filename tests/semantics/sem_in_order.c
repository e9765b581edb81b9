/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: in which order what is written is seen by a program that watches its memory, and what
 * ibv_query_qp_data_in_order() says of that. docs/verbs.md has the promises. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sem.h"

#define ROUNDS 1500
#define SPAN (65u * 1024)     /* of a message and what lies around it */
#define MARK (RIG_BYTES - 64) /* where a second WRITE goes */
#define PATIENCE_S 20

#if defined(__x86_64__)
#define IS_POSSIBLE 1
#else
#define IS_POSSIBLE 0
#endif

/* What both sides know of a round. */
struct shape {
    uint32_t at, len_bytes, watched; /* in the region; in the message */
    uint8_t stamp;                   /* all of its bytes */
};

static struct shape next_shape(struct vu_random *random, uint32_t round)
{
    static const uint32_t longest[] = {16, 64, 256, 4096, 16384, 64 * 1024};
    struct shape shape = {.stamp = (uint8_t)(round % 2 + 1)};
    shape.at =
        vu_random_below(random, 4) ? 8 * vu_random_below(random, 8) : vu_random_below(random, 64);
    shape.len_bytes = 1 + vu_random_below(random, longest[vu_random_below(random, 6)]);
    shape.watched =
        vu_random_below(random, 2) ? shape.len_bytes - 1 : vu_random_below(random, shape.len_bytes);
    return shape;
}

/* Each look is one load, and they are made in this order. */
static uint64_t look8(const uint8_t *at)
{
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)at, memory_order_acquire);
}

static uint8_t look(const uint8_t *at)
{
    return atomic_load_explicit((const _Atomic uint8_t *)at, memory_order_acquire);
}

static uint64_t word_of(uint8_t stamp)
{
    return 0x0101010101010101u * stamp;
}

/* A word is what it was or what it gets. */
static void check_word(const uint8_t *message, const struct shape *shape, struct vu_random *random)
{
    const uint32_t words = shape->at % 8 ? 0 : shape->len_bytes / 8;
    if (!words)
        return;
    const uint32_t index = vu_random_below(random, words);
    const uint64_t seen = look8(message + index * 8), before = word_of((uint8_t)(3 - shape->stamp));
    VU_CHECK(seen == word_of(shape->stamp) || seen == before, "word %u of %u bytes is torn: 0x%llx",
             index, shape->len_bytes, (unsigned long long)seen);
}

static void be_patient(const struct timespec *begin, uint32_t looks)
{
    struct timespec now;
    if (looks % 1024)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    VU_CHECK(now.tv_sec - begin->tv_sec < PATIENCE_S, "nothing came");
    sched_yield();
}

static void await_byte(const uint8_t *at, uint8_t stamp)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint32_t looks = 1; look(at) != stamp; looks++)
        be_patient(&begin, looks);
}

/* The same, looking at words meanwhile. */
static void await_byte_and_words(const uint8_t *message, const struct shape *shape,
                                 struct vu_random *random)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint32_t looks = 1; look(message + shape->watched) != shape->stamp; looks++) {
        check_word(message, shape, random);
        be_patient(&begin, looks);
    }
}

static void await_word(const uint8_t *at, uint64_t word)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint32_t looks = 1; look8(at) != word; looks++)
        be_patient(&begin, looks);
}

/* From the end on, where what is late is late most likely. */
static void check_below(const uint8_t *message, uint32_t count, uint8_t stamp)
{
    for (uint32_t i = count; i-- > 0;) {
        const uint8_t seen = look(message + i);
        VU_CHECK(seen == stamp, "byte %u is seen after byte %u", i, count);
    }
}

static int ask(struct rig *rig, enum ibv_wr_opcode opcode)
{
    return ibv_query_qp_data_in_order(rig->ep.qp, opcode, 0);
}

/* Asked before it is connected; when WRITEs have come already; UC in place of RC. */
enum { ASKED_EARLY, ASKED_LATE, UNRELIABLE };

static struct rig_attr attr_of(int param)
{
    return (struct rig_attr){.ep = {.type = param & UNRELIABLE ? IBV_QPT_UC : IBV_QPT_RC}};
}

static void post_stamp(struct rig *rig, const struct shape *shape)
{
    struct vu_send write = rig_send(rig, IBV_WR_RDMA_WRITE, 1, SPAN + shape->at, shape->len_bytes);
    memset(rig->buf + SPAN + shape->at, shape->stamp, shape->len_bytes);
    write.remote = rig->peer.addr + shape->at;
    rig_post(rig, &write);
    vu_expect(rig->ep.scq, 1, IBV_WC_SUCCESS);
}

static void asked_a(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {11};
    const struct rig_attr attr = attr_of(param);
    rig_open(&rig, sock, &attr);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const struct shape shape = next_shape(&random, i);
        vu_barrier(sock);
        post_stamp(&rig, &shape);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void asked_b(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {11}, own = {12};
    const struct rig_attr attr = attr_of(param);
    const bool is_early = !(param & ASKED_LATE);
    rig_prepare(&rig, sock, &attr);
    if (is_early)
        VU_EQ(ask(&rig, IBV_WR_RDMA_WRITE), IS_POSSIBLE);
    rig_connect(&rig, NULL);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const struct shape shape = next_shape(&random, i);
        const uint8_t *message = rig.buf + shape.at;
        if (i == ROUNDS / 8)
            VU_EQ(ask(&rig, IBV_WR_RDMA_WRITE), IS_POSSIBLE);
        const bool is_promised = IS_POSSIBLE && (is_early || i >= ROUNDS / 8);
        memset(rig.buf, 3 - shape.stamp, SPAN);
        vu_barrier(sock);
        if (is_promised && i % 4 == 0)
            await_byte_and_words(message, &shape, &own);
        await_byte(message + shape.watched, shape.stamp);
        if (is_promised)
            check_below(message, shape.watched, shape.stamp);
        await_byte(message + shape.len_bytes - 1, shape.stamp);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

/* Nobody asks: what was written before is seen before, as far apart and as long as it may be. */
static void mark_a(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {21};
    const struct rig_attr attr = attr_of(param);
    rig_open(&rig, sock, &attr);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const struct shape shape = next_shape(&random, i);
        const uint64_t stamp = i + 1;
        memset(rig.buf + SPAN + shape.at, shape.stamp, shape.len_bytes);
        memcpy(rig.buf + MARK, &stamp, sizeof(stamp));
        struct vu_send data =
            rig_send(&rig, IBV_WR_RDMA_WRITE, 1, SPAN + shape.at, shape.len_bytes);
        struct vu_send mark = rig_send(&rig, IBV_WR_RDMA_WRITE, 2, MARK, sizeof(stamp));
        data.remote = rig.peer.addr + shape.at;
        vu_barrier(sock);
        rig_post(&rig, &data);
        rig_post(&rig, &mark);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void mark_b(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {21};
    const struct rig_attr attr = attr_of(param);
    rig_open(&rig, sock, &attr);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const struct shape shape = next_shape(&random, i);
        memset(rig.buf, 3 - shape.stamp, SPAN);
        vu_barrier(sock);
        await_word(rig.buf + MARK, i + 1);
        check_below(rig.buf + shape.at, shape.len_bytes, shape.stamp);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

/* Whether the last bytes of a WRITE are seen last though nobody asks. Not where the kernel writes
 * them, as it may where the direct link is free to choose. */
static bool ends_in_order(void)
{
    const char *link = getenv("SIDEWIRE_LINK"), *rung = getenv("SIDEWIRE_DIRECT");
    const bool is_direct = !link || !strcmp(link, "auto") || !strcmp(link, "direct");
    return IS_POSSIBLE &&
           (!is_direct || (rung && (!strcmp(rung, "mapped") || !strcmp(rung, "ring"))));
}

/* The mark is the last word. */
static struct shape next_marked(struct vu_random *random, uint32_t round)
{
    struct shape shape = next_shape(random, round);
    const uint32_t end = (shape.at + shape.len_bytes + 15) & ~7u;
    shape.len_bytes = end - shape.at;
    return shape;
}

static void last_a(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {31};
    (void)param;
    rig_open(&rig, sock, NULL);
    for (uint32_t i = 0; ends_in_order() && i < ROUNDS; i++) {
        const struct shape shape = next_marked(&random, i);
        const uint64_t stamp = i + 1;
        uint8_t *message = rig.buf + SPAN + shape.at;
        memset(message, shape.stamp, shape.len_bytes);
        memcpy(message + shape.len_bytes - 8, &stamp, sizeof(stamp));
        struct vu_send write =
            rig_send(&rig, IBV_WR_RDMA_WRITE, 1, SPAN + shape.at, shape.len_bytes);
        write.remote = rig.peer.addr + shape.at;
        vu_barrier(sock);
        rig_post(&rig, &write);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void last_b(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {31};
    (void)param;
    rig_open(&rig, sock, NULL);
    for (uint32_t i = 0; ends_in_order() && i < ROUNDS; i++) {
        const struct shape shape = next_marked(&random, i);
        const uint32_t data_bytes = shape.len_bytes - 8;
        memset(rig.buf, 3 - shape.stamp, SPAN);
        vu_barrier(sock);
        await_word(rig.buf + shape.at + data_bytes, i + 1);
        check_below(rig.buf + shape.at, data_bytes, shape.stamp);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

/* What else goes to a queue pair that was asked. */
static void messages_a(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {51};
    rig_open(&rig, sock, NULL);
    for (uint32_t i = 0; i < ROUNDS / 8; i++) {
        const struct shape shape = next_shape(&random, i);
        struct vu_send send =
            rig_send(&rig, (enum ibv_wr_opcode)param, 1, SPAN + shape.at, shape.len_bytes);
        send.remote = rig.peer.addr + shape.at;
        memset(rig.buf + SPAN + shape.at, shape.stamp, shape.len_bytes);
        vu_barrier(sock);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void messages_b(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {51};
    const struct rig_attr attr = {0};
    (void)param;
    rig_prepare(&rig, sock, &attr);
    VU_EQ(ask(&rig, IBV_WR_RDMA_WRITE), IS_POSSIBLE);
    rig_connect(&rig, NULL);
    for (uint32_t i = 0; i < ROUNDS / 8; i++) {
        const struct shape shape = next_shape(&random, i);
        rig_recv(&rig, 1, shape.at, shape.len_bytes);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, 1, IBV_WC_SUCCESS);
        rig_bytes_now(&rig, shape.at, shape.len_bytes, shape.stamp);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

/* It has pages of its own and of its children, one after the other. */
#define CHILDREN 12

static void forking_a(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {41};
    (void)param;
    rig_open(&rig, sock, NULL);
    for (uint32_t i = 0; i < ROUNDS / 4; i++) {
        const struct shape shape = next_shape(&random, i);
        vu_barrier(sock);
        post_stamp(&rig, &shape);
        struct vu_send read = rig_send(&rig, IBV_WR_RDMA_READ, 2, SPAN + shape.at, shape.len_bytes);
        read.remote = rig.peer.addr + shape.at;
        memset(rig.buf + SPAN + shape.at, 0, shape.len_bytes);
        rig_post(&rig, &read);
        vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
        rig_bytes_now(&rig, SPAN + shape.at, shape.len_bytes, shape.stamp);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void forking_b(int sock, int param)
{
    struct rig rig;
    struct vu_random random = {41};
    const struct rig_attr attr = {0};
    (void)param;
    rig_prepare(&rig, sock, &attr);
    VU_EQ(ask(&rig, IBV_WR_RDMA_WRITE), IS_POSSIBLE);
    rig_connect(&rig, NULL);
    for (uint32_t i = 0; i < ROUNDS / 4; i++) {
        const struct shape shape = next_shape(&random, i);
        memset(rig.buf, 3 - shape.stamp, SPAN);
        vu_barrier(sock);
        const pid_t child = i % (ROUNDS / 4 / CHILDREN) ? -1 : fork();
        if (!child)
            _exit(0);
        await_byte(rig.buf + shape.at + shape.watched, shape.stamp);
        check_below(rig.buf + shape.at, IS_POSSIBLE ? shape.watched : 0, shape.stamp);
        if (child > 0)
            VU_EQ(waitpid(child, NULL, 0), child);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

/* The answer belongs to a queue pair and an opcode, not to a moment. */
static void answers(int sock, int param)
{
    struct rig rig;
    (void)param;
    const struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    const int imm = IS_POSSIBLE && !vu_is_iwarp(&rig.dev);
    for (int i = 0; i < 2; i++) {
        VU_EQ(ask(&rig, IBV_WR_RDMA_WRITE), IS_POSSIBLE);
        VU_EQ(ask(&rig, IBV_WR_RDMA_WRITE_WITH_IMM), imm);
        VU_EQ(ask(&rig, IBV_WR_RDMA_READ), 0);
        VU_EQ(ask(&rig, IBV_WR_SEND), 0);
        VU_EQ(ask(&rig, IBV_WR_ATOMIC_FETCH_AND_ADD), 0);
        if (i == 0)
            rig_connect(&rig, NULL);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_in_order[] = {
    {"in_order__asked_before_connecting", asked_a, asked_b, ASKED_EARLY},
    {"in_order__asked_amid_writes", asked_a, asked_b, ASKED_LATE},
    {"in_order__second_write_is_a_mark", mark_a, mark_b, 0},
    {"uc_in_order__asked_before_connecting", asked_a, asked_b, UNRELIABLE | ASKED_EARLY},
    {"uc_in_order__second_write_is_a_mark", mark_a, mark_b, UNRELIABLE},
    {"in_order__last_word_unasked", last_a, last_b, 0},
    {"in_order__sends", messages_a, messages_b, IBV_WR_SEND},
    {"in_order__write_imm", messages_a, messages_b, IBV_WR_RDMA_WRITE_WITH_IMM},
    {"in_order__peer_forks", forking_a, forking_b, SEM_PROCESSES},
    {"in_order__answers", answers, answers, 0},
    {0},
};

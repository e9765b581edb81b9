/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: SENDs of several elements into receives of several, around the lengths at which a link
 * takes another way; the memory begins and ends within pages. */
#include <alloca.h>
#include <stdlib.h>
#include <string.h>

#include "sem.h"

#define PIECES 4
#define REGIONS (PIECES + 1)
#define PAGE 4096u
#define AROUND 64u /* bytes on either side, which nobody may touch */
#define UNTOUCHED 0xe7

static const uint32_t sizes[] = {229, 4095, 4096, 4097, 4160, 8192, 16384, 16448, 65536};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

/* The last is of less than a page, as is the memory of a command ahead of its data. */
static const struct {
    uint32_t skew, len_bytes;
} shapes[REGIONS] = {{64, 65536}, {0, 65600}, {4032, 65537}, {1001, 65536}, {200, 300}};

struct pieces {
    struct vu_dev dev;
    struct vu_ep ep;
    uint8_t *memory[REGIONS];
    struct ibv_mr *mrs[REGIONS];
};

static void open_pieces(struct pieces *p, int sock, enum ibv_qp_type type)
{
    const struct vu_ep_attr attr = {.type = type};
    vu_dev_open(&p->dev);
    vu_ep_create(&p->dev, &attr, &p->ep);
    for (uint32_t i = 0; i < REGIONS; i++) {
        p->memory[i] = aligned_alloc(PAGE, 20 * PAGE);
        VU_CHECK(p->memory[i], "out of memory");
        memset(p->memory[i], UNTOUCHED, 20 * PAGE);
        p->mrs[i] = vu_reg(&p->dev, p->memory[i] + shapes[i].skew, shapes[i].len_bytes,
                           IBV_ACCESS_LOCAL_WRITE);
    }
    vu_connect(&p->ep, sock, NULL);
}

static void close_pieces(struct pieces *p)
{
    vu_ep_destroy(&p->ep);
    for (uint32_t i = 0; i < REGIONS; i++) {
        VU_EQ(ibv_dereg_mr(p->mrs[i]), 0);
        free(p->memory[i]);
    }
    vu_dev_close(&p->dev);
}

/* Elements for a message: the first is short if `with_command`; the others lie by turns at the end
 * and at the start of their regions. */
static int cut(const struct pieces *p, uint32_t len_bytes, uint32_t count, bool with_command,
               struct ibv_sge sges[PIECES])
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t region = i == 0 && with_command ? PIECES : i;
        uint32_t piece = i + 1 == count ? len_bytes : len_bytes / (count - i) + 13 * i;
        if (region == PIECES && i + 1 < count)
            piece = 64;
        if (piece > shapes[region].len_bytes)
            piece = shapes[region].len_bytes;
        const uint32_t at = i % 2 ? 0 : shapes[region].len_bytes - piece;
        sges[i] =
            (struct ibv_sge){(uintptr_t)p->mrs[region]->addr + at, piece, p->mrs[region]->lkey};
        len_bytes -= piece;
    }
    VU_EQ(len_bytes, 0);
    return (int)count;
}

static uint8_t byte_of(uint32_t message, uint32_t at)
{
    return (uint8_t)(message * 31 + at * 7 + (at >> 8) + 1);
}

static void fill(const struct ibv_sge *sges, int count, uint32_t message)
{
    uint32_t at = 0;
    for (int i = 0; i < count; i++)
        for (uint32_t j = 0; j < sges[i].length; j++)
            ((uint8_t *)(uintptr_t)sges[i].addr)[j] = byte_of(message, at++);
}

/* What came, and nothing beside it. */
static void look(const struct ibv_sge *sges, int count, uint32_t message)
{
    uint32_t at = 0;
    for (int i = 0; i < count; i++) {
        uint8_t *piece = (uint8_t *)(uintptr_t)sges[i].addr;
        const uint32_t before = (uintptr_t)piece % PAGE < AROUND ? (uintptr_t)piece % PAGE : AROUND;
        for (uint32_t j = 0; j < sges[i].length; j++, at++)
            VU_EQ(piece[j], byte_of(message, at));
        for (uint32_t j = 1; j <= before; j++)
            VU_EQ(*(piece - j), UNTOUCHED);
        for (uint32_t j = 0; j < AROUND; j++)
            VU_EQ(piece[sges[i].length + j], UNTOUCHED);
        memset(piece, UNTOUCHED, sges[i].length);
    }
}

/* Each length, by 1 to 4 elements there and by 1 to 4 here. */
#define MESSAGES (SIZES * PIECES * PIECES)

static int cut_here(const struct pieces *p, bool receives, uint32_t message,
                    struct ibv_sge sges[PIECES])
{
    const uint32_t count = 1 + (receives ? message / PIECES : message) % PIECES;
    return cut(p, sizes[message / (PIECES * PIECES)], count, count > 1 && message % 3, sges);
}

static void pieces_a(int sock, int param)
{
    struct pieces p;
    struct ibv_sge sges[PIECES];
    open_pieces(&p, sock, (enum ibv_qp_type)param);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        const int count = cut_here(&p, false, i, sges);
        struct ibv_send_wr wr = {.wr_id = i,
                                 .sg_list = sges,
                                 .num_sge = count,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        fill(sges, count, i);
        vu_barrier(sock);
        VU_EQ(ibv_post_send(p.ep.qp, &wr, &bad), 0);
        vu_expect(p.ep.scq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    close_pieces(&p);
}

static void pieces_b(int sock, int param)
{
    struct pieces p;
    struct ibv_sge sges[PIECES];
    open_pieces(&p, sock, (enum ibv_qp_type)param);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        const int count = cut_here(&p, true, i, sges);
        struct ibv_recv_wr wr = {.wr_id = i, .sg_list = sges, .num_sge = count}, *bad;
        VU_EQ(ibv_post_recv(p.ep.qp, &wr, &bad), 0);
        vu_barrier(sock);
        VU_EQ(vu_expect(p.ep.rcq, i, IBV_WC_SUCCESS).byte_len, sizes[i / (PIECES * PIECES)]);
        look(sges, count, i);
    }
    vu_barrier(sock);
    close_pieces(&p);
}

/* More than a link can keep for a receiver that does not look: the memory is that of a stack, which
 * no peer can map. */
#define STREAM 60u
#define STREAM_BYTES 7001u

static void stream_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    for (uint32_t i = 0; i < STREAM; i++) {
        uint8_t *from = rig.buf + (i % 32) * STREAM_BYTES;
        if (i >= 32) /* it is used again */
            vu_expect(rig.ep.scq, i - 32, IBV_WC_SUCCESS);
        memset(from, (int)i + 1, STREAM_BYTES);
        const struct vu_send send = {.opcode = IBV_WR_SEND,
                                     .wr_id = i,
                                     .flags = IBV_SEND_SIGNALED,
                                     .addr = from,
                                     .len_bytes = STREAM_BYTES - i,
                                     .lkey = rig.mr->lkey};
        rig_post(&rig, &send);
    }
    for (uint32_t i = STREAM - 32; i < STREAM; i++)
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void stream_b(int sock, int param)
{
    (void)param;
    const volatile size_t bytes = STREAM * STREAM_BYTES; /* or the frame is said to be too large */
    uint8_t *memory = alloca(bytes);
    struct rig rig;
    rig_open(&rig, sock, NULL);
    memset(memory, UNTOUCHED, bytes);
    struct ibv_mr *mr = vu_reg(&rig.dev, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    for (uint32_t i = 0; i < STREAM; i++)
        VU_EQ(vu_post_recv(rig.ep.qp, i, memory + i * STREAM_BYTES, STREAM_BYTES, mr->lkey), 0);
    vu_barrier(sock);
    for (uint32_t i = 0; i < STREAM; i++) {
        const uint8_t *piece = memory + i * STREAM_BYTES;
        VU_EQ(vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS).byte_len, STREAM_BYTES - i);
        for (uint32_t j = 0; j < STREAM_BYTES; j++)
            VU_EQ(piece[j], j < STREAM_BYTES - i ? i + 1 : UNTOUCHED);
    }
    vu_barrier(sock);
    VU_EQ(ibv_dereg_mr(mr), 0);
    rig_close(&rig);
}

const struct sem_case sem_pieces[] = {
    {"pieces__every_cut", pieces_a, pieces_b, IBV_QPT_RC},
    {"pieces__every_cut_uc", pieces_a, pieces_b, IBV_QPT_UC},
    {"pieces__more_than_is_kept", stream_a, stream_b, 0},
    {0},
};

/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: faults on purpose over packets (docs/faults.md) that datagrams meet. */
#include <string.h>

#include "ud_side.h"

/* Three datagrams, of which the sender's or the receiver's rules take or give one. */
struct loss {
    const char *sender, *receiver;
    uint8_t values[4]; /* what comes, ending with 0 */
};
static const struct loss losses[] = {
    {"drop packet 2 opcode datagram\n", "", {1, 3}},
    {"", "drop received packet 2 opcode datagram\n", {1, 3}},
    {"duplicate packet 2\n", "", {1, 2, 2, 3}},
    {"corrupt packet 2\n", "", {1, 3}},
    {"reorder 400ms packet 1\n", "", {2, 3, 1}},
    {"", "reorder 400ms received packet 1\n", {2, 3, 1}},
};
#define LOSSES (sizeof(losses) / sizeof(losses[0]))

static void datagrams_a(int sock, int param)
{
    struct ud_side side;
    sem_misbehave(losses[param].sender);
    ud_open(&side, sock, NULL);
    vu_barrier(sock);
    for (uint32_t i = 1; i <= 3; i++) {
        memset(side.buf + i * 1000, (int)i, 1000);
        ud_send(&side, &(struct ud_send){.wr_id = i, .at = i * 1000, .len_bytes = 1000});
        vu_sleep_ms(5);
    }
    vu_barrier(sock);
    ud_close(&side);
}

static void datagrams_b(int sock, int param)
{
    const uint8_t *values = losses[param].values;
    struct ud_side side;
    sem_misbehave(losses[param].receiver);
    ud_open(&side, sock, NULL);
    for (uint64_t i = 0; i < 4; i++)
        ud_recv(&side, side.qp, i, UD_SLOT);
    vu_barrier(sock);
    uint64_t i = 0;
    for (; i < 4 && values[i]; i++) {
        vu_expect(side.rcq, i, IBV_WC_SUCCESS);
        ud_check(&side, i, 1000, values[i]);
    }
    vu_expect_none(side.rcq, UD_QUIET_MS);
    vu_barrier(sock);
    ud_close(&side);
}

/* A datagram is complete when it has left: what the program then does to its memory does not change
 * what is on its way, however long that takes. */
static void held_a(int sock, int param)
{
    (void)param;
    struct ud_side side;
    sem_misbehave("delay 100ms\n");
    ud_open(&side, sock, NULL);
    memset(side.buf, 9, 4000);
    vu_barrier(sock);
    ud_send(&side, &(struct ud_send){.wr_id = 1, .len_bytes = 4000});
    memset(side.buf, 0, 4000);
    ud_close(&side);
    vu_barrier(sock);
}

static void held_b(int sock, int param)
{
    (void)param;
    struct ud_side side;
    ud_open(&side, sock, NULL);
    ud_recv(&side, side.qp, 0, UD_SLOT);
    vu_barrier(sock);
    uint64_t before_ms = vu_now_ms();
    vu_expect(side.rcq, 0, IBV_WC_SUCCESS);
    ud_check(&side, 0, 4000, 9);
    VU_TRUE(vu_now_ms() - before_ms >= 90);
    vu_barrier(sock);
    ud_close(&side);
}

#define UD_ONE(name, index)                                                                   \
    {                                                                                         \
        "faults__datagram_" name, datagrams_a, datagrams_b, (index) | SEM_ALONE | SEM_ON_WIRE \
    }

const struct sem_case sem_faults_ud[] = {
    UD_ONE("lost", 0),
    UD_ONE("lost_as_it_came", 1),
    UD_ONE("doubled", 2),
    UD_ONE("corrupted", 3),
    UD_ONE("late", 4),
    UD_ONE("late_as_it_came", 5),
    {"faults__what_is_held_is_a_copy", held_a, held_b, SEM_ALONE | SEM_ON_WIRE},
    {0},
};
_Static_assert(LOSSES == 6, "each has its case");

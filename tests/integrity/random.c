/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs of verbs calls on a few processes, checked against the reference model (model.h):
 * random [--seed N] [--programs N] [--seconds N] [--trace]
 * Program i of a run has seed N + i, so what fails is repeated alone with the seed it names. All
 * processes draw the same program; each carries out its part and expects exactly the completions,
 * the states and the memory that the model says.
 */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "draw.h"

#define POLL_TIMEOUT_MS 10000
#define STALL_S 60
#define ROUNDS 5
#define BAD_KEY 0x5a5a5a00u
#define SRQ_BIT (1ull << 62)

/* What the processes tell each other. */
struct board {
    pthread_barrier_t barrier;
    bool done;
    struct {
        uint64_t base;
        union ibv_gid gid;
        uint32_t rkeys[MRS], stale_rkey;
    } procs[PROCS];
    struct {
        uint32_t qpn, send_cap, recv_cap, sge_cap, inline_cap;
    } ends[CONNS][2];
};

struct run {
    uint64_t seed;
    int programs, seconds;
    bool trace;
};

struct part { /* of one process */
    const struct run *run;
    struct board *board;
    int proc;
    struct vu_dev dev;
    uint8_t *arena;
    struct model model;
    struct draw draw;
    struct draw_round round;
    struct ibv_mr *mrs[MRS], *srq_mr;
    uint32_t stale_lkey;
    struct ibv_cq *cqs[CQS];
    struct ibv_srq *srq;
    bool srq_taken[RECV_SLOTS]; /* false: posted */
    struct vu_ep eps[CONNS][2];
    struct draw_end_attr attrs[CONNS][2];
    int seen[CONNS][2][2]; /* completions of this round, sends and receives */
};

#define TRACE(part, ...)                  \
    do {                                  \
        if ((part)->run->trace)           \
            fprintf(stderr, __VA_ARGS__); \
    } while (0)

static void meet(struct part *part)
{
    int rc = pthread_barrier_wait(&part->board->barrier);
    VU_TRUE(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
}

static struct model_end *end_of(struct part *part, int conn, int side)
{
    struct model_end *end = &part->model.conns[conn].ends[side];
    return end->proc == part->proc ? end : NULL;
}

/* --- between rounds --- */

static void act_mrs(struct part *part)
{
    for (int slot = 0; slot < MRS; slot++) {
        enum mr_act act = part->round.mr_acts[part->proc][slot];
        const struct model_mr *mr = &part->model.mrs[part->proc][slot];
        if (act == MR_DEREGISTER) {
            part->stale_lkey = part->mrs[slot]->lkey;
            part->board->procs[part->proc].stale_rkey = part->mrs[slot]->rkey;
            VU_EQ(ibv_dereg_mr(part->mrs[slot]), 0);
            part->mrs[slot] = NULL;
        } else if (act == MR_REGISTER) {
            TRACE(part, "p%d mr %d: 0x%x + 0x%x access 0x%x\n", part->proc, slot, mr->offset,
                  mr->len_bytes, mr->access);
            part->mrs[slot] =
                vu_reg(&part->dev, part->arena + mr->offset, mr->len_bytes, mr->access);
            part->board->procs[part->proc].rkeys[slot] = part->mrs[slot]->rkey;
        }
    }
    /* A new region may have got the number of an old one. */
    for (int slot = 0; slot < MRS; slot++) {
        if (part->mrs[slot] && part->mrs[slot]->lkey == part->stale_lkey)
            part->stale_lkey = 0;
        if (part->mrs[slot] && part->mrs[slot]->rkey == part->board->procs[part->proc].stale_rkey)
            part->board->procs[part->proc].stale_rkey = 0;
    }
}

static void act_break(struct part *part, int conn, int side)
{
    const struct draw_conn_acts *acts = &part->round.conns[conn];
    if (acts->error[side])
        vu_ep_to(&part->eps[conn][side], IBV_QPS_ERR);
    if (acts->reset[side])
        vu_ep_to(&part->eps[conn][side], IBV_QPS_RESET);
    if (acts->revive[side])
        vu_ep_to(&part->eps[conn][side], IBV_QPS_RTS);
    if (acts->destroy[side])
        vu_ep_destroy(&part->eps[conn][side]);
}

static void act_create(struct part *part, int conn, int side)
{
    const struct draw_end_attr *drawn = &part->round.conns[conn].attrs[side];
    struct vu_ep_attr attr = {.type = part->model.conns[conn].type,
                              .send_wr = drawn->send_wr,
                              .recv_wr = drawn->recv_wr,
                              .send_sge = drawn->sges,
                              .recv_sge = drawn->sges,
                              .inline_bytes = drawn->inline_bytes,
                              .sig_all = drawn->sig_all,
                              .srq = drawn->uses_srq ? part->srq : NULL,
                              .send_cq = part->cqs[drawn->send_cq],
                              .recv_cq = part->cqs[drawn->recv_cq]};
    struct vu_ep *ep = &part->eps[conn][side];
    vu_ep_create(&part->dev, &attr, ep);
    TRACE(part, "p%d conn %d side %d: QP 0x%x, srq %d\n", part->proc, conn, side, ep->qp->qp_num,
          attr.srq != NULL);
    __typeof__(&part->board->ends[0][0]) note = &part->board->ends[conn][side];
    note->qpn = ep->qp->qp_num;
    note->send_cap = ep->send_wr;
    note->recv_cap = ep->recv_wr;
    note->sge_cap = drawn->sges;
    note->inline_cap = ep->inline_bytes;
}

static void act_connect(struct part *part, int conn, int side)
{
    const struct draw_conn_acts *acts = &part->round.conns[conn];
    struct vu_ep *ep = &part->eps[conn][side];
    if (acts->init) {
        part->attrs[conn][side] = acts->attrs[side];
        vu_ep_init(ep, &acts->attrs[side].conn);
    }
    if (acts->connect) {
        int other = part->model.conns[conn].ends[!side].proc;
        struct vu_peer peer = {.qpn = part->board->ends[conn][!side].qpn,
                               .gid = part->board->procs[other].gid};
        vu_ep_rtr(ep, &peer, &part->attrs[conn][side].conn);
        vu_ep_rts(ep, &part->attrs[conn][side].conn);
    }
}

static void each_own_end(struct part *part, void (*act)(struct part *, int, int), bool creating)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            if (part->model.conns[conn].ends[side].proc == part->proc &&
                (!creating || part->round.conns[conn].create))
                act(part, conn, side);
    meet(part);
}

static void learn_caps(struct part *part)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++) {
            struct model_end *end = &part->model.conns[conn].ends[side];
            __typeof__(&part->board->ends[0][0]) note = &part->board->ends[conn][side];
            end->send_cap = note->send_cap;
            end->recv_cap = note->recv_cap;
            end->sge_cap = note->sge_cap;
            end->inline_cap = note->inline_cap;
        }
}

/* --- work --- */

static struct ibv_sge local_sge(const struct part *part, const struct model_sge *sge)
{
    uint32_t key = part->mrs[sge->mr] ? part->mrs[sge->mr]->lkey : BAD_KEY;
    if (sge->key == KEY_BAD)
        key ^= BAD_KEY;
    else if (sge->key == KEY_STALE)
        key = part->stale_lkey ? part->stale_lkey : BAD_KEY;
    return (struct ibv_sge){(uintptr_t)part->arena + sge->offset, sge->len_bytes, key};
}

static void trace_sges(const struct model_sge *sges, int count)
{
    for (int i = 0; i < count; i++)
        fprintf(stderr, " [mr %d key %d 0x%x+%u]", sges[i].mr, (int)sges[i].key, sges[i].offset,
                sges[i].len_bytes);
}

static void trace_op(const struct part *part, const struct model_op *op)
{
    fprintf(stderr, "p%d post %llx: opcode %d flags 0x%x", part->proc,
            (unsigned long long)op->wr_id, (int)op->opcode, op->flags);
    trace_sges(op->sges, op->sge_count);
    fprintf(stderr, " -> mr %d key %d 0x%x\n", op->remote.mr, (int)op->remote.key,
            op->remote.offset);
}

static void post_recvs(struct part *part, int conn, int side)
{
    const struct draw_recvs *list = &part->round.recvs[conn][side];
    for (int i = 0; i < list->count; i++) {
        const struct model_recv *recv = &list->recvs[i];
        struct ibv_sge sges[SGES];
        for (int s = 0; s < recv->sge_count; s++)
            sges[s] = local_sge(part, &recv->sges[s]);
        struct ibv_recv_wr wr = {.wr_id = recv->wr_id, .sg_list = sges, .num_sge = recv->sge_count},
                           *bad = NULL;
        int rc = ibv_post_recv(part->eps[conn][side].qp, &wr, &bad);
        if (part->run->trace) {
            fprintf(stderr, "p%d recv %llx:", part->proc, (unsigned long long)recv->wr_id);
            trace_sges(recv->sges, recv->sge_count);
            fprintf(stderr, ": rc %d\n", rc);
        }
        VU_EQ(rc, i + 1 < list->count ? 0 : list->rc);
        VU_TRUE(!rc || bad == &wr);
    }
}

static uint8_t *srq_slot(const struct part *part, uint64_t slot)
{
    return part->arena + SRQ_LANE * LANE_BYTES + slot * SLOT_BYTES;
}

static void post_srq(struct part *part)
{
    uint32_t slot = 0;
    for (uint32_t left = part->round.srq_posts[part->proc]; left; slot++) {
        VU_TRUE(slot < RECV_SLOTS);
        if (!part->srq_taken[slot])
            continue;
        part->srq_taken[slot] = false;
        left--;
        TRACE(part, "p%d srq %u\n", part->proc, slot);
        VU_EQ(vu_post_srq(part->srq, SRQ_BIT | RECV_BIT | slot, srq_slot(part, slot), SLOT_BYTES,
                          part->srq_mr->lkey),
              0);
    }
}

/* What a READ without a completion brought has been seen, but not in a way a sanitizer knows. */
__attribute__((no_sanitize("thread"))) static void
copy_out(uint8_t *to, const volatile uint8_t *from, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        to[i] = from[i];
}

static void fill_wr(struct part *part, int to, const struct model_op *op, struct ibv_send_wr *wr,
                    struct ibv_sge *sges, uint8_t *scratch)
{
    memset(wr, 0, sizeof(*wr));
    wr->wr_id = op->wr_id;
    wr->opcode = op->opcode;
    wr->send_flags = op->flags;
    wr->sg_list = sges;
    wr->num_sge = op->sge_count;
    wr->imm_data = htobe32(op->imm);
    for (int i = 0; i < op->sge_count; i++) {
        sges[i] = local_sge(part, &op->sges[i]);
        if (op->flags & IBV_SEND_INLINE) { /* from a copy that is spoilt when the post returns */
            copy_out(scratch, part->arena + op->sges[i].offset, sges[i].length);
            sges[i].addr = (uintptr_t)scratch;
            sges[i].lkey = 0;
            scratch += sges[i].length;
        }
    }
    uint64_t addr = part->board->procs[to].base + op->remote.offset;
    uint32_t rkey = part->board->procs[to].rkeys[op->remote.mr];
    if (op->remote.key == KEY_BAD)
        rkey ^= BAD_KEY;
    else if (op->remote.key == KEY_STALE)
        rkey = part->board->procs[to].stale_rkey ? part->board->procs[to].stale_rkey : BAD_KEY;
    if (model_need(op->opcode) == IBV_ACCESS_REMOTE_ATOMIC) {
        wr->wr.atomic.remote_addr = addr;
        wr->wr.atomic.rkey = rkey;
        wr->wr.atomic.compare_add = op->compare_add;
        wr->wr.atomic.swap = op->swap;
    } else {
        wr->wr.rdma.remote_addr = addr;
        wr->wr.rdma.rkey = rkey;
    }
}

static void post_sends(struct part *part, int conn, int dir)
{
    static uint8_t scratch[LIST_MAX][LANE_BYTES];
    const struct draw_sends *list = &part->round.sends[conn][dir];
    struct ibv_send_wr wrs[LIST_MAX], *bad = NULL;
    struct ibv_sge sges[LIST_MAX][SGES];
    struct ibv_qp *qp = part->eps[conn][dir].qp;
    for (int i = 0; i < list->count; i++) {
        fill_wr(part, part->model.conns[conn].ends[!dir].proc, &list->ops[i], &wrs[i], sges[i],
                scratch[i]);
        wrs[i].next = list->chain && i + 1 < list->count ? &wrs[i + 1] : NULL;
        if (part->run->trace)
            trace_op(part, &list->ops[i]);
    }
    int step = list->chain ? list->count : 1;
    for (int first = 0; first < list->count; first += step) {
        int last = first + step - 1;
        VU_EQ(ibv_post_send(qp, &wrs[first], &bad), last + 1 < list->count ? 0 : list->rc);
        VU_TRUE(last + 1 < list->count || !list->rc || bad == &wrs[last]);
    }
    memset(scratch, 0xdd, (size_t)list->count * LANE_BYTES);
}

/* --- what comes of it --- */

static void check_arrived(struct part *part, const struct model_expect *one,
                          const struct ibv_wc *wc)
{
    if (one->any_wr_id) {
        uint64_t slot = wc->wr_id & ~(SRQ_BIT | RECV_BIT);
        VU_TRUE(wc->wr_id & SRQ_BIT && slot < RECV_SLOTS && !part->srq_taken[slot]);
        part->srq_taken[slot] = true;
        if (one->payload)
            VU_CHECK(memcmp(srq_slot(part, slot), one->payload, one->byte_len) == 0,
                     "not what was sent");
        return;
    }
    for (int i = 0; one->undefined && i < one->recv.sge_count; i++) {
        const struct model_sge *sge = &one->recv.sges[i];
        if (sge->key == KEY_GOOD && sge->offset + sge->len_bytes <= ARENA_BYTES)
            memcpy(part->model.shadows[part->proc] + sge->offset, part->arena + sge->offset,
                   sge->len_bytes);
    }
}

static void check_wc(struct part *part, int conn, int side, const struct ibv_wc *wc)
{
    struct model_end *end = end_of(part, conn, side);
    VU_TRUE(end);
    bool receive = wc->wr_id & RECV_BIT;
    struct model_queue *queue = receive ? &end->receives : &end->sends;
    int *seen = &part->seen[conn][side][receive];
    TRACE(part, "p%d conn %d side %d wr %llx: %s\n", part->proc, conn, side,
          (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
    VU_CHECK(*seen < queue->count, "a completion nobody waits for: wr %llx: %s",
             (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
    const struct model_expect *one = &queue->expects[(*seen)++];
    if ((wc->wr_id != one->wr_id && !one->any_wr_id) ||
        (one->not_success ? wc->status == IBV_WC_SUCCESS : wc->status != one->status))
        VU_FAIL("conn %d side %d %s: wr %llx with \"%s\", not %llx with \"%s\"", conn, side,
                receive ? "receive" : "send", (unsigned long long)wc->wr_id,
                ibv_wc_status_str(wc->status), (unsigned long long)one->wr_id,
                one->not_success ? "an error" : ibv_wc_status_str(one->status));
    if (receive)
        check_arrived(part, one, wc);
    if (wc->status != IBV_WC_SUCCESS)
        return; /* the rest of it means nothing */
    VU_EQ(wc->opcode, one->opcode);
    if (one->has_len)
        VU_EQ(wc->byte_len, one->byte_len);
    if (receive)
        VU_EQ(!!(wc->wc_flags & IBV_WC_WITH_IMM), one->has_imm);
    if (one->has_imm)
        VU_EQ(be32toh(wc->imm_data), one->imm);
}

static void dispatch(struct part *part, const struct ibv_wc *wc)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++) {
            const struct model_end *end = end_of(part, conn, side);
            if (end && end->exists && part->eps[conn][side].qp->qp_num == wc->qp_num) {
                check_wc(part, conn, side, wc);
                return;
            }
        }
    VU_FAIL("a completion of QP 0x%x, which is not", wc->qp_num);
}

static int poll_all(struct part *part)
{
    struct ibv_wc wcs[8];
    int total = 0;
    for (int cq = 0; cq < CQS; cq++) {
        int n = ibv_poll_cq(part->cqs[cq], 8, wcs);
        VU_TRUE(n >= 0);
        for (int i = 0; i < n; i++)
            dispatch(part, &wcs[i]);
        total += n;
    }
    return total;
}

/* All expected completions are here and the QPs are in the states they must be in. */
static bool is_settled(struct part *part, char *why, size_t room)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++) {
            const struct model_end *end = end_of(part, conn, side);
            if (!end || !end->exists)
                continue;
            const int *seen = part->seen[conn][side];
            if (seen[0] < end->sends.count || seen[1] < end->receives.count) {
                snprintf(why, room, "conn %d side %d: %d of %d sends, %d of %d receives", conn,
                         side, seen[0], end->sends.count, seen[1], end->receives.count);
                return false;
            }
            enum ibv_qp_state state = vu_ep_state(&part->eps[conn][side]);
            if (state != end->state) {
                snprintf(why, room, "conn %d side %d is in state %d, not %d", conn, side,
                         (int)state, (int)end->state);
                return false;
            }
        }
    return true;
}

/* Memory that the engine may still be writing, which is what is being waited for: no sanitizer's
 * business. */
__attribute__((no_sanitize("thread"))) static bool memory_agrees(const struct part *part,
                                                                 uint64_t *at)
{
    const volatile uint64_t *seen = (const volatile uint64_t *)part->arena;
    const uint64_t *shadow = (const uint64_t *)part->model.shadows[part->proc];
    for (uint64_t i = 0; i < SRQ_LANE * LANE_BYTES / 8; i++) {
        uint64_t differs = seen[i] ^ shadow[i];
        if (!differs)
            continue;
        *at = i * 8 + (uint64_t)__builtin_ctzll(differs) / 8;
        return false;
    }
    return true;
}

static void settle(struct part *part)
{
    char why[120];
    uint64_t deadline = vu_now_ms() + POLL_TIMEOUT_MS;
    while (poll_all(part) || !is_settled(part, why, sizeof(why))) {
        VU_CHECK(vu_now_ms() < deadline, "%s", why);
        sched_yield();
    }
    /* What no completion was asked for is done in its own time. */
    uint64_t at = 0;
    while (!memory_agrees(part, &at)) {
        VU_CHECK(vu_now_ms() < deadline, "byte 0x%llx (lane %llu) is 0x%02x, not 0x%02x",
                 (unsigned long long)at, (unsigned long long)at / LANE_BYTES, part->arena[at],
                 part->model.shadows[part->proc][at]);
        poll_all(part);
        sched_yield();
    }
    meet(part);
    poll_all(part); /* one too many fails there, */
    VU_CHECK(memory_agrees(part, &at), "byte 0x%llx changed late", (unsigned long long)at);
}

static void drop_events(struct part *part)
{
    while (vu_async_event(part->dev.ctx, (enum ibv_event_type) - 1, 0))
        ;
}

static void run_round(struct part *part)
{
    draw_admin(&part->draw, &part->round);
    memset(part->seen, 0, sizeof(part->seen));
    act_mrs(part);
    each_own_end(part, act_break, false);
    each_own_end(part, act_create, true);
    learn_caps(part);
    each_own_end(part, act_connect, false);
    draw_work(&part->draw, &part->round);
    post_srq(part);
    each_own_end(part, post_recvs, false);
    for (int conn = 0; conn < CONNS; conn++)
        for (int dir = 0; dir < 2; dir++)
            if (end_of(part, conn, dir) && part->round.sends[conn][dir].count)
                post_sends(part, conn, dir);
    settle(part);
    meet(part);
}

static void begin(struct part *part)
{
    for (int cq = 0; cq < CQS; cq++) {
        part->cqs[cq] = ibv_create_cq(part->dev.ctx, 512, NULL, NULL, 0);
        VU_TRUE(part->cqs[cq]);
    }
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = RECV_SLOTS, .max_sge = 1}};
    part->srq = ibv_create_srq(part->dev.pd, &attr);
    VU_TRUE(part->srq);
    part->srq_mr = vu_reg(&part->dev, srq_slot(part, 0), LANE_BYTES, IBV_ACCESS_LOCAL_WRITE);
    memset(part->srq_taken, true, sizeof(part->srq_taken));
    part->stale_lkey = part->board->procs[part->proc].stale_rkey = 0;
}

static void end(struct part *part)
{
    drop_events(part);
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            if (end_of(part, conn, side) && end_of(part, conn, side)->exists)
                vu_ep_destroy(&part->eps[conn][side]);
    for (int slot = 0; slot < MRS; slot++)
        if (part->mrs[slot])
            VU_EQ(ibv_dereg_mr(part->mrs[slot]), 0);
    memset(part->mrs, 0, sizeof(part->mrs));
    VU_EQ(ibv_dereg_mr(part->srq_mr), 0);
    VU_EQ(ibv_destroy_srq(part->srq), 0);
    for (int cq = 0; cq < CQS; cq++)
        VU_EQ(ibv_destroy_cq(part->cqs[cq]), 0);
}

static void run_program(struct part *part, uint64_t seed, const uint8_t *pattern)
{
    char name[64];
    memcpy(part->arena, pattern, ARENA_BYTES);
    draw_open(&part->draw, seed, &part->model, pattern);
    begin(part);
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof(name), "--seed %llu round %d process %d", (unsigned long long)seed,
                 round, part->proc);
        vu_set_side(name);
        run_round(part);
    }
    end(part);
}

static void process(const struct run *run, struct board *board, int proc)
{
    struct part *part = calloc(1, sizeof(*part));
    uint8_t *pattern = malloc(ARENA_BYTES);
    VU_TRUE(part && pattern);
    if (run->trace)
        setvbuf(stderr, NULL, _IOLBF, 4096); /* whole lines, of several processes */
    part->run = run;
    part->board = board;
    part->proc = proc;
    part->arena =
        mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(part->arena != MAP_FAILED);
    part->draw.model = &part->model;
    model_open(&part->model);
    struct vu_random random = {.state = 1};
    vu_random_fill(&random, pattern, ARENA_BYTES);
    vu_dev_open(&part->dev);
    board->procs[proc].base = (uintptr_t)part->arena;
    board->procs[proc].gid = part->dev.gid;
    uint64_t deadline = vu_now_ms() + (uint64_t)run->seconds * 1000;
    int done = 0;
    while (done < run->programs && !board->done) {
        run_program(part, run->seed + (uint64_t)done, pattern);
        done++;
        if (proc == 0 && run->seconds && vu_now_ms() > deadline)
            board->done = true;
        meet(part);
    }
    if (proc == 0)
        printf("seeds %llu to %llu: %d programs\n", (unsigned long long)run->seed,
               (unsigned long long)run->seed + (uint64_t)done - 1, done);
    vu_dev_close(&part->dev);
    model_close(&part->model);
    munmap(part->arena, ARENA_BYTES);
    free(pattern);
    free(part);
    fflush(NULL);
}

/* The first process to fail ends the others, which wait for it. */
static int reap(pid_t *pids, uint64_t deadline)
{
    int left = PROCS, rc = 0;
    while (left) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0 && vu_now_ms() < deadline) {
            vu_sleep_ms(2);
            continue;
        }
        int one = pid <= 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (pid <= 0)
            fprintf(stderr, "  stuck: killed\n");
        else if (WIFSIGNALED(status) && !rc)
            fprintf(stderr, "  killed by signal %d\n", WTERMSIG(status));
        for (int i = 0; i < PROCS; i++)
            if (pids[i] == pid)
                pids[i] = 0;
        left -= pid > 0;
        if (!one || rc)
            continue;
        rc = one;
        for (int i = 0; i < PROCS; i++)
            if (pids[i])
                kill(pids[i], SIGKILL);
    }
    return rc;
}

static int run_all(const struct run *run)
{
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(board != MAP_FAILED);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    VU_EQ(pthread_barrier_init(&board->barrier, &attr, PROCS), 0);
    pid_t pids[PROCS];
    fflush(NULL);
    for (int proc = 0; proc < PROCS; proc++) {
        pids[proc] = fork();
        VU_TRUE(pids[proc] >= 0);
        if (pids[proc] == 0) {
            process(run, board, proc);
            _exit(0);
        }
    }
    uint64_t allowed_s = run->seconds ? (uint64_t)run->seconds + STALL_S : 3600;
    return reap(pids, vu_now_ms() + allowed_s * 1000);
}

int main(int argc, char **argv)
{
    struct run run = {.seed = (uint64_t)time(NULL) * 100000, .programs = 1 << 30};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--trace") == 0)
            run.trace = true;
        else if (strcmp(argv[i], "--seed") == 0)
            run.seed = strtoull(value, NULL, 0), i++;
        else if (strcmp(argv[i], "--programs") == 0)
            run.programs = atoi(value), i++;
        else if (strcmp(argv[i], "--seconds") == 0)
            run.seconds = atoi(value), i++;
        else
            VU_FAIL("usage: random [--seed N] [--programs N] [--seconds N] [--trace]");
    }
    int rc = run_all(&run);
    if (rc == VU_SKIPPED)
        vu_skip("see above");
    return rc ? 1 : 0;
}

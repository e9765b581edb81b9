/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model_impl.h"

#define PAYLOADS ((CONNS * 2 + PROCS * UDS) * LIST_MAX)

void model_open(struct model *model)
{
    memset(model, 0, sizeof(*model));
    for (int proc = 0; proc < PROCS; proc++) {
        model->shadows[proc] = malloc(ARENA_BYTES);
        VU_TRUE(model->shadows[proc]);
    }
    model->payloads = malloc((size_t)PAYLOADS * SLOT_BYTES);
    VU_TRUE(model->payloads);
}

void model_close(struct model *model)
{
    for (int proc = 0; proc < PROCS; proc++)
        free(model->shadows[proc]);
    free(model->payloads);
}

void model_clear(struct model *model, const uint8_t *pattern)
{
    memset(model->mrs, 0, sizeof(model->mrs));
    memset(model->mws, 0, sizeof(model->mws));
    memset(model->conns, 0, sizeof(model->conns));
    memset(model->uds, 0, sizeof(model->uds));
    memset(model->srq_count, 0, sizeof(model->srq_count));
    for (int proc = 0; proc < PROCS; proc++)
        memcpy(model->shadows[proc], pattern, ARENA_BYTES);
}

static void begin_end(struct model_end *end)
{
    end->sends.count = end->receives.count = 0;
    end->sends.is_cut = false;
    end->cut = CUT_NOT;
    end->freed = end->completed;
}

void model_round(struct model *model)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++)
            begin_end(&model->conns[conn].ends[side]);
    for (int proc = 0; proc < PROCS; proc++)
        for (int ud = 0; ud < UDS; ud++)
            begin_end(&model->uds[proc][ud]);
    model->payload_count = 0;
}

uint32_t model_lane(int conn, int dir, enum lane lane)
{
    return (uint32_t)((conn * 2 + dir) * LANE_KINDS + (int)lane) * LANE_BYTES;
}

uint32_t model_ud_lane(int ud, bool receive)
{
    return (uint32_t)(UD_LANE + ud * 2 + receive) * LANE_BYTES;
}

uint32_t model_srq_lane(enum srq srq)
{
    return (uint32_t)(SRQ_LANE + (int)srq) * LANE_BYTES;
}

uint32_t model_total(const struct model_sge *sges, int count)
{
    uint32_t len = 0;
    for (int i = 0; i < count; i++)
        len += sges[i].len_bytes;
    return len;
}

uint32_t model_op_len(const struct model_op *op)
{
    return model_total(op->sges, op->sge_count);
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool model_is_send(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
           opcode == IBV_WR_SEND_WITH_INV;
}

bool model_is_local(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

static bool has_imm(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

int model_need(enum ibv_wr_opcode opcode)
{
    if (model_is_send(opcode) || model_is_local(opcode))
        return 0;
    return is_atomic(opcode)            ? IBV_ACCESS_REMOTE_ATOMIC
           : opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                        : IBV_ACCESS_REMOTE_WRITE;
}

bool model_reaches(const struct model *model, int proc, const struct model_sge *sge, int need)
{
    const struct model_mr *mr = &model->mrs[proc][sge->mr];
    return sge->key == KEY_GOOD && mr->live && mr->generation == sge->generation &&
           (mr->access & need) == need && sge->offset >= mr->offset &&
           sge->offset + sge->len_bytes <= mr->offset + mr->len_bytes;
}

/* The part of a window's key: its own bounds and rights, and for type 2 the peer of the QP it was
 * bound through. */
static bool window_reaches(const struct model *model, int conn, int side,
                           const struct model_sge *sge, int need)
{
    const struct model_mw *mw = &model->mws[model->conns[conn].ends[side].proc][sge->mr];
    return sge->key == KEY_GOOD && mw->live && mw->bound && mw->generation == sge->generation &&
           (mw->type == IBV_MW_TYPE_1 || (mw->conn == conn && mw->side == side)) &&
           (mw->access & need) == need && sge->offset >= mw->offset &&
           sge->offset + sge->len_bytes <= mw->offset + mw->len_bytes;
}

bool model_remote_reaches(const struct model *model, int conn, int side,
                          const struct model_sge *sge, int need)
{
    return sge->window ? window_reaches(model, conn, side, sge, need)
                       : model_reaches(model, model->conns[conn].ends[side].proc, sge, need);
}

bool model_may_bind(const struct model *model, int conn, int side, const struct model_op *op)
{
    int proc = model->conns[conn].ends[side].proc;
    const struct model_mw *mw = &model->mws[proc][op->mw];
    int changes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    int need = IBV_ACCESS_MW_BIND | (op->access & changes ? IBV_ACCESS_LOCAL_WRITE : 0);
    return (mw->type == IBV_MW_TYPE_1 || !mw->bound) &&
           model_reaches(model, proc, &op->remote, need);
}

bool model_may_invalidate(const struct model *model, int conn, int side, const struct model_op *op)
{
    const struct model_mw *mw = &model->mws[model->conns[conn].ends[side].proc][op->remote.mr];
    return op->remote.window && op->remote.key == KEY_GOOD && mw->live && mw->bound &&
           mw->type == IBV_MW_TYPE_2 && mw->conn == conn && mw->side == side;
}

bool model_has_windows(const struct model *model, int proc, int mr)
{
    bool has = false;
    for (int i = 0; i < MWS; i++) {
        const struct model_mw *mw = &model->mws[proc][i];
        has |= mw->live && mw->bound && mw->mr == mr;
    }
    return has;
}

enum srq model_srq_of(const struct model *model, int conn, const struct model_op *op)
{
    return model->conns[conn].type == IBV_QPT_XRC_SEND ? op->srq : SRQ_PLAIN;
}

struct model_expect *model_expect(struct model_queue *queue, uint64_t wr_id,
                                  enum ibv_wc_status status)
{
    VU_TRUE(queue->count < EXPECTS);
    struct model_expect *one = &queue->expects[queue->count++];
    memset(one, 0, sizeof(*one));
    one->wr_id = wr_id;
    one->status = status;
    return one;
}

/* C10-41: what is posted on a QP in the error state, and what was, ends flushed and in order. */
void model_error(struct model_end *end)
{
    end->state = IBV_QPS_ERR;
    for (int i = 0; i < end->recv_count; i++)
        model_expect(&end->receives, end->recvs[i].wr_id, IBV_WC_WR_FLUSH_ERR)->recv =
            end->recvs[i];
    end->recv_count = 0;
}

void model_reset(struct model_end *end)
{
    end->state = IBV_QPS_RESET;
    end->recv_count = 0;
    end->posted = end->completed = end->freed = 0;
}

void model_gather(const struct model *model, int proc, const struct model_op *op, uint8_t *to)
{
    for (int i = 0; i < op->sge_count; i++) {
        memcpy(to, model->shadows[proc] + op->sges[i].offset, op->sges[i].len_bytes);
        to += op->sges[i].len_bytes;
    }
}

void model_scatter(struct model *model, int proc, const struct model_sge *sges, int count,
                   uint32_t skip, const uint8_t *from, uint32_t len)
{
    for (int i = 0; i < count && len; i++) {
        uint32_t skipped = sges[i].len_bytes < skip ? sges[i].len_bytes : skip;
        uint32_t part = sges[i].len_bytes - skipped < len ? sges[i].len_bytes - skipped : len;
        memcpy(model->shadows[proc] + sges[i].offset + skipped, from, part);
        skip -= skipped;
        from += part;
        len -= part;
    }
}

struct model_recv model_take(struct model_end *end)
{
    struct model_recv first = end->recvs[0];
    memmove(end->recvs, end->recvs + 1, (size_t)--end->recv_count * sizeof(first));
    return first;
}

/* The elements a message of this length touches. */
bool model_receivable(const struct model *model, int proc, const struct model_recv *recv,
                      uint32_t len)
{
    for (int i = 0; i < recv->sge_count && len; i++) {
        uint32_t part = recv->sges[i].len_bytes < len ? recv->sges[i].len_bytes : len;
        if (!model_reaches(model, proc, &recv->sges[i], IBV_ACCESS_LOCAL_WRITE))
            return false;
        len -= part;
    }
    return true;
}

void model_delivered(struct model_expect *one, const struct model_op *op)
{
    one->opcode =
        op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    one->has_len = true;
    one->byte_len = model_op_len(op);
    one->has_imm = has_imm(op->opcode);
    one->imm = op->imm;
    one->has_inv = op->opcode == IBV_WR_SEND_WITH_INV;
    one->mw = op->remote.mr;
}

struct model_expect *model_take_srq(struct model *model, struct model_end *to, enum srq srq,
                                    const uint8_t *data, uint32_t len)
{
    model->srq_count[to->proc][srq]--;
    struct model_expect *one = model_expect(&to->receives, 0, IBV_WC_SUCCESS);
    one->any_wr_id = true;
    one->srq = srq;
    if (data && len <= SLOT_BYTES) {
        VU_TRUE(model->payload_count < PAYLOADS);
        one->payload = model->payloads + (size_t)model->payload_count++ * SLOT_BYTES;
        memcpy(one->payload, data, len);
    }
    return one;
}

/* A message to an SRQ goes to one of its receives, all of which are good and a slot long; which
 * one is not said. */
static enum ibv_wc_status into_srq(struct model *model, enum ibv_qp_type type, struct model_end *to,
                                   enum srq srq, const struct model_op *op, const uint8_t *data)
{
    uint32_t len = model_op_len(op);
    if (model->srq_count[to->proc][srq] == 0)
        return IBV_WC_RNR_RETRY_EXC_ERR;
    struct model_expect *one = model_take_srq(model, to, srq, data, len);
    if (data && len > SLOT_BYTES) {
        one->status = IBV_WC_LOC_LEN_ERR;
        one->undefined = true;
        if (type != IBV_QPT_UC)
            model_error(to);
        return IBV_WC_REM_INV_REQ_ERR;
    }
    model_delivered(one, op);
    return IBV_WC_SUCCESS;
}

/* data NULL: the immediate of a WRITE, which takes a receive and leaves its buffer alone. */
static enum ibv_wc_status into_receive(struct model *model, enum ibv_qp_type type,
                                       struct model_end *to, enum srq srq,
                                       const struct model_op *op, const uint8_t *data)
{
    if (to->uses_srq)
        return into_srq(model, type, to, srq, op, data);
    if (to->recv_count == 0) {
        if (model->link == LINK_STREAM)
            model_error(to);             /* there is no RNR */
        return IBV_WC_RNR_RETRY_EXC_ERR; /* the target goes on: 9.7.5.1.3 */
    }
    uint32_t len = model_op_len(op);
    if (type == IBV_QPT_UC && data && model_total(to->recvs[0].sges, to->recvs[0].sge_count) < len)
        return IBV_WC_REM_INV_REQ_ERR; /* lost; the receive serves the next */
    struct model_recv recv = model_take(to);
    enum ibv_wc_status status = IBV_WC_SUCCESS, answer = IBV_WC_SUCCESS;
    if (data && model_total(recv.sges, recv.sge_count) < len)
        status = IBV_WC_LOC_LEN_ERR, answer = IBV_WC_REM_INV_REQ_ERR;
    else if (data && !model_receivable(model, to->proc, &recv, len))
        status = IBV_WC_LOC_PROT_ERR, answer = IBV_WC_REM_OP_ERR;
    struct model_expect *one = model_expect(&to->receives, recv.wr_id, status);
    one->recv = recv;
    if (status != IBV_WC_SUCCESS) {
        one->undefined = true;
        model_error(to);
        return answer;
    }
    model_delivered(one, op);
    if (data)
        model_scatter(model, to->proc, recv.sges, recv.sge_count, 0, data, len);
    return IBV_WC_SUCCESS;
}

/* Refusals of one-sided requests (9.7.4.1.4, 9.7.5.2.4): what the QP does not admit, or a bad
 * operand, is an invalid request; what the region or window does not is an access error. The key of
 * nothing is not looked at (C9-88). */
static enum ibv_wc_status refusal(const struct model *model, int conn, int side,
                                  const struct model_op *op)
{
    const struct model_end *to = &model->conns[conn].ends[side];
    int need = model_need(op->opcode);
    if (model->conns[conn].type == IBV_QPT_XRC_SEND && op->srq == SRQ_NONE)
        return IBV_WC_REM_INV_REQ_ERR;
    if (op->opcode == IBV_WR_SEND_WITH_INV)
        return model_may_invalidate(model, conn, side, op) ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
    if ((to->access & need) != need)
        return IBV_WC_REM_INV_REQ_ERR;
    if (is_atomic(op->opcode) && op->remote.offset % 8)
        return IBV_WC_REM_INV_REQ_ERR;
    if (need && model_op_len(op) && !model_remote_reaches(model, conn, side, &op->remote, need))
        return IBV_WC_REM_ACCESS_ERR;
    /* XRC: the domain of the SRQ is the one that counts. */
    if (need && model_op_len(op) && model_srq_of(model, conn, op) == SRQ_XRC_FOREIGN)
        return IBV_WC_REM_ACCESS_ERR;
    return IBV_WC_SUCCESS;
}

static void execute(struct model *model, int from, int to, const struct model_op *op, uint8_t *data)
{
    uint8_t *remote = model->shadows[to] + op->remote.offset;
    uint32_t len = model_op_len(op);
    if (op->opcode == IBV_WR_RDMA_READ) {
        memcpy(data, remote, len);
        model_scatter(model, from, op->sges, op->sge_count, 0, data, len);
    } else if (is_atomic(op->opcode)) {
        uint64_t before, after;
        memcpy(&before, remote, 8);
        after = op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? before + op->compare_add
                : before == op->compare_add               ? op->swap
                                                          : before;
        memcpy(remote, &after, 8);
        model_scatter(model, from, op->sges, op->sge_count, 0, (uint8_t *)&before, 8);
    } else {
        memcpy(remote, data, len);
    }
}

bool model_sources_reach(const struct model *model, int proc, const struct model_op *op)
{
    bool into_local = op->opcode == IBV_WR_RDMA_READ || is_atomic(op->opcode);
    for (int i = 0; i < op->sge_count && !(op->flags & IBV_SEND_INLINE); i++)
        if (!model_reaches(model, proc, &op->sges[i], into_local ? IBV_ACCESS_LOCAL_WRITE : 0))
            return false;
    return true;
}

/* The target refuses: its QP fails. Receives that it had begun to use may or may not be
 * reported. */
static void refuse(struct model_end *to, const struct model_op *op)
{
    int first = to->receives.count;
    model_error(to);
    bool may_have_begun =
        op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || op->opcode == IBV_WR_SEND_WITH_INV;
    if (may_have_begun && to->receives.count > first) {
        to->receives.expects[first].not_success = true;
        to->receives.expects[first].undefined = op->opcode == IBV_WR_SEND_WITH_INV;
    }
}

/* What the target makes of a request; an error is what it answers on a reliable connection. */
static enum ibv_wc_status arrive(struct model *model, int conn, int side, const struct model_op *op)
{
    static uint8_t data[LANE_BYTES];
    enum ibv_qp_type type = model->conns[conn].type;
    struct model_end *to = &model->conns[conn].ends[side];
    int from = model->conns[conn].ends[!side].proc;
    enum srq srq = model_srq_of(model, conn, op);
    if (to->state < IBV_QPS_RTR || to->state == IBV_QPS_ERR)
        return IBV_WC_RETRY_EXC_ERR;
    model_gather(model, from, op, data);
    enum ibv_wc_status status = refusal(model, conn, side, op);
    if (status != IBV_WC_SUCCESS && type != IBV_QPT_UC)
        refuse(to, op);
    if (status != IBV_WC_SUCCESS)
        return status;
    if (model_is_send(op->opcode))
        status = into_receive(model, type, to, srq, op, data);
    else if (op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        status = into_receive(model, type, to, srq, op, NULL);
    if (status == IBV_WC_SUCCESS && op->opcode == IBV_WR_SEND_WITH_INV)
        model->mws[to->proc][op->remote.mr].bound = false;
    else if (status == IBV_WC_SUCCESS && model_need(op->opcode))
        execute(model, from, to->proc, op, data);
    return status;
}

/* Binds and invalidates: IBTA Vol1 10.6.7.2, 11.4.1.1. */
static enum ibv_wc_status run_local(struct model *model, int conn, int dir,
                                    const struct model_op *op)
{
    struct model_mw *mw = &model->mws[model->conns[conn].ends[dir].proc]
                                     [op->opcode == IBV_WR_BIND_MW ? op->mw : op->remote.mr];
    if (op->opcode == IBV_WR_LOCAL_INV) {
        if (!model_may_invalidate(model, conn, dir, op))
            return IBV_WC_MW_BIND_ERR;
        mw->bound = false;
        return IBV_WC_SUCCESS;
    }
    if (!model_may_bind(model, conn, dir, op))
        return IBV_WC_MW_BIND_ERR;
    mw->bound = true;
    mw->generation++;
    mw->mr = op->remote.mr;
    mw->offset = op->remote.offset;
    mw->len_bytes = op->remote.len_bytes;
    mw->access = op->access;
    mw->conn = conn;
    mw->side = dir;
    return IBV_WC_SUCCESS;
}

bool model_has_no_packet(const struct model *model, int conn, enum ibv_wr_opcode opcode)
{
    return model->link == LINK_PACKETS && model->conns[conn].type == IBV_QPT_UC &&
           opcode == IBV_WR_SEND_WITH_INV;
}

/* A message that does not arrive on an unreliable connection is lost in silence (9.8). */
static enum ibv_wc_status run(struct model *model, int conn, int dir, const struct model_op *op)
{
    if (model_is_local(op->opcode))
        return run_local(model, conn, dir, op);
    if (model_has_no_packet(model, conn, op->opcode))
        return IBV_WC_LOC_QP_OP_ERR;
    if (!model_sources_reach(model, model->conns[conn].ends[dir].proc, op))
        return IBV_WC_LOC_PROT_ERR;
    enum ibv_wc_status status = arrive(model, conn, !dir, op);
    return model->conns[conn].type == IBV_QPT_UC ? IBV_WC_SUCCESS : status;
}

/* A failed send takes an RC QP to ERR; one of UC to SQE, where it goes on receiving (10.3.1.6). */
static void fail_send(struct model_end *from, enum ibv_qp_type type)
{
    if (from->state != IBV_QPS_RTS)
        return;
    if (type == IBV_QPT_UC)
        from->state = IBV_QPS_SQE;
    else
        model_error(from);
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_RDMA_READ              ? IBV_WC_RDMA_READ
           : opcode == IBV_WR_ATOMIC_CMP_AND_SWP   ? IBV_WC_COMP_SWAP
           : opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD
           : opcode == IBV_WR_BIND_MW              ? IBV_WC_BIND_MW
           : opcode == IBV_WR_LOCAL_INV            ? IBV_WC_LOCAL_INV
           : model_is_send(opcode)                 ? IBV_WC_SEND
                                                   : IBV_WC_RDMA_WRITE;
}

int model_admit(const struct model_end *from, const struct model_op *op)
{
    if (from->state != IBV_QPS_RTS && from->state != IBV_QPS_SQE && from->state != IBV_QPS_ERR)
        return EINVAL;
    if (from->posted - from->freed == from->send_cap)
        return ENOMEM;
    if ((uint32_t)op->sge_count > from->sge_cap ||
        (op->flags & IBV_SEND_INLINE && model_op_len(op) > from->inline_cap))
        return EINVAL;
    return 0;
}

void model_signal(struct model_end *from, const struct model_op *op)
{
    struct model_expect *one = model_expect(&from->sends, op->wr_id, IBV_WC_SUCCESS);
    one->opcode = wc_opcode(op->opcode);
    one->has_len = model_need(op->opcode) & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    one->byte_len = model_op_len(op);
    from->completed = from->posted;
}

bool model_report(struct model_end *from, const struct model_op *op, enum ibv_wc_status status)
{
    from->posted++;
    if (status == IBV_WC_SUCCESS && !(op->flags & IBV_SEND_SIGNALED) && !from->sig_all)
        return false;
    model_signal(from, op);
    from->sends.expects[from->sends.count - 1].status = status;
    return status != IBV_WC_SUCCESS;
}

/* The first fault of either side ends the connection of both. */
static void send_by_stream(struct model *model, int conn, int dir, const struct model_op *op)
{
    struct model_end *from = &model->conns[conn].ends[dir], *to = &model->conns[conn].ends[!dir];
    const bool is_read = op->opcode == IBV_WR_RDMA_READ, was_cut = from->cut != CUT_NOT;
    const bool is_local = model_is_local(op->opcode) || !model_sources_reach(model, from->proc, op);
    enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
    if (from->state == IBV_QPS_RTS)
        status = run(model, conn, dir, op);
    if (op->opcode == IBV_WR_BIND_MW && status != IBV_WC_SUCCESS)
        model->mws[from->proc][op->mw].doubtful = true;
    if (status != IBV_WC_SUCCESS && from->state == IBV_QPS_RTS) {
        from->cut = is_local || is_read ? CUT_NOW : CUT_SOME_TIME;
        model_error(from);
        if (to->state != IBV_QPS_ERR)
            model_error(to);
    }
    const bool may_be_cut = from->cut == CUT_SOME_TIME && !is_read;
    model_report(from, op, may_be_cut ? IBV_WC_SUCCESS : status);
    if (may_be_cut)
        from->sends.expects[from->sends.count - 1].may_be_cut = true;
    if (was_cut && from->cut == CUT_SOME_TIME && is_read) {
        from->sends.expects[from->sends.count - 1].not_success = true;
        from->cut = CUT_NOW;
    }
}

int model_send(struct model *model, int conn, int dir, const struct model_op *op)
{
    struct model_conn *pair = &model->conns[conn];
    struct model_end *from = &pair->ends[dir];
    int rc = model_admit(from, op);
    if (rc)
        return rc;
    if (model->link == LINK_STREAM) {
        send_by_stream(model, conn, dir, op);
        return 0;
    }
    enum ibv_wc_status status =
        from->state == IBV_QPS_RTS ? run(model, conn, dir, op) : IBV_WC_WR_FLUSH_ERR;
    if (op->opcode == IBV_WR_BIND_MW && status != IBV_WC_SUCCESS)
        model->mws[from->proc][op->mw].doubtful = true;
    if (model_report(from, op, status))
        fail_send(from, pair->type);
    return 0;
}

int model_receive(struct model_end *end, const struct model_recv *recv)
{
    if (end->state == IBV_QPS_RESET)
        return EINVAL;
    if ((uint32_t)recv->sge_count > end->sge_cap)
        return EINVAL;
    if (end->state == IBV_QPS_ERR) {
        model_expect(&end->receives, recv->wr_id, IBV_WC_WR_FLUSH_ERR);
        return 0;
    }
    if ((uint32_t)end->recv_count == end->recv_cap)
        return ENOMEM;
    end->recvs[end->recv_count++] = *recv;
    return 0;
}

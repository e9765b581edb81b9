/* SPDX-License-Identifier: BSD-2-Clause */
#include "model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAYLOADS (CONNS * 2 * LIST_MAX)

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
    memset(model->conns, 0, sizeof(model->conns));
    memset(model->srq_count, 0, sizeof(model->srq_count));
    memset(model->srq_next, 0, sizeof(model->srq_next));
    for (int proc = 0; proc < PROCS; proc++)
        memcpy(model->shadows[proc], pattern, ARENA_BYTES);
}

void model_round(struct model *model)
{
    for (int conn = 0; conn < CONNS; conn++)
        for (int side = 0; side < 2; side++) {
            struct model_end *end = &model->conns[conn].ends[side];
            end->sends.count = end->receives.count = 0;
            end->freed = end->completed;
        }
    model->payload_count = 0;
}

uint32_t model_lane(int conn, int dir, enum lane lane)
{
    return (uint32_t)((conn * 2 + dir) * LANE_KINDS + (int)lane) * LANE_BYTES;
}

static uint32_t total(const struct model_sge *sges, int count)
{
    uint32_t len = 0;
    for (int i = 0; i < count; i++)
        len += sges[i].len_bytes;
    return len;
}

uint32_t model_op_len(const struct model_op *op)
{
    return total(op->sges, op->sge_count);
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_send(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

static bool has_imm(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

int model_need(enum ibv_wr_opcode opcode)
{
    if (is_send(opcode))
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

static struct model_expect *expect(struct model_queue *queue, uint64_t wr_id,
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
        expect(&end->receives, end->recvs[i].wr_id, IBV_WC_WR_FLUSH_ERR)->recv = end->recvs[i];
    end->recv_count = 0;
}

void model_reset(struct model_end *end)
{
    end->state = IBV_QPS_RESET;
    end->recv_count = 0;
    end->posted = end->completed = end->freed = 0;
}

static void gather(const struct model *model, int proc, const struct model_op *op, uint8_t *to)
{
    for (int i = 0; i < op->sge_count; i++) {
        memcpy(to, model->shadows[proc] + op->sges[i].offset, op->sges[i].len_bytes);
        to += op->sges[i].len_bytes;
    }
}

static void scatter(struct model *model, int proc, const struct model_sge *sges, int count,
                    const uint8_t *from, uint32_t len)
{
    for (int i = 0; i < count && len; i++) {
        uint32_t part = sges[i].len_bytes < len ? sges[i].len_bytes : len;
        memcpy(model->shadows[proc] + sges[i].offset, from, part);
        from += part;
        len -= part;
    }
}

static struct model_recv take(struct model_end *end)
{
    struct model_recv first = end->recvs[0];
    memmove(end->recvs, end->recvs + 1, (size_t)--end->recv_count * sizeof(first));
    return first;
}

/* The elements a message of this length touches. */
static bool receivable(const struct model *model, int proc, const struct model_recv *recv,
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

static void delivered(struct model_expect *one, const struct model_op *op)
{
    one->opcode =
        op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    one->has_len = true;
    one->byte_len = model_op_len(op);
    one->has_imm = has_imm(op->opcode);
    one->imm = op->imm;
}

/* A message to an SRQ goes to one of its receives, all of which are good and a slot long; which
 * one is not said. */
static enum ibv_wc_status into_srq(struct model *model, enum ibv_qp_type type, struct model_end *to,
                                   const struct model_op *op, const uint8_t *data)
{
    if (model->srq_count[to->proc] == 0)
        return IBV_WC_RNR_RETRY_EXC_ERR;
    model->srq_count[to->proc]--;
    bool fits = !data || model_op_len(op) <= SLOT_BYTES;
    struct model_expect *one = expect(&to->receives, 0, fits ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR);
    one->any_wr_id = true;
    if (!fits) {
        one->undefined = true;
        if (type == IBV_QPT_RC)
            model_error(to);
        return IBV_WC_REM_INV_REQ_ERR;
    }
    delivered(one, op);
    if (data) {
        VU_TRUE(model->payload_count < PAYLOADS);
        one->payload = model->payloads + (size_t)model->payload_count++ * SLOT_BYTES;
        memcpy(one->payload, data, model_op_len(op));
    }
    return IBV_WC_SUCCESS;
}

/* data NULL: the immediate of a WRITE, which takes a receive and leaves its buffer alone. */
static enum ibv_wc_status into_receive(struct model *model, enum ibv_qp_type type,
                                       struct model_end *to, const struct model_op *op,
                                       const uint8_t *data)
{
    if (to->uses_srq)
        return into_srq(model, type, to, op, data);
    if (to->recv_count == 0)
        return IBV_WC_RNR_RETRY_EXC_ERR; /* the target goes on: 9.7.5.1.3 */
    uint32_t len = model_op_len(op);
    if (type == IBV_QPT_UC && data && total(to->recvs[0].sges, to->recvs[0].sge_count) < len)
        return IBV_WC_REM_INV_REQ_ERR; /* lost; the receive serves the next */
    struct model_recv recv = take(to);
    enum ibv_wc_status status = IBV_WC_SUCCESS, answer = IBV_WC_SUCCESS;
    if (data && total(recv.sges, recv.sge_count) < len)
        status = IBV_WC_LOC_LEN_ERR, answer = IBV_WC_REM_INV_REQ_ERR;
    else if (data && !receivable(model, to->proc, &recv, len))
        status = IBV_WC_LOC_PROT_ERR, answer = IBV_WC_REM_OP_ERR;
    struct model_expect *one = expect(&to->receives, recv.wr_id, status);
    one->recv = recv;
    if (status != IBV_WC_SUCCESS) {
        one->undefined = true;
        model_error(to);
        return answer;
    }
    delivered(one, op);
    if (data)
        scatter(model, to->proc, recv.sges, recv.sge_count, data, len);
    return IBV_WC_SUCCESS;
}

/* Refusals of one-sided requests (9.7.4.1.4, 9.7.5.2.4): what the QP does not admit, or a bad
 * operand, is an invalid request; what the region does not is an access error. The key of nothing
 * is not looked at (C9-88). */
static enum ibv_wc_status refusal(const struct model *model, const struct model_end *to,
                                  const struct model_op *op)
{
    int need = model_need(op->opcode);
    if ((to->access & need) != need)
        return IBV_WC_REM_INV_REQ_ERR;
    if (is_atomic(op->opcode) && op->remote.offset % 8)
        return IBV_WC_REM_INV_REQ_ERR;
    if (model_op_len(op) && !model_reaches(model, to->proc, &op->remote, need))
        return IBV_WC_REM_ACCESS_ERR;
    return IBV_WC_SUCCESS;
}

static void execute(struct model *model, int from, int to, const struct model_op *op, uint8_t *data)
{
    uint8_t *remote = model->shadows[to] + op->remote.offset;
    uint32_t len = model_op_len(op);
    if (op->opcode == IBV_WR_RDMA_READ) {
        memcpy(data, remote, len);
        scatter(model, from, op->sges, op->sge_count, data, len);
    } else if (is_atomic(op->opcode)) {
        uint64_t before, after;
        memcpy(&before, remote, 8);
        after = op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? before + op->compare_add
                : before == op->compare_add               ? op->swap
                                                          : before;
        memcpy(remote, &after, 8);
        scatter(model, from, op->sges, op->sge_count, (uint8_t *)&before, 8);
    } else {
        memcpy(remote, data, len);
    }
}

static bool sources_reach(const struct model *model, int proc, const struct model_op *op)
{
    bool into_local = op->opcode == IBV_WR_RDMA_READ || is_atomic(op->opcode);
    for (int i = 0; i < op->sge_count && !(op->flags & IBV_SEND_INLINE); i++)
        if (!model_reaches(model, proc, &op->sges[i], into_local ? IBV_ACCESS_LOCAL_WRITE : 0))
            return false;
    return true;
}

/* What the target makes of a request; an error is what it answers on a reliable connection. */
static enum ibv_wc_status arrive(struct model *model, enum ibv_qp_type type, int from,
                                 struct model_end *to, const struct model_op *op)
{
    static uint8_t data[LANE_BYTES];
    if (to->state < IBV_QPS_RTR || to->state == IBV_QPS_ERR)
        return IBV_WC_RETRY_EXC_ERR;
    gather(model, from, op, data);
    if (is_send(op->opcode))
        return into_receive(model, type, to, op, data);
    enum ibv_wc_status status = refusal(model, to, op);
    if (status != IBV_WC_SUCCESS && type == IBV_QPT_RC) {
        int first = to->receives.count;
        model_error(to);
        /* An immediate may have taken its receive already. */
        if (op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && to->receives.count > first)
            to->receives.expects[first].not_success = true;
    }
    if (status == IBV_WC_SUCCESS && op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
        status = into_receive(model, type, to, op, NULL);
    if (status == IBV_WC_SUCCESS)
        execute(model, from, to->proc, op, data);
    return status;
}

/* What does not arrive on an unreliable connection is lost in silence (9.8). */
static enum ibv_wc_status run(struct model *model, enum ibv_qp_type type, struct model_end *from,
                              struct model_end *to, const struct model_op *op)
{
    if (!sources_reach(model, from->proc, op))
        return IBV_WC_LOC_PROT_ERR;
    enum ibv_wc_status status = arrive(model, type, from->proc, to, op);
    return type == IBV_QPT_UC ? IBV_WC_SUCCESS : status;
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
           : is_send(opcode)                       ? IBV_WC_SEND
                                                   : IBV_WC_RDMA_WRITE;
}

int model_send(struct model *model, int conn, int dir, const struct model_op *op)
{
    struct model_conn *pair = &model->conns[conn];
    struct model_end *from = &pair->ends[dir], *to = &pair->ends[!dir];
    if (from->state != IBV_QPS_RTS && from->state != IBV_QPS_SQE && from->state != IBV_QPS_ERR)
        return EINVAL;
    if (from->posted - from->freed == from->send_cap)
        return ENOMEM;
    if ((uint32_t)op->sge_count > from->sge_cap ||
        (op->flags & IBV_SEND_INLINE && model_op_len(op) > from->inline_cap))
        return EINVAL;
    from->posted++;
    enum ibv_wc_status status =
        from->state == IBV_QPS_RTS ? run(model, pair->type, from, to, op) : IBV_WC_WR_FLUSH_ERR;
    if (status == IBV_WC_SUCCESS && !(op->flags & IBV_SEND_SIGNALED) && !from->sig_all)
        return 0;
    struct model_expect *one = expect(&from->sends, op->wr_id, status);
    one->opcode = wc_opcode(op->opcode);
    one->has_len = model_need(op->opcode) & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    one->byte_len = model_op_len(op);
    from->completed = from->posted;
    if (status != IBV_WC_SUCCESS)
        fail_send(from, pair->type);
    return 0;
}

int model_receive(struct model *model, int conn, int side, const struct model_recv *recv)
{
    struct model_end *end = &model->conns[conn].ends[side];
    if (end->state == IBV_QPS_RESET)
        return EINVAL;
    if ((uint32_t)recv->sge_count > end->sge_cap)
        return EINVAL;
    if (end->state == IBV_QPS_ERR) {
        expect(&end->receives, recv->wr_id, IBV_WC_WR_FLUSH_ERR);
        return 0;
    }
    if ((uint32_t)end->recv_count == end->recv_cap)
        return ENOMEM;
    end->recvs[end->recv_count++] = *recv;
    return 0;
}

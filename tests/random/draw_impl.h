/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts that draw a program share. */
#ifndef SW_TESTS_INTEGRITY_DRAW_IMPL_H
#define SW_TESTS_INTEGRITY_DRAW_IMPL_H

#include "draw.h"

/* What one list of sends has used of the lanes of its connection's direction. */
struct lanes {
    int conn, dir;
    struct model_end *from, *to;
    uint32_t local, remote;      /* where they begin */
    uint32_t local_used;         /* local bytes are used once in a round */
    uint32_t read_from, read_to; /* remote bytes READs and atomics since the last fence touched */
    bool faulty;
    /* A stream: what becomes of the next request is not known. So it has no fault of its own, and
     * changes no window. */
    bool is_cut;
};

static inline uint32_t below(struct draw *draw, uint32_t bound)
{
    return vu_random_below(&draw->random, bound);
}

static inline bool percent(struct draw *draw, uint32_t chance)
{
    return below(draw, 100) < chance;
}

/* Between rounds: draw_admin.c. */
void draw_attr(struct draw *draw, struct draw_end_attr *attr);
void draw_make_end(struct model_end *end, const struct draw_end_attr *attr);

uint32_t draw_len(struct draw *draw);

/* A piece of a lane from `from` on, in a region with the rights of `need` (or, wanted false, in one
 * that lacks some). Its place is random unless `tight`. */
bool draw_piece(struct draw *draw, int proc, uint32_t lane, uint32_t from, uint32_t len, int need,
                bool wanted, bool tight, struct model_sge *sge);
/* Spoils a good piece; false where that kind of fault is not to be had. */
bool draw_spoil(struct draw *draw, int proc, uint32_t lane, int need, struct model_sge *sge);
/* Where a piece of `len` bytes reaches past the end of a region or window. An atomic stays aligned,
 * or there would be two faults. */
uint32_t draw_past_end(struct draw *draw, uint32_t end, uint32_t len, int need);
/* The elements of a request, from `used` on, which moves. */
bool draw_elements(struct draw *draw, const struct model_end *from, uint32_t lane, uint32_t *used,
                   int need, uint32_t len, struct model_op *op);
void draw_recv_list(struct draw *draw, struct model_end *end, uint32_t lane, uint64_t wr_base,
                    struct draw_recvs *list);

/* Windows: draw_mw.c. */
void draw_mw(struct draw *draw, int proc, int slot, enum mw_act *act);
void draw_mw_holder(struct draw *draw, int proc, int slot);
/* A piece of the remote lane through a window that the list may use. */
bool draw_window_piece(struct draw *draw, const struct lanes *lanes, uint32_t len, int need,
                       bool wanted, struct model_sge *sge);
bool draw_spoil_window(struct draw *draw, const struct lanes *lanes, int need,
                       struct model_sge *sge);
/* A bind or invalidate for the owner, good or (fault) not; a key for SEND with invalidate. */
bool draw_local_op(struct draw *draw, const struct lanes *lanes, bool fault, struct model_op *op);
bool draw_invalidated(struct draw *draw, const struct lanes *lanes, bool good,
                      struct model_sge *sge);

/* What iWARP has instead: draw_stream.c. */
bool draw_is_stream(const struct draw *draw);
void draw_stream_breaks(struct draw *draw, struct draw_conn_acts *acts);
void draw_stream_op(struct model_op *op);
/* A request of a list with a fault. */
void draw_stream_fault(struct draw *draw, struct model_op *op);
/* The last request of a list is to be reported. */
void draw_stream_last(struct model_end *from, struct draw_sends *list);

/* Datagrams: draw_ud.c. */
void draw_ud_admin(struct draw *draw, struct draw_round *round);
void draw_ud_work(struct draw *draw, struct draw_round *round);

#endif

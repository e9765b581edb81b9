/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows. Binding one is a request like others; a type 1 window's own verb posts it. */
#include "device/memory/mw.h"
#include "verbs/context.h"

struct ibv_mw *sw_verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    struct sw_verbs_mw *mw = sw_verbs_object_alloc(pd->context, sizeof(*mw));
    if (!mw)
        return NULL;
    const int rc = sw_mw_alloc(sw_verbs_pd_of(pd)->dev, type, &mw->dev);
    if (rc) {
        sw_verbs_object_free(pd->context, mw);
        return sw_verbs_fail(rc);
    }
    mw->ibv = (struct ibv_mw){
        .context = pd->context,
        .pd = pd,
        .rkey = sw_mw_key(mw->dev),
        .handle = sw_verbs_next_handle(),
        .type = type,
    };
    return &mw->ibv;
}

int sw_verbs_dealloc_mw(struct ibv_mw *mw)
{
    sw_mw_dealloc(((struct sw_verbs_mw *)mw)->dev);
    sw_verbs_object_free(mw->context, mw);
    return 0;
}

/* The key changes as the request is posted; the old one dies, and the new one lives, when it is
 * executed. */
int sw_verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    struct ibv_send_wr *bad,
        wr = {
            .wr_id = bind->wr_id,
            .opcode = IBV_WR_BIND_MW,
            .send_flags = bind->send_flags,
            .bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info},
        };
    const int rc = sw_verbs_post_send(qp, &wr, &bad);
    if (!rc)
        mw->rkey = wr.bind_mw.rkey;
    return rc;
}

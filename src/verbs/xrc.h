/* SPDX-License-Identifier: BSD-2-Clause */
/* XRC domains, and the handles on a shared target QP. */
#ifndef SW_VERBS_XRC_H
#define SW_VERBS_XRC_H

#include "verbs/object.h"

struct sw_verbs_xrcd {
    struct ibv_xrcd ibv;
    struct sw_xrcd *dev;
    atomic_uint users; /* SRQs and QPs made through this handle */
};

static inline struct sw_verbs_xrcd *sw_verbs_xrcd_of(struct ibv_xrcd *xrcd)
{
    return (struct sw_verbs_xrcd *)xrcd;
}

struct ibv_xrcd *sw_verbs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int sw_verbs_close_xrcd(struct ibv_xrcd *xrcd);
struct ibv_qp *sw_verbs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);

/* A new target QP belongs to the domain's handle. */
void sw_verbs_xrc_join(struct sw_verbs_qp *qp, struct ibv_xrcd *xrcd);
/* Gives back one of its handles; events are for another one from here on, if there is one. */
int sw_verbs_xrc_destroy(struct sw_verbs_qp *qp);

#endif

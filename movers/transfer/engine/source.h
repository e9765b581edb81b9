/* SPDX-License-Identifier: BSD-2-Clause */
/* What an event of an agent's epoll is about. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_SOURCE_H
#define SW_MOVERS_TRANSFER_ENGINE_SOURCE_H

/* What an event of epoll is about: the first member of each. */
struct xfe_source {
    enum { XFE_EVENTS, XFE_TIMER, XFE_LANE, XFE_VISITOR, XFE_DEVICE } kind;
};

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ranks that keep a request waiting. In algorithms of several rounds those that this one waits
 * for may wait themselves. So it reads what they show, and follows that to one which waits for
 * nobody, has what it says that it waits for, or lets nothing be read.
 */
#ifndef SW_COLLECTIVES_LATE_H
#define SW_COLLECTIVES_LATE_H

#include "collectives/comm/comm.h"

struct coll_late {
    bool is_late[SW_COLL_RANKS_MAX];
    char text[200]; /* what is awaited, and of whom */
};

/* Where ranks let nothing be read it takes up to 2 s. Another rank may tell all meanwhile. */
void coll_late_find(struct sw_coll *coll, const struct sw_coll_request *request,
                    struct coll_late *late);
/* For others that look so: the rank that confirms nothing. */
void coll_late_show(struct sw_coll *coll);

#endif

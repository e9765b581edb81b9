/* SPDX-License-Identifier: BSD-2-Clause */
/* The file of a rank's page, as others of the host see it. */
#ifndef SW_COLLECTIVES_DUMP_PAGE_FILE_H
#define SW_COLLECTIVES_DUMP_PAGE_FILE_H

#include "collectives/dump/culprit.h"

/* Its recorder is mapped, until coll_page_file_forget(). False: it is no page of this user. */
bool coll_page_file_read(int fd, struct coll_seen *seen);
void coll_page_file_forget(const struct coll_seen *seen);
/* Nobody has its lock: its rank is dead. */
bool coll_page_file_is_stale(int fd);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* A file that somebody says is a dump. */
#ifndef SW_COLLECTIVES_DUMPS_H
#define SW_COLLECTIVES_DUMPS_H

#include "collectives/dump/read.h"

/* NULL: it is none, as `error` says. coll_dump_free() it. */
struct coll_dump *co_dump_read(const char *path, char *error, size_t room);

#endif

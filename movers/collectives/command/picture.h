/* SPDX-License-Identifier: BSD-2-Clause */
/* The picture of a measurement, drawn by movers/collectives/plots/coll_perf.py. */
#ifndef SW_COLLECTIVES_PICTURE_H
#define SW_COLLECTIVES_PICTURE_H

#include <jansson.h>

/* Draws what the command prints as JSON into `path`, an SVG. Returns the exit status. */
int co_picture_draw(const char *path, const json_t *all);

#endif

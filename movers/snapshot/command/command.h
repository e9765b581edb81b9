/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-snapshot. */
#ifndef SW_SNAPSHOT_COMMAND_H
#define SW_SNAPSHOT_COMMAND_H

#define SNAP_PORT "4460"

int snap_serve(int argc, char **argv);
int snap_status(int argc, char **argv);
int snap_metrics(int argc, char **argv);

#endif

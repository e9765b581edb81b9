/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of `sidewire coll`. */
#ifndef SW_COLLECTIVES_COMMAND_H
#define SW_COLLECTIVES_COMMAND_H

#include "common/command/front.h"

int co_diagnose(int argc, char **argv);
int co_dump(int argc, char **argv);
int co_perf(int argc, char **argv);
int co_status(int argc, char **argv);
int co_trace(int argc, char **argv);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the ways of learning one's rank share. Each is a file of this folder: variables.c what the
 * environment says, slurm.c what Slurm adds to it, pmi.c and pmix.c ask the launcher. launch.c
 * chooses among them.
 */
#ifndef SW_COLLECTIVES_WAY_H
#define SW_COLLECTIVES_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/coll.h"

enum sw_coll_status coll_launch_say(struct sw_coll_error *error, enum sw_coll_status status,
                                    const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Whether anything says that a launcher has started this process. */
bool coll_launch_is_there(void);
/* What NAME=NUMBER of the environment says. False: it is not there, or is no such number. */
bool coll_launch_number(const char *name, uint32_t *number);

/* Rank, size and who says so, by variables alone; size 0: there are none. INVALID: one makes no
 * sense. */
enum sw_coll_status coll_launch_variables(struct sw_coll_launch *launch,
                                          struct sw_coll_error *error);
/* Where to meet, by MASTER_ADDR and MASTER_PORT; where it is not set yet. */
bool coll_launch_has_master(void);
enum sw_coll_status coll_launch_master(struct sw_coll_launch *launch, struct sw_coll_error *error);

/* Whether Slurm has started this process as a task of a step. */
bool coll_launch_has_slurm(void);
/* Whether all tasks of the step are on one node. */
bool coll_launch_slurm_is_local(void);
enum sw_coll_status coll_launch_slurm(struct sw_coll_launch *launch, struct sw_coll_error *error);
/* The first name of a list as Slurm writes it: of "node[07-9,12],x" it is "node07". */
bool coll_launch_first_host(const char *list, char *name, size_t room);

bool coll_launch_has_pmi(void);
enum sw_coll_status coll_launch_pmi(struct sw_coll_launch *launch, uint64_t deadline_ns,
                                    struct sw_coll_error *error);

bool coll_launch_has_pmix(void);
enum sw_coll_status coll_launch_pmix(struct sw_coll_launch *launch, uint64_t deadline_ns,
                                     struct sw_coll_error *error);

#endif

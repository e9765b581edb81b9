/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many controllers a host may have. One that has yet to prove itself has few, and the oldest of
 * these makes room for the next. One that has proved itself keeps its own. An address has at most
 * three times as many as are free, so that others find some.
 */
#ifndef SW_MOVERS_NVME_MODEL_ADMISSION_H
#define SW_MOVERS_NVME_MODEL_ADMISSION_H

#include <stdbool.h>

struct nvt_ctrl;
struct nvt_queue;
struct nvt_target;

/* Its host has a controller, and has proved itself where that is asked of it. */
bool nvt_queue_is_proven(const struct nvt_queue *queue);
/* Whether its host may have one controller more. The oldest that has yet to prove itself may have
 * to go for it. */
bool nvt_ctrl_is_admitted(struct nvt_target *target, const struct nvt_queue *queue);
/* The queue is of the controller from now on, or as soon as it has proved itself. */
void nvt_ctrl_take_queue(struct nvt_ctrl *ctrl, struct nvt_queue *queue);
void nvt_ctrl_note_proven(struct nvt_queue *queue);
/* It ends before. */
void nvt_ctrl_forget_pending(struct nvt_queue *queue);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ctrl-C in a wait that is torch's own. A thread that waits for a future, as that of backward() in
 * DistributedDataParallel, runs no handler of Python until the future ends. So a future fails when
 * a SIGINT has come, Python's handler would raise KeyboardInterrupt, and the main thread does not
 * come to that by itself.
 */
#ifndef SW_BINDINGS_TORCH_INTERRUPT_HPP
#define SW_BINDINGS_TORCH_INTERRUPT_HPP

#include "torch/group/work.hpp"

namespace sidewire_torch
{

/* An interrupt is noted from here on. */
void watch_interrupts();
/* Somebody may wait for the future of this work, until forget_future(). */
void watch_future(const c10::intrusive_ptr<Work> &work);
void forget_future(Work &work);
/* The interpreter ends: nothing fails any more. */
void end_interrupts();

} // namespace sidewire_torch

#endif

// SPDX-License-Identifier: BSD-2-Clause
// libibverbs and librdmacm without a device, for what no device does on demand: the n-th step
// fails. Objects are of the heap, so that AddressSanitizer sees what is used late or never freed.
#ifndef TESTS_CPP_FAKE_HPP
#define TESTS_CPP_FAKE_HPP

#include <string>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace fake
{

// Forgets all; the step of that number fails from now on (0: none).
void begin(int failing_step);
// How many steps there were, and the verb of the one that failed.
int steps();
std::string failed_verb();
// What is still there, in words.
std::vector<std::string> live();
// What nobody may do: to destroy twice, what is in use, or what never was.
std::vector<std::string> faults();
// What the next poll gives.
void complete(ibv_wc_status status);
// The event that comes instead of the next of that kind.
void instead_of(rdma_cm_event_type wanted, rdma_cm_event_type event, int status);

} // namespace fake

#endif

// SPDX-License-Identifier: BSD-2-Clause
//
// RDMA in C++17: a header over <infiniband/verbs.h> and <rdma/rdma_cma.h>, for any device that
// libibverbs knows. It needs nothing else of Sidewire. docs/cpp.md begins with two whole programs.
//
//  - Each object of verbs has a class that owns it. It can be moved, and destroys the object once:
//    pd domain(device). get() gives the raw pointer, release() gives it away, pd(adopt, raw) takes
//    one over. Nothing keeps a parent alive: declare it first.
// - A verb that fails throws std::system_error with the name of the verb. Destructors and moves
// never do. - Requests are made by functions: write(local, remote), read, send, fetch_add, ... They
// fill the
//    structs that verbs takes.
//  - post() and poll() are the verbs themselves, inline. Nothing on the path of data allocates.
//
#ifndef SIDEWIRE_VERBS_HPP
#define SIDEWIRE_VERBS_HPP

#include <sidewire/verbs/connection.hpp>
#include <sidewire/verbs/deadline.hpp>
#include <sidewire/verbs/device.hpp>
#include <sidewire/verbs/endpoint.hpp>
#include <sidewire/verbs/error.hpp>
#include <sidewire/verbs/handle.hpp>
#include <sidewire/verbs/memory.hpp>
#include <sidewire/verbs/qp.hpp>
#include <sidewire/verbs/queue.hpp>
#include <sidewire/verbs/request.hpp>
#include <sidewire/verbs/span.hpp>

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What differs between the versions of torch that this is built for: the class that a back end
 * derives from, and the names of its options.
 */
#ifndef SW_BINDINGS_TORCH_TORCH_HPP
#define SW_BINDINGS_TORCH_TORCH_HPP

#include <torch/csrc/api/include/torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

/* Later versions of torch 2 know what earlier ones had no words for. */
#ifdef C10D_BACKEND_HAS_RECONFIGURE
#define OVERRIDES_LATER override
#else
#define OVERRIDES_LATER
#endif

namespace sidewire_torch
{

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

} // namespace sidewire_torch

#endif

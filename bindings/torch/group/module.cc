/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The module that sidewire_torch/__init__.py loads: one for each version of torch, which its name
 * has. torch/group/group.hpp says what a group does.
 */
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "torch/group/group.hpp"
#include "torch/group/interrupt.hpp"

namespace py = pybind11;
using sidewire_torch::Base;
using sidewire_torch::Engine;
using sidewire_torch::Group;
using sidewire_torch::Settings;

static c10::intrusive_ptr<Group> open_group(const c10::intrusive_ptr<c10d::Store> &store, int rank,
                                            int size, const Settings &settings,
                                            const c10::intrusive_ptr<Group> &whole,
                                            const std::vector<int64_t> &ranks)
{
    return c10::make_intrusive<Group>(store, rank, size, settings, whole, ranks);
}

PYBIND11_MODULE(SIDEWIRE_TORCH_MODULE, module)
{
    using Unlocked = py::call_guard<py::gil_scoped_release>;
    py::module_::import("torch._C._distributed_c10d"); /* the classes that these derive from */
    module.attr("torch_version") =
        std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
    py::class_<Settings>(module, "Settings")
        .def(py::init<>())
        .def_readwrite("address", &Settings::address)
        .def_readwrite("algorithm", &Settings::algorithm)
        .def_readwrite("is_any_order", &Settings::is_any_order)
        .def_readwrite("is_deferred", &Settings::is_deferred)
        .def_readwrite("timeout_ms", &Settings::timeout_ms)
        .def_readwrite("spin_us", &Settings::spin_us)
        .def_readwrite("eager_bytes", &Settings::eager_bytes);
    py::class_<Group, Base, c10::intrusive_ptr<Group>>(module, "Group")
        .def(py::init(&open_group), py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("settings"), py::arg("whole") = nullptr,
             py::arg("ranks") = std::vector<int64_t>(), Unlocked())
        .def("abort", &Group::abort, Unlocked())
        .def("close", &Group::close, Unlocked())
        .def("dump", &Group::dump, py::arg("path"), Unlocked())
        .def("failure", &Group::failure, Unlocked())
        .def("gone", &Group::gone, Unlocked())
        .def("store", &Group::store)
        .def("show_wait", &Group::show_wait, py::arg("awaited"), py::arg("waited_ms"), Unlocked())
        .def("shrink_to_rest", &Group::shrink_to_rest, py::arg("timeout_ms"), Unlocked())
        .def("allreduce_leaves", &Group::allreduce_leaves, py::arg("rows"), py::arg("op"),
             Unlocked());
    module.def(
        "close_all",
        [] {
            sidewire_torch::end_interrupts();
            Engine::close_all();
        },
        Unlocked());
}

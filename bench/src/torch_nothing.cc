// SPDX-License-Identifier: BSD-2-Clause
// A back end of torch's process groups that does nothing: what torch itself takes for an operation.
// bench/lib/torch_rows.py builds it, and measures the others beside it.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

namespace
{

using Tensors = std::vector<at::Tensor>;

// An operation that has ended before it is waited for.
class EndedWork : public c10d::Work
{
  public:
    explicit EndedWork(const Tensors &tensors) : Work(-1, c10d::OpType::ALLREDUCE), result_(tensors)
    {
    }

    bool isCompleted() override
    {
        return true;
    }
    bool isSuccess() const override
    {
        return true;
    }
    bool wait(std::chrono::milliseconds) override
    {
        return true;
    }
    Tensors result() override
    {
        return result_;
    }

  private:
    Tensors result_;
};

class NoGroup : public c10d::ProcessGroup
{
  public:
    NoGroup(int rank, int size) : ProcessGroup(rank, size)
    {
    }

    const std::string getBackendName() const override
    {
        return "nothing";
    }

    c10::intrusive_ptr<c10d::Work> allreduce(Tensors &tensors,
                                             const c10d::AllreduceOptions &) override
    {
        return c10::make_intrusive<EndedWork>(tensors);
    }
};

c10::intrusive_ptr<c10d::ProcessGroup> make_no_group(const pybind11::object &, int rank, int size,
                                                     const pybind11::object &)
{
    return c10::make_intrusive<NoGroup>(rank, size);
}

} // namespace

PYBIND11_MODULE(torch_nothing, module)
{
    module.def("create", &make_no_group);
}

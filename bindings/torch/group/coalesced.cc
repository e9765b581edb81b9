/* SPDX-License-Identifier: BSD-2-Clause */
/* Several calls that are waited for as one. They begin at once: none of them waits for another. */
#include "torch/group/group.hpp"

#if TORCH_VERSION_MAJOR >= 2

namespace sidewire_torch
{

class Joined : public c10d::Work
{
  public:
    Joined(int rank, std::vector<WorkPtr> works)
        : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works))
    {
    }

    bool isCompleted() override
    {
        bool are_over = true;
        for (const WorkPtr &work : works_)
            are_over = work->isCompleted() && are_over;
        return are_over;
    }

    bool isSuccess() const override
    {
        return !exception();
    }

    std::exception_ptr exception() const override
    {
        for (const WorkPtr &work : works_) {
            if (auto found = work->exception())
                return found;
        }
        return nullptr;
    }

    bool wait(std::chrono::milliseconds timeout) override
    {
        for (const WorkPtr &work : works_)
            work->wait(timeout);
        return true;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        auto all = c10::List<c10::intrusive_ptr<c10::ivalue::Future>>(
            c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
        for (const WorkPtr &work : works_)
            all.push_back(work->getFuture());
        return c10::collectAll(all);
    }

  private:
    const std::vector<WorkPtr> works_;
};

void Group::startCoalescing()
{
    is_coalescing_ = true;
}

WorkPtr Group::endCoalescing()
{
    is_coalescing_ = false;
    return c10::make_intrusive<Joined>(getRank(), std::move(coalesced_));
}

} // namespace sidewire_torch

#endif

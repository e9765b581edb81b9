/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a call of a process group gives back: one or several operations of the engine, and what is
 * to be done with their buffers when all of them have ended.
 *
 *     auto work = group.prepare(c10d::OpType::ALLREDUCE, "sidewire:all_reduce", tensors);
 *     work->operation().call.kind = SW_COLL_ALL_REDUCE; ...
 *     return Work::begin(std::move(work));
 *
 * An operation keeps its work, and so the tensors, until the engine has released it.
 */
#ifndef SW_BINDINGS_TORCH_WORK_HPP
#define SW_BINDINGS_TORCH_WORK_HPP

#include <functional>

#include "torch/group/engine.hpp"
#include "torch/group/torch.hpp"

namespace sidewire_torch
{

/* Handlers of Python, that of Ctrl-C for one, run in the main thread when they are asked for. What
 * they raise is thrown as pybind11::error_already_set. */
void run_python_handlers();

using Counts = std::vector<uint64_t>;

/* What an operation results in: tensors, or, for some, several lists of them. */
class Outputs
{
  public:
    Outputs() = default;
    Outputs(const Tensors &list) : list_(list)
    {
    }
    Outputs(std::vector<Tensors> lists);

    const Tensors &list() const
    {
        return list_;
    }
    bool are_lists() const
    {
        return !lists_.empty();
    }
    c10::IValue value() const;

  private:
    Tensors list_;               /* where there is one, and not several */
    std::vector<Tensors> lists_; /* which would be an allocation more */
};

class Work : public c10d::Work
{
  public:
    /* `title` is what a profiler shows, "sidewire:" and the operation. `inputs` and `outputs` live
     * as long as the work. */
    Work(std::shared_ptr<Engine> engine, int rank, c10d::OpType type, const char *title,
         const Tensors &inputs, Outputs outputs, size_t operations = 1);

    /* ---- before it begins ---- */

    pge_operation &operation(size_t at = 0)
    {
        return at ? more_[at - 1] : first_;
    }
    /* Memory that the operations use, until they have ended. */
    void keep(at::Tensor tensor);
    const uint64_t *keep(Counts counts);
    /* The blocks of the ranks in an operation: elements, each of so many numbers. */
    void set_blocks(size_t at, Counts counts, uint64_t each);
    /* Runs when all operations have ended well, before anybody is told: it copies results. It may
     * run in any thread. */
    void then(std::function<void()> function);
    static WorkPtr begin(c10::intrusive_ptr<Work> work);

    /* Its future fails, and it goes on. */
    void interrupt();

    /* ---- torch's ---- */

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(std::chrono::milliseconds timeout) override;
    int sourceRank() const override;
    Tensors result() override;
    void synchronize() override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  private:
    static void take_end(pge_operation *operation);
    static void take_release(pge_operation *operation);
    static void mark_later(void *context);
    void end_one(const pge_operation &operation);
    void end_all();
    void run_then();
    void mark_future();
    void await_over();
    bool is_over() const
    {
        return (state_.load() & OVER) != 0;
    }

    enum : uint32_t {
        OVER = 1,
        HAS_FUTURE = 2, /* its end marks the future */
        HAS_WAITER = 4, /* and tells cv_ */
        MARKED = 8,     /* the future has ended */
    };

    const std::shared_ptr<Engine> engine_;
    const char *const title_;
    const Tensors inputs_;
    const Outputs outputs_;
    const size_t count_;
    pge_operation first_ = {};
    std::vector<pge_operation> more_;       /* where there are several */
    std::vector<pge_operation *> pointers_; /* of all, then */
    Tensors buffers_;
    std::vector<std::unique_ptr<Counts>> counts_;
    std::vector<std::function<void()>> then_;
    c10::intrusive_ptr<Work> self_; /* until the engine has released all operations */
    std::atomic<size_t> under_way_, unreleased_;
    std::atomic<uint32_t> state_{0}; /* torch's own exception_ is read when it is over */
    /* Under mutex_: */
    std::string failure_;
    bool has_failed_ = false;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace sidewire_torch

#endif

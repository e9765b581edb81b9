/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/work.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <algorithm>
#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sidewire_torch
{

static const uint64_t SIGNALS_EVERY_MS = 200;

/* A small operation takes a microsecond, so nothing is made ready for a profiler that is off, and
 * tensors that are the result, too, are kept once. */
static c10::optional<Tensors> shown_inputs(const Tensors &inputs)
{
    return at::hasCallbacks() ? c10::optional<Tensors>(inputs) : c10::nullopt;
}

static Tensors inputs_apart(const Tensors &inputs, const std::vector<Tensors> &outputs)
{
    const bool are_results = outputs.size() == 1 && outputs[0].size() == inputs.size() &&
                             std::equal(inputs.begin(), inputs.end(), outputs[0].begin(),
                                        [](const at::Tensor &one, const at::Tensor &other) {
                                            return one.is_same(other);
                                        });
    return are_results ? Tensors() : inputs;
}

Work::Work(std::shared_ptr<Engine> engine, int rank, c10d::OpType type, const char *title,
           const Tensors &inputs, std::vector<Tensors> outputs, size_t operations)
    : c10d::Work(rank, type, at::hasCallbacks() ? title : nullptr, shown_inputs(inputs)),
      engine_(std::move(engine)), title_(title), inputs_(inputs_apart(inputs, outputs)),
      outputs_(std::move(outputs)), operations_(operations), under_way_(operations),
      unreleased_(operations)
{
    for (pge_operation &operation : operations_) {
        operation.done = take_end;
        operation.release = take_release;
        operation.context = this;
    }
}

/* ---- before it begins ---- */

void Work::keep(at::Tensor tensor)
{
    buffers_.push_back(std::move(tensor));
}

const uint64_t *Work::keep(Counts counts)
{
    counts_.emplace_back(new Counts(std::move(counts)));
    return counts_.back()->data();
}

void Work::set_blocks(size_t at, Counts counts, uint64_t each)
{
    sw_coll_call &call = operations_[at].call;
    bool are_equal = true;
    for (uint64_t &count : counts) {
        count *= each;
        are_equal = are_equal && count == counts[0];
    }
    if (are_equal)
        call.count = counts[0];
    else
        call.counts = keep(std::move(counts));
}

void Work::then(std::function<void()> function)
{
    then_.push_back(std::move(function));
}

WorkPtr Work::begin(c10::intrusive_ptr<Work> work)
{
    Engine::Entry entry(*work->engine_);
    TORCH_CHECK(entry.get(), work->title_, ": this process group was ended");
    const size_t count = work->operations_.size();
    work->self_ = work;
    if (count == 1) {
        pge_operation *only = &work->operations_[0];
        pge_submit(entry.get(), &only, 1);
        return work;
    }
    for (pge_operation &operation : work->operations_)
        work->pointers_.push_back(&operation);
    if (count)
        pge_submit(entry.get(), work->pointers_.data(), static_cast<uint32_t>(count));
    else
        work->end_all();
    return work;
}

/* ---- its end, in the thread that drives the engine ---- */

void Work::take_end(pge_operation *operation)
{
    static_cast<Work *>(operation->context)->end_one(*operation);
}

void Work::end_one(const pge_operation &operation)
{
    if (operation.error.status != SW_COLL_OK) {
        std::lock_guard<std::mutex> guard(mutex_);
        /* "Timed out" is what programs look for that know gloo. */
        const char *how =
            operation.error.status == SW_COLL_TIMEOUT ? ": Timed out waiting: " : ": ";
        if (!has_failed_)
            failure_ = title_ + (how + std::string(operation.error.text));
        has_failed_ = true;
    }
    if (under_way_.fetch_sub(1) == 1)
        end_all();
}

void Work::end_all()
{
    std::exception_ptr exception;
    if (has_failed_)
        exception = std::make_exception_ptr(std::runtime_error(failure_));
    try {
        /* Results may be tensors that want gradients: nothing of this is for autograd. */
        at::AutoDispatchBelowADInplaceOrView guard;
        for (const auto &function : then_) {
            if (!has_failed_)
                function();
        }
    } catch (...) {
        exception = std::current_exception();
    }
    then_.clear();
    buffers_.clear();
    finish(exception);
    bool has_future;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        has_ended_ = true;
        has_future = !!future_;
    }
    is_over_.store(true);
    if (!has_future)
        return;
    /* Callbacks may wait for other operations, so they have a thread of their own. */
    auto *held =
        new c10::intrusive_ptr<Work>(c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
    Engine::Entry entry(*engine_);
    if (!entry.get() || !pge_later(entry.get(), mark_later, held))
        mark_later(held);
}

void Work::take_release(pge_operation *operation)
{
    Work *work = static_cast<Work *>(operation->context);
    if (work->unreleased_.fetch_sub(1) != 1)
        return;
    c10::intrusive_ptr<Work> last = std::move(work->self_);
}

/* ---- futures ---- */

c10::IValue Work::value() const
{
    if (outputs_.size() > 1)
        return c10::IValue(outputs_);
    return c10::IValue(outputs_.empty() ? Tensors() : outputs_[0]);
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    bool has_ended;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (future_)
            return future_;
        c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
        if (outputs_.size() > 1)
            type = c10::ListType::create(type);
        future_ = c10::make_intrusive<c10::ivalue::Future>(type);
        has_ended = has_ended_;
    }
    if (has_ended) {
        mark_future();
    } else {
        Engine::Entry entry(*engine_);
        if (entry.get())
            pge_urge(entry.get());
    }
    return future_;
}

void Work::mark_future()
{
    if (exception_)
        future_->setError(exception_);
    else
        future_->markCompleted(value());
}

void Work::mark_later(void *context)
{
    auto *held = static_cast<c10::intrusive_ptr<Work> *>(context);
    (*held)->mark_future();
    delete held;
}

/* ---- what a caller asks ---- */

bool Work::isCompleted()
{
    if (is_over_.load())
        return true;
    Engine::Entry entry(*engine_);
    for (pge_operation &operation : operations_) {
        if (entry.get() && !pge_test(entry.get(), &operation))
            break;
    }
    return is_over_.load();
}

/* Handlers of Python, that of Ctrl-C for one, run in the main thread when they are asked for. */
static void run_python_handlers()
{
    if (syscall(SYS_gettid) != getpid() || !Py_IsInitialized())
        return;
    pybind11::gil_scoped_acquire lock;
    if (PyErr_CheckSignals())
        throw pybind11::error_already_set();
}

static sw_coll_status wait_interruptibly(pge_engine *engine, pge_operation *operation,
                                         uint64_t deadline_ns, struct sw_coll_error *error)
{
    for (;;) {
        const uint64_t look_ns = sw_coll_deadline_ms(SIGNALS_EVERY_MS);
        const bool is_last = deadline_ns && deadline_ns <= look_ns;
        const sw_coll_status status =
            pge_wait(engine, operation, is_last ? deadline_ns : look_ns, error);
        if (status != SW_COLL_AGAIN || is_last)
            return status;
        run_python_handlers();
    }
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    if (!is_over_.load()) {
        const uint64_t deadline_ns = timeout.count() > 0
                                         ? sw_coll_deadline_ms(static_cast<uint32_t>(
                                               std::min<int64_t>(timeout.count(), UINT32_MAX)))
                                         : 0;
        Engine::Entry entry(*engine_);
        for (pge_operation &operation : operations_) {
            struct sw_coll_error error = {};
            if (!entry.get() || pge_is_over(&operation))
                continue;
            const sw_coll_status status =
                wait_interruptibly(entry.get(), &operation, deadline_ns, &error);
            TORCH_CHECK(status != SW_COLL_AGAIN, title_, ": it has not ended within ",
                        timeout.count(), " ms");
            /* In a child of fork() it never ends. */
            TORCH_CHECK(pge_is_over(&operation), title_, ": ", error.text);
        }
    }
    if (!is_over_.load()) {
        /* Another thread ends the group just now. */
        std::unique_lock<std::mutex> guard(mutex_);
        cv_.wait(guard, [this] { return completed_; });
    }
    if (exception_)
        std::rethrow_exception(exception_);
    return true;
}

int Work::sourceRank() const
{
    TORCH_CHECK(opType_ == c10d::OpType::RECVANYSOURCE || opType_ == c10d::OpType::RECV,
                "only a receive has a source");
    return static_cast<int>(operations_[0].source);
}

Tensors Work::result()
{
    TORCH_CHECK(isCompleted(), title_, " has not ended yet: it has no result");
    TORCH_CHECK(outputs_.size() <= 1, title_, " has lists of tensors: take them of its future");
    return outputs_.empty() ? Tensors() : outputs_[0];
}

void Work::synchronize()
{
}

void Work::abort()
{
    Engine::Entry entry(*engine_);
    if (entry.get())
        pge_abort(entry.get(), "abort() was called");
}

} // namespace sidewire_torch

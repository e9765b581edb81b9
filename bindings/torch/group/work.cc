/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/work.hpp"

#include "torch/group/interrupt.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <algorithm>
#include <cstring>
#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sidewire_torch
{

static const uint64_t SIGNALS_EVERY_MS = 200, UNTOLD_MS = 20;

/* ---- results ---- */

Outputs::Outputs(std::vector<Tensors> lists)
{
    if (lists.size() == 1)
        list_ = std::move(lists[0]);
    else
        lists_ = std::move(lists);
}

c10::IValue Outputs::value() const
{
    return are_lists() ? c10::IValue(lists_) : c10::IValue(list_);
}

/* ---- a work ---- */

/* A small operation takes a microsecond, so nothing is made ready for a profiler that is off, and
 * tensors that are the result, too, are kept once. */
static c10::optional<Tensors> shown_inputs(const Tensors &inputs)
{
    return at::hasCallbacks() ? c10::optional<Tensors>(inputs) : c10::nullopt;
}

static Tensors inputs_apart(const Tensors &inputs, const Outputs &outputs)
{
    const bool are_results = !outputs.are_lists() && outputs.list().size() == inputs.size() &&
                             std::equal(inputs.begin(), inputs.end(), outputs.list().begin(),
                                        [](const at::Tensor &one, const at::Tensor &other) {
                                            return one.is_same(other);
                                        });
    return are_results ? Tensors() : inputs;
}

Work::Work(std::shared_ptr<Engine> engine, int rank, c10d::OpType type, const char *title,
           const Tensors &inputs, Outputs outputs, size_t operations)
    : c10d::Work(rank, type, at::hasCallbacks() ? title : nullptr, shown_inputs(inputs)),
      engine_(std::move(engine)), title_(title), inputs_(inputs_apart(inputs, outputs)),
      outputs_(std::move(outputs)), count_(operations), under_way_(operations),
      unreleased_(operations)
{
    if (count_ > 1)
        more_.resize(count_ - 1);
    for (size_t i = 0; i < count_; i++) {
        operation(i).done = take_end;
        operation(i).release = take_release;
        operation(i).context = this;
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
    sw_coll_call &call = operation(at).call;
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
    TORCH_CHECK(entry.get(), work->title_, ": ", work->engine_->why_closed());
    work->self_ = work;
    if (work->count_ == 1) {
        pge_operation *only = &work->first_;
        pge_submit(entry.get(), &only, 1);
        return work;
    }
    for (size_t i = 0; i < work->count_; i++)
        work->pointers_.push_back(&work->operation(i));
    if (work->count_)
        pge_submit(entry.get(), work->pointers_.data(), static_cast<uint32_t>(work->count_));
    else
        work->end_all();
    return work;
}

/* ---- its end, in the thread that drives the engine ---- */

void Work::take_end(pge_operation *operation)
{
    static_cast<Work *>(operation->context)->end_one(*operation);
}

/* Some begin with the name of the operation, as the title ends. */
static const char *words_of(const struct sw_coll_error &error, const char *title)
{
    const char *name = strchr(title, ':') + 1;
    const size_t length = strlen(name);
    const bool is_said =
        !strncmp(error.text, name, length) && !strncmp(error.text + length, ": ", 2);
    return is_said ? error.text + length + 2 : error.text;
}

void Work::end_one(const pge_operation &operation)
{
    if (operation.error.status != SW_COLL_OK) {
        std::lock_guard<std::mutex> guard(mutex_);
        /* "Timed out" is what programs look for that know gloo. */
        const char *how =
            operation.error.status == SW_COLL_TIMEOUT ? ": Timed out waiting: " : ": ";
        if (!has_failed_)
            failure_ = title_ + std::string(how) + words_of(operation.error, title_);
        has_failed_ = true;
    }
    if (count_ == 1 || under_way_.fetch_sub(1) == 1)
        end_all();
}

void Work::end_all()
{
    if (has_failed_)
        exception_ = std::make_exception_ptr(std::runtime_error(failure_));
    if (!then_.empty())
        run_then();
    buffers_.clear();
    if (recordFunctionEndCallback_) {
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
    }
    const uint32_t before = state_.fetch_or(OVER);
    if (before & HAS_WAITER) {
        std::lock_guard<std::mutex> guard(mutex_);
        cv_.notify_all();
    }
    if (!(before & HAS_FUTURE))
        return;
    /* Callbacks may wait for other operations, so they have a thread of their own. */
    auto *held =
        new c10::intrusive_ptr<Work>(c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
    Engine::Entry entry(*engine_);
    if (!entry.get() || !pge_later(entry.get(), mark_later, held))
        mark_later(held);
}

void Work::run_then()
{
    try {
        /* Results may be tensors that want gradients: nothing of this is for autograd. */
        at::AutoDispatchBelowADInplaceOrView guard;
        for (const auto &function : then_) {
            if (!has_failed_)
                function();
        }
    } catch (...) {
        exception_ = std::current_exception();
    }
    then_.clear();
}

void Work::take_release(pge_operation *operation)
{
    Work *work = static_cast<Work *>(operation->context);
    if (work->count_ != 1 && work->unreleased_.fetch_sub(1) != 1)
        return;
    c10::intrusive_ptr<Work> last = std::move(work->self_);
}

/* ---- futures ---- */

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (future_)
            return future_;
        c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
        if (outputs_.are_lists())
            type = c10::ListType::create(type);
        future_ = c10::make_intrusive<c10::ivalue::Future>(type);
    }
    auto own = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this);
    watch_future(own);
    if (state_.fetch_or(HAS_FUTURE) & OVER) {
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
    forget_future(*this);
    if (state_.fetch_or(MARKED) & MARKED)
        return;
    if (exception_)
        future_->setError(exception_);
    else
        future_->markCompleted(outputs_.value());
}

/* As mark_future(), for callbacks. The operation goes on, and its buffers are its own until it has
 * ended. */
void Work::interrupt()
{
    if (state_.fetch_or(MARKED) & MARKED)
        return;
    const std::string words = title_ + std::string(": its wait was ended by SIGINT (Ctrl-C)");
    future_->setError(std::make_exception_ptr(std::runtime_error(words)));
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
    if (is_over())
        return true;
    Engine::Entry entry(*engine_);
    for (size_t i = 0; i < count_; i++) {
        if (entry.get() && !pge_test(entry.get(), &operation(i)))
            break;
    }
    return is_over();
}

bool Work::isSuccess() const
{
    return is_over() && !exception_;
}

std::exception_ptr Work::exception() const
{
    return is_over() ? exception_ : std::exception_ptr();
}

void run_python_handlers()
{
    if (syscall(SYS_gettid) != getpid() || !Py_IsInitialized())
        return;
    pybind11::gil_scoped_acquire lock;
    if (PyErr_CheckSignals())
        throw pybind11::error_already_set();
}

/* By the clock of deadlines, to within a few milliseconds, in a fifth of the time. */
static uint64_t next_look_ns(uint64_t ms)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec) +
           ms * 1000000;
}

/* Status and dumps tell that this thread waits for it. */
class Hold
{
  public:
    Hold(pge_engine *engine, pge_operation *operation) : engine_(engine), operation_(operation)
    {
        pge_hold(engine_, operation_, true);
    }
    ~Hold()
    {
        pge_hold(engine_, operation_, false);
    }
    Hold(const Hold &) = delete;
    Hold &operator=(const Hold &) = delete;

  private:
    pge_engine *const engine_;
    pge_operation *const operation_;
};

/* AGAIN: it goes on, and so may this wait, unless `is_last`. */
static sw_coll_status wait_until_look(pge_engine *engine, pge_operation *operation, uint64_t ms,
                                      uint64_t deadline_ns, bool &is_last,
                                      struct sw_coll_error *error)
{
    const uint64_t look_ns = next_look_ns(ms);
    is_last = deadline_ns && deadline_ns <= look_ns;
    return pge_wait(engine, operation, is_last ? deadline_ns : look_ns, error);
}

/* A wait that is short is nothing to tell of: that would take a part of the shortest ones. */
static sw_coll_status wait_interruptibly(pge_engine *engine, pge_operation *operation,
                                         uint64_t deadline_ns, struct sw_coll_error *error)
{
    bool is_last;
    sw_coll_status status =
        wait_until_look(engine, operation, UNTOLD_MS, deadline_ns, is_last, error);
    if (status != SW_COLL_AGAIN || is_last)
        return status;
    const Hold hold(engine, operation);
    do {
        run_python_handlers();
        status = wait_until_look(engine, operation, SIGNALS_EVERY_MS, deadline_ns, is_last, error);
    } while (status == SW_COLL_AGAIN && !is_last);
    return status;
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    if (!is_over()) {
        const uint64_t deadline_ns = timeout.count() > 0
                                         ? sw_coll_deadline_ms(static_cast<uint32_t>(
                                               std::min<int64_t>(timeout.count(), UINT32_MAX)))
                                         : 0;
        Engine::Entry entry(*engine_);
        for (size_t i = 0; i < count_; i++) {
            struct sw_coll_error error;
            if (!entry.get() || pge_is_over(&operation(i)))
                continue;
            error.text[0] = '\0';
            const sw_coll_status status =
                wait_interruptibly(entry.get(), &operation(i), deadline_ns, &error);
            TORCH_CHECK(status != SW_COLL_AGAIN, title_, ": it has not ended within ",
                        timeout.count(), " ms");
            /* In a child of fork() it never ends. */
            TORCH_CHECK(pge_is_over(&operation(i)), title_, ": ", error.text);
        }
    }
    if (!is_over())
        await_over();
    if (exception_) {
        /* Ctrl-C reaches all ranks: one that ends by it at once is not what the others tell. */
        run_python_handlers();
        std::rethrow_exception(exception_);
    }
    return true;
}

/* Another thread ends the group just now. */
void Work::await_over()
{
    std::unique_lock<std::mutex> guard(mutex_);
    if (!(state_.fetch_or(HAS_WAITER) & OVER))
        cv_.wait(guard, [this] { return is_over(); });
}

int Work::sourceRank() const
{
    TORCH_CHECK(opType_ == c10d::OpType::RECVANYSOURCE || opType_ == c10d::OpType::RECV,
                "only a receive has a source");
    return static_cast<int>(first_.source);
}

Tensors Work::result()
{
    TORCH_CHECK(isCompleted(), title_, " has not ended yet: it has no result");
    TORCH_CHECK(!outputs_.are_lists(), title_, " has lists of tensors: take them of its future");
    return outputs_.list();
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

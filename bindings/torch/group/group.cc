/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/group.hpp"

#include <algorithm>

#include "torch/group/interrupt.hpp"
#include "torch/group/store.hpp"

namespace sidewire_torch
{

/* ---- from open to close ---- */

static pge_options options_of(const Settings &settings)
{
    pge_options options;
    pge_options_init(&options);
    if (!settings.address.empty())
        options.coll.address = settings.address.c_str();
    if (!settings.algorithm.empty())
        options.coll.algorithm = settings.algorithm.c_str();
    options.coll.order = settings.is_any_order ? SW_COLL_ORDER_ANY : SW_COLL_ORDER_TREE;
    options.coll.timeout_ms = static_cast<uint32_t>(
        std::min<int64_t>(std::max<int64_t>(settings.timeout_ms, 1), UINT32_MAX));
    if (settings.spin_us >= 0)
        options.coll.spin_us = static_cast<uint32_t>(settings.spin_us);
    if (settings.eager_bytes >= 0)
        options.coll.eager_bytes = static_cast<uint32_t>(settings.eager_bytes);
    return options;
}

/* Which of these ranks of a group is gone. */
static std::string name_gone(const c10::intrusive_ptr<Group> &whole,
                             const std::vector<int64_t> &ranks)
{
    for (int64_t rank : whole->gone()) {
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
            return "rank " + std::to_string(rank) +
                   " of the default group died, or closed before the others";
    }
    return "";
}

/* By the numbers that they have in the other group. */
static void show_absent(const c10::intrusive_ptr<Group> &whole, const std::vector<int64_t> &ranks,
                        const Meeting::Ranks &absent, std::chrono::milliseconds waited)
{
    std::vector<int64_t> awaited;
    for (uint32_t rank : absent) {
        if (rank < ranks.size())
            awaited.push_back(ranks[rank]);
    }
    whole->show_wait(awaited, waited.count());
}

pge_engine *Group::open_engine(Meeting &meeting, const Settings &settings, int rank, int size)
{
    pge_options options = options_of(settings);
    options.coll.rank = static_cast<uint32_t>(rank);
    options.coll.size = static_cast<uint32_t>(size);
    options.coll.exchange = Meeting::exchange;
    options.coll.exchange_context = &meeting;
    pge_engine *engine = nullptr;
    struct sw_coll_error error = {};
    if (pge_open(&options, &error, &engine) == SW_COLL_OK)
        return engine;
    if (meeting.failure().empty())
        meeting.fail(error.text);
    if (meeting.interruption())
        std::rethrow_exception(meeting.interruption());
    throw std::runtime_error(
        "sidewire: rank " + std::to_string(rank) + " of " + std::to_string(size) +
        " cannot open its process group: " +
        (meeting.failure().empty() ? std::string(error.text) : meeting.failure()));
}

Group::Group(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
             const Settings &settings, const c10::intrusive_ptr<Group> &whole,
             const std::vector<int64_t> &ranks)
    : Base(rank, size), settings_(settings), first_rank_(rank), timeout_ms_(settings.timeout_ms)
{
    Meeting::Watch watch;
    Meeting::Show show;
    watch_interrupts();
    if (settings.is_deferred) {
        take_engine(nullptr);
        return;
    }
    if (whole) {
        watch = [&] { return name_gone(whole, ranks); };
        show = [&](const Meeting::Ranks &absent, std::chrono::milliseconds waited) {
            show_absent(whole, ranks, absent, waited);
        };
    }
    Meeting meeting(store, static_cast<uint32_t>(rank), static_cast<uint32_t>(size),
                    settings.timeout_ms, watch, show);
    take_engine(open_engine(meeting, settings, rank, size));
}

Group::Group(pge_engine *engine, const Settings &settings)
    : Base(static_cast<int>(pge_rank(engine)), static_cast<int>(pge_size(engine))),
      settings_(settings), first_rank_(static_cast<int>(pge_rank(engine))),
      timeout_ms_(settings.timeout_ms)
{
    take_engine(engine);
}

void Group::take_engine(pge_engine *engine)
{
    engines_.push_back(Engine::make(engine));
    engine_.store(engines_.back().get());
}

Group::~Group()
{
    close();
}

WithoutPython::WithoutPython()
{
    if (Py_IsInitialized() && PyGILState_Check())
        state_ = PyEval_SaveThread();
}

WithoutPython::~WithoutPython()
{
    if (state_)
        PyEval_RestoreThread(state_);
}

void Group::close()
{
    const WithoutPython unlocked;
    if (engine_.load())
        engine().close();
}

void Group::abort()
{
    Engine::Entry entry(engine());
    if (entry.get())
        pge_abort(entry.get(), "the process group was aborted");
}

void Group::shutdown()
{
    close();
}

c10::intrusive_ptr<Group> Group::shrink_to_rest(int64_t timeout_ms)
{
    Engine::Entry entry(engine());
    TORCH_CHECK(entry.get(), "sidewire: ", engine().why_closed());
    pge_engine *rest = nullptr;
    struct sw_coll_error error = {};
    const uint64_t deadline_ns =
        timeout_ms > 0
            ? sw_coll_deadline_ms(static_cast<uint32_t>(std::min<int64_t>(timeout_ms, UINT32_MAX)))
            : 0;
    if (pge_shrink(entry.get(), deadline_ns, &error, &rest) != SW_COLL_OK)
        throw std::runtime_error(std::string("sidewire: shrink: ") + error.text);
    return c10::intrusive_ptr<Group>::unsafe_steal_from_new(new Group(rest, settings_));
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10::intrusive_ptr<c10d::Backend> Group::shrink(const std::vector<int64_t> &left_out, int,
                                                const c10::intrusive_ptr<c10d::Backend::Options> &)
{
    auto rest = shrink_to_rest(timeout_ms_);
    /* torch numbers the ranks by its own list. */
    TORCH_CHECK(rest->getSize() + static_cast<int>(left_out.size()) == getSize(),
                "sidewire: shrink: ", rest->getSize(), " of ", getSize(), " ranks are left, and ",
                left_out.size(), " were to be left out");
    return rest;
}

c10d::ErrorType Group::getError()
{
    struct sw_coll_error error = {};
    Engine::Entry entry(engine());
    switch (entry.get() ? pge_error(entry.get(), &error) : SW_COLL_REVOKED) {
    case SW_COLL_OK:
    case SW_COLL_AGAIN:
        return c10d::ErrorType::SUCCESS;
    case SW_COLL_TIMEOUT:
        return c10d::ErrorType::TIMEOUT;
    case SW_COLL_RANK_GONE:
        return c10d::ErrorType::REMOTE_ERROR;
    default:
        return c10d::ErrorType::COMM_ERROR;
    }
}
#endif

std::vector<int64_t> Group::gone()
{
    std::vector<int64_t> ranks;
    Engine::Entry entry(engine());
    if (!entry.get())
        return ranks;
    std::unique_ptr<bool[]> is_gone(new bool[size()]());
    pge_error(entry.get(), nullptr); /* looks: a rank may have died since the last operation */
    pge_gone(entry.get(), is_gone.get());
    for (int rank = 0; rank < getSize(); rank++) {
        if (is_gone[static_cast<size_t>(rank)])
            ranks.push_back(rank);
    }
    return ranks;
}

std::string Group::failure()
{
    struct sw_coll_error error = {};
    Engine::Entry entry(engine());
    if (!entry.get())
        return engine().why_closed();
    const sw_coll_status status = pge_error(entry.get(), &error);
    return status == SW_COLL_AGAIN ? "ranks agree on who is gone" : error.text;
}

void Group::dump(const std::string &path)
{
    struct sw_coll_error error = {};
    Engine::Entry entry(engine());
    TORCH_CHECK(entry.get(), "sidewire: ", engine().why_closed());
    if (pge_dump(entry.get(), path.c_str(), &error) != SW_COLL_OK)
        throw std::runtime_error(std::string("sidewire: dump: ") + error.text);
}

void Group::show_wait(const std::vector<int64_t> &awaited, int64_t waited_ms)
{
    std::unique_ptr<bool[]> is_awaited(new bool[size()]());
    for (int64_t rank : awaited) {
        if (rank >= 0 && rank < getSize())
            is_awaited[static_cast<size_t>(rank)] = true;
    }
    const uint64_t since_ns = sw_coll_deadline_ms(0) - static_cast<uint64_t>(waited_ms) * 1000000;
    Engine::Entry entry(engine());
    if (entry.get())
        pge_await_ranks(entry.get(), awaited.empty() ? nullptr : is_awaited.get(), since_ns);
}

/* ---- operations ---- */

void Group::check_rank(int64_t rank, const char *what) const
{
    TORCH_CHECK(rank >= 0 && rank < getSize(), what, ": there is no rank ", rank);
}

Group::Prepared Group::prepare(c10d::OpType type, const char *title, const Tensors &inputs,
                               Outputs outputs, std::chrono::milliseconds timeout,
                               size_t operations)
{
    auto work = c10::make_intrusive<Work>(engine().shared_from_this(), getRank(), type, title,
                                          inputs, std::move(outputs), operations);
    if (timeout.count() > 0) {
        const uint64_t deadline_ns = sw_coll_deadline_ms(
            static_cast<uint32_t>(std::min<int64_t>(timeout.count(), UINT32_MAX)));
        for (size_t i = 0; i < operations; i++)
            work->operation(i).deadline_ns = deadline_ns;
    }
    return work;
}

WorkPtr Group::begin(Prepared work)
{
    WorkPtr begun = Work::begin(std::move(work));
#if TORCH_VERSION_MAJOR >= 2
    if (is_coalescing_)
        coalesced_.push_back(begun);
#endif
    return begun;
}

WorkPtr Group::barrier(const c10d::BarrierOptions &options)
{
    auto work = prepare(c10d::OpType::BARRIER, "sidewire:barrier", {}, {}, options.timeout);
    work->operation().call.kind = SW_COLL_BARRIER;
    return begin(std::move(work));
}

void Group::setSequenceNumberForGroup()
{
    Engine::Entry entry(engine());
    if (entry.get())
        pge_sequence_set(entry.get(), 0);
}

uint64_t Group::getSequenceNumberForGroup()
{
    Engine::Entry entry(engine());
    return entry.get() ? pge_sequence(entry.get()) : 0;
}

/* ---- messages ---- */

static void check_message(const Tensors &tensors, const char *what)
{
    check_tensors(tensors, what);
    TORCH_CHECK(tensors.size() == 1, what, ": it wants one tensor");
}

WorkPtr Group::send(Tensors &tensors, int peer, int tag)
{
    check_message(tensors, "send");
    check_rank(peer, "send");
    auto work = prepare(c10d::OpType::SEND, "sidewire:send", tensors, {}, c10d::kUnsetTimeout);
    const Flat flat = Flat::with(tensors);
    pge_operation &operation = work->operation();
    operation.kind = PGE_SEND;
    operation.call.send = flat.data();
    operation.call.count = tensors[0].nbytes();
    operation.peer = static_cast<uint32_t>(peer);
    operation.tag = static_cast<uint32_t>(tag);
    work->keep(flat.buffer());
    return begin(std::move(work));
}

WorkPtr Group::begin_recv(Tensors &tensors, pge_kind kind, c10d::OpType type, const char *title,
                          uint32_t peer, int tag)
{
    check_message(tensors, "recv");
    auto work = prepare(type, title, tensors, {tensors}, c10d::kUnsetTimeout);
    const Flat flat = Flat::place_for(tensors);
    pge_operation &operation = work->operation();
    operation.kind = kind;
    operation.call.recv = flat.data();
    operation.call.count = tensors[0].nbytes();
    operation.peer = peer;
    operation.tag = static_cast<uint32_t>(tag);
    if (flat.is_copy())
        work->then([flat] { flat.copy_out(); });
    return begin(std::move(work));
}

WorkPtr Group::recv(Tensors &tensors, int peer, int tag)
{
    check_rank(peer, "recv");
    return begin_recv(tensors, PGE_RECV, c10d::OpType::RECV, "sidewire:recv",
                      static_cast<uint32_t>(peer), tag);
}

WorkPtr Group::recvAnysource(Tensors &tensors, int tag)
{
    return begin_recv(tensors, PGE_RECV_ANY, c10d::OpType::RECVANYSOURCE, "sidewire:recvAnySource",
                      0, tag);
}

} // namespace sidewire_torch

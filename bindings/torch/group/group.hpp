/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The process group: each operation of torch's is translated into one of the engine, or several.
 *
 * Buffers are those of the tensors where their elements lie one behind the other, else copies. The
 * calls of a rank are compared with those of the others by their translation: a gather of unequal
 * tensors, of which the root alone knows all sizes, is an all-to-all whose other blocks are empty.
 */
#ifndef SW_BINDINGS_TORCH_GROUP_HPP
#define SW_BINDINGS_TORCH_GROUP_HPP

#include <Python.h>

#include "torch/group/reconfigure.hpp"
#include "torch/group/store.hpp"
#include "torch/group/tensors.hpp"
#include "torch/group/work.hpp"

namespace sidewire_torch
{

/* How a group is opened; module.cc has the words by which Python says so. */
struct Settings {
    std::string address, algorithm; /* empty: the library chooses */
    bool is_any_order = false;
    bool is_deferred = false; /* reconfigure() opens it, the constructor does not */
    int64_t timeout_ms = 0, spin_us = -1, eager_bytes = -1; /* below 0: the library's own */
};

/* What ends may want Python's lock: a tensor that Python knows, a callback. So it is not held
 * while something is waited for. */
class WithoutPython
{
  public:
    WithoutPython();
    ~WithoutPython();
    WithoutPython(const WithoutPython &) = delete;
    WithoutPython &operator=(const WithoutPython &) = delete;

  private:
    PyThreadState *state_ = nullptr;
};

class Group : public Base
{
  public:
    /* Waits until all ranks are there, which find each other by the store. They are `ranks` of
     * another group, if that is given, whose deaths end it. Throws. */
    Group(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
          const Settings &settings, const c10::intrusive_ptr<Group> &whole,
          const std::vector<int64_t> &ranks);
    ~Group() override;

    /* ---- what torch does not have in all versions ---- */

    void abort() OVERRIDES_LATER;
    void shutdown() OVERRIDES_LATER;
    /* Those that are left, after a failure: all of them call it. Throws. */
    c10::intrusive_ptr<Group> shrink_to_rest(int64_t timeout_ms);
    /* Ranks that are known to be gone. */
    std::vector<int64_t> gone();
    /* Why it has failed; empty: it has not. */
    std::string failure();
    /* What this rank has recorded, as docs/coll-dump.md has it, into a file. Throws. */
    void dump(const std::string &path);
    /* These ranks are awaited outside of this group: `coll status` tells it. Empty: no longer. */
    void show_wait(const std::vector<int64_t> &awaited, int64_t waited_ms);
    /* Rows are contributions of this rank, and leaves of the sum; the first gets the result. */
    WorkPtr allreduce_leaves(at::Tensor rows, const c10d::ReduceOp &op);
    /* Ends requests, and all of the group; later calls throw. */
    void close();
    /* That of the last reconfigure(), where new groups of these ranks meet; null: torch's own. */
    c10::intrusive_ptr<c10d::Store> store() const
    {
        return store_;
    }

    /* ---- torch's ---- */

    const std::string getBackendName() const override
    {
        return "sidewire";
    }
    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &options) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &options) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &options) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &options) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &options) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &options) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &options) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &options) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &options) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                     const c10d::AllToAllOptions &options) override;
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions &options) override;
    void monitoredBarrier(const c10d::BarrierOptions &options, bool must_name_all) override;
    void setSequenceNumberForGroup() override;
    uint64_t getSequenceNumberForGroup() override;
#if TORCH_VERSION_MAJOR >= 2
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &options) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &options) override;
    void startCoalescing() override;
    WorkPtr endCoalescing() override;
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsShrinking() const override
    {
        return true;
    }
    /* All others call it. The ranks that torch leaves out may be dead, or do without the group. */
    c10::intrusive_ptr<c10d::Backend>
    shrink(const std::vector<int64_t> &left_out, int flags,
           const c10::intrusive_ptr<c10d::Backend::Options> &options) override;
    c10d::ErrorType getError() override;
    bool supportsReconfigure() const override
    {
        return true;
    }
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    /* Ends what is under way, and waits until all ranks of the new group have called it. After an
     * error it may be called again. Throws. */
    WorkPtr reconfigure(const c10d::ReconfigureOptions &options) override;
#endif

  private:
    using Prepared = c10::intrusive_ptr<Work>;

    Group(pge_engine *engine, const Settings &settings);
    uint32_t rank() const
    {
        return static_cast<uint32_t>(getRank());
    }
    uint32_t size() const
    {
        return static_cast<uint32_t>(getSize());
    }
    /* Throws: no rank of the group. */
    void check_rank(int64_t rank, const char *what) const;
    Prepared prepare(c10d::OpType type, const char *title, const Tensors &inputs, Outputs outputs,
                     std::chrono::milliseconds timeout, size_t operations = 1);
    WorkPtr begin(Prepared work);

    /* Sums. */
    void set_all_reduce(Work &work, const Tensors &tensors, const c10d::ReduceOp &op);
    void set_reduce_scatter(Work &work, size_t at, const Tensors &inputs, const at::Tensor &output,
                            const c10d::ReduceOp &op, Counts counts);
    /* By a bitwise operator, which operations do not have: of what all have gathered. */
    void set_bits(Work &work, const Tensors &tensors, const c10d::ReduceOp &op, int64_t root);
    void set_bits_scatter(Work &work, size_t at, const Tensors &inputs, const at::Tensor &output,
                          const c10d::ReduceOp &op, const Counts &counts);
    WorkPtr sum_sparse(const Tensors &tensors, const c10d::AllreduceOptions &options);

    /* Moves. Counts are of elements, one for each rank. */
    void set_all_gather(Work &work, size_t at, const Tensors &inputs, const Tensors &outputs,
                        Counts counts);
    void set_all_to_all(Work &work, size_t at, const Tensors &inputs, const Tensors &outputs,
                        Counts counts, Counts recv_counts);
    WorkPtr begin_recv(Tensors &tensors, pge_kind kind, c10d::OpType type, const char *title,
                       uint32_t peer, int tag);

    /* The monitored barrier: a message to or from rank 0, and what rank 0 and the others do. */
    WorkPtr begin_word(pge_kind kind, uint32_t peer, uint64_t tag, const at::Tensor &word,
                       std::chrono::milliseconds timeout);
    void lead_barrier(uint64_t tag, std::chrono::milliseconds timeout, bool must_name_all);
    void join_barrier(uint64_t tag, std::chrono::milliseconds timeout);

    Engine &engine() const
    {
        return *engine_.load();
    }
    void take_engine(pge_engine *engine);
    /* Waits until all ranks are there. Throws. */
    static pge_engine *open_engine(Meeting &meeting, const Settings &settings, int rank, int size);

    const Settings settings_;
    const int first_rank_;
    /* Those of earlier ranks stay, closed: another thread may be about to enter one. */
    std::vector<std::shared_ptr<Engine>> engines_;
    std::atomic<Engine *> engine_{nullptr};
    c10::intrusive_ptr<c10d::Store> store_;
    const int64_t timeout_ms_;
    uint64_t monitored_ = 0; /* monitored barriers that this rank has begun */
#if TORCH_VERSION_MAJOR >= 2
    bool is_coalescing_ = false;
    std::vector<WorkPtr> coalesced_;
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    mutable MeetingPlace place_;
#endif
};

} // namespace sidewire_torch

#endif

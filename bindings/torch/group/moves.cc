/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations that move blocks from rank to rank. */
#include "torch/group/group.hpp"

namespace sidewire_torch
{

static Counts counts_of(const Tensors &tensors)
{
    Counts counts;
    for (const at::Tensor &tensor : tensors)
        counts.push_back(static_cast<uint64_t>(tensor.numel()));
    return counts;
}

static uint64_t sum_before(const Counts &counts, size_t rank)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < rank; i++)
        sum += counts[i];
    return sum;
}

/* ---- broadcast ---- */

WorkPtr Group::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    check_equal(tensors, "broadcast");
    TORCH_CHECK(options.rootTensor >= 0 &&
                    options.rootTensor < static_cast<int64_t>(tensors.size()),
                "broadcast: there is no tensor ", options.rootTensor);
    check_rank(options.rootRank, "broadcast");
    auto work =
        prepare(c10d::OpType::BROADCAST, "sidewire:broadcast", tensors, {tensors}, options.timeout);
    const at::Tensor said = tensors[options.rootTensor];
    const Element element = element_of(said.scalar_type());
    const Flat flat = Flat::with({said});
    sw_coll_call &call = work->operation().call;
    call.kind = SW_COLL_BROADCAST;
    call.type = element.type;
    call.root = static_cast<uint32_t>(options.rootRank);
    call.count = static_cast<uint64_t>(said.numel()) * element.each;
    call.recv = flat.data();
    if (tensors.size() == 1 && !flat.is_copy())
        return begin(std::move(work));
    work->then([flat, tensors, said] {
        flat.copy_out();
        for (const at::Tensor &tensor : tensors) {
            if (!tensor.is_same(said))
                tensor.copy_(said.view(tensor.sizes()));
        }
    });
    return begin(std::move(work));
}

/* ---- all-gather ---- */

void Group::set_all_gather(Work &work, size_t at, const Tensors &inputs, const Tensors &outputs,
                           Counts counts)
{
    const at::ScalarType type = inputs[0].scalar_type();
    TORCH_CHECK(outputs[0].scalar_type() == type,
                "all_gather: input and output are of unlike types, ", type, " and ",
                outputs[0].scalar_type());
    TORCH_CHECK(static_cast<uint64_t>(count_all(inputs)) == counts[rank()],
                "all_gather: the input has ", count_all(inputs), " elements, the output for it ",
                counts[rank()]);
    const Element element = element_of(type);
    Flat from = Flat::with(inputs);
    const Flat to = Flat::place_for(outputs);
    const uint64_t before = sum_before(counts, rank()) * inputs[0].element_size();
    if (from.overlaps(to) && from.data() != to.data() + before)
        from.move_away();
    sw_coll_call &call = work.operation(at).call;
    call.kind = SW_COLL_ALL_GATHER;
    call.type = element.type;
    call.send = from.data();
    call.recv = to.data();
    work.set_blocks(at, std::move(counts), element.each);
    work.keep(from.buffer());
    work.keep(to.buffer());
    if (to.is_copy())
        work.then([to] { to.copy_out(); });
}

WorkPtr Group::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                         const c10d::AllgatherOptions &options)
{
    check_equal(inputs, "all_gather");
    TORCH_CHECK(outputs.size() == inputs.size(), "all_gather: as many lists as inputs");
    for (const Tensors &list : outputs) {
        TORCH_CHECK(list.size() == inputs.size() * size(),
                    "all_gather: each list wants an output for each input of each rank");
        check_tensors(list, "all_gather");
    }
    auto work =
        prepare(c10d::OpType::ALLGATHER, "sidewire:all_gather", inputs, outputs, options.timeout);
    Counts counts(size());
    for (size_t i = 0; i < outputs[0].size(); i++)
        counts[i / inputs.size()] += static_cast<uint64_t>(outputs[0][i].numel());
    set_all_gather(*work, 0, inputs, outputs[0], std::move(counts));
    if (outputs.size() == 1)
        return begin(std::move(work));
    work->then([outputs] {
        for (size_t list = 1; list < outputs.size(); list++) {
            for (size_t i = 0; i < outputs[list].size(); i++)
                outputs[list][i].copy_(outputs[0][i]);
        }
    });
    return begin(std::move(work));
}

WorkPtr Group::_allgather_base(at::Tensor &output, at::Tensor &input,
                               const c10d::AllgatherOptions &options)
{
    check_tensor(output, "all_gather_into_tensor");
    check_tensor(input, "all_gather_into_tensor");
    TORCH_CHECK(output.numel() == input.numel() * getSize(),
                "all_gather_into_tensor: output tensor size must be equal to world_size times "
                "input tensor size");
    auto work = prepare(c10d::OpType::_ALLGATHER_BASE, "sidewire:_all_gather_base", {input},
                        {{output}}, options.timeout);
    set_all_gather(*work, 0, {input}, {output},
                   Counts(size(), static_cast<uint64_t>(input.numel())));
    return begin(std::move(work));
}

/* Its outputs are a list for each rank, with a tensor for each input. */
WorkPtr Group::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                   const c10d::AllgatherOptions &options)
{
    check_tensors(inputs, "all_gather_coalesced");
    TORCH_CHECK(outputs.size() == size(), "all_gather_coalesced: it wants a list for each rank");
    Tensors all;
    Counts counts;
    for (const Tensors &list : outputs) {
        TORCH_CHECK(list.size() == inputs.size(),
                    "all_gather_coalesced: each list wants an output for each input");
        all.insert(all.end(), list.begin(), list.end());
        counts.push_back(static_cast<uint64_t>(count_all(list)));
    }
    check_tensors(all, "all_gather_coalesced");
    auto work = prepare(c10d::OpType::ALLGATHER_COALESCED, "sidewire:all_gather", inputs, outputs,
                        options.timeout);
    set_all_gather(*work, 0, inputs, all, std::move(counts));
    return begin(std::move(work));
}

/* ---- all-to-all, gather, scatter ---- */

void Group::set_all_to_all(Work &work, size_t at, const Tensors &inputs, const Tensors &outputs,
                           Counts counts, Counts recv_counts)
{
    const Tensors &some = inputs.empty() ? outputs : inputs;
    const Element element = element_of(some[0].scalar_type());
    sw_coll_call &call = work.operation(at).call;
    call.kind = SW_COLL_ALL_TO_ALL;
    call.type = element.type;
    for (uint64_t &count : counts)
        count *= element.each;
    for (uint64_t &count : recv_counts)
        count *= element.each;
    call.counts = work.keep(std::move(counts));
    call.recv_counts = work.keep(std::move(recv_counts));
    const Flat to = outputs.empty() ? Flat() : Flat::place_for(outputs);
    Flat from = inputs.empty() ? Flat() : Flat::with(inputs);
    if (from.overlaps(to))
        from.move_away();
    call.send = from.data();
    call.recv = to.data();
    work.keep(from.buffer());
    work.keep(to.buffer());
    if (to.is_copy())
        work.then([to] { to.copy_out(); });
}

WorkPtr Group::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::GatherOptions &options)
{
    check_tensors(inputs, "gather");
    TORCH_CHECK(inputs.size() == 1, "gather: it wants one input");
    const bool is_root = options.rootRank == getRank();
    check_rank(options.rootRank, "gather");
    TORCH_CHECK(!is_root || (outputs.size() == 1 && outputs[0].size() == size()),
                "gather: the root wants an output for each rank");
    TORCH_CHECK(is_root || outputs.empty(), "gather: only the root has outputs");
    Counts counts(size()), recv_counts(size());
    counts[static_cast<size_t>(options.rootRank)] = static_cast<uint64_t>(inputs[0].numel());
    if (is_root) {
        check_tensors(outputs[0], "gather");
        recv_counts = counts_of(outputs[0]);
    }
    auto work = prepare(c10d::OpType::GATHER, "sidewire:gather", inputs, outputs, options.timeout);
    set_all_to_all(*work, 0, inputs, is_root ? outputs[0] : Tensors(), std::move(counts),
                   std::move(recv_counts));
    return begin(std::move(work));
}

WorkPtr Group::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                       const c10d::ScatterOptions &options)
{
    check_tensors(outputs, "scatter");
    TORCH_CHECK(outputs.size() == 1, "scatter: it wants one output");
    const bool is_root = options.rootRank == getRank();
    check_rank(options.rootRank, "scatter");
    TORCH_CHECK(!is_root || (inputs.size() == 1 && inputs[0].size() == size()),
                "scatter: the root wants an input for each rank");
    TORCH_CHECK(is_root || inputs.empty(), "scatter: only the root has inputs");
    Counts counts(size()), recv_counts(size());
    recv_counts[static_cast<size_t>(options.rootRank)] = static_cast<uint64_t>(outputs[0].numel());
    if (is_root) {
        check_tensors(inputs[0], "scatter");
        counts = counts_of(inputs[0]);
    }
    auto work = prepare(c10d::OpType::SCATTER, "sidewire:scatter", is_root ? inputs[0] : Tensors(),
                        {outputs}, options.timeout);
    set_all_to_all(*work, 0, is_root ? inputs[0] : Tensors(), outputs, std::move(counts),
                   std::move(recv_counts));
    return begin(std::move(work));
}

WorkPtr Group::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
    TORCH_CHECK(outputs.size() == size() && inputs.size() == size(),
                "all_to_all: it wants an input and an output for each rank");
    check_tensors(inputs, "all_to_all");
    check_tensors(outputs, "all_to_all");
    auto work =
        prepare(c10d::OpType::ALLTOALL, "sidewire:all_to_all", inputs, {outputs}, options.timeout);
    set_all_to_all(*work, 0, inputs, outputs, counts_of(inputs), counts_of(outputs));
    return begin(std::move(work));
}

/* Elements for each rank, of rows that are split. */
static Counts split_rows(const at::Tensor &tensor, const std::vector<int64_t> &splits,
                         uint32_t ranks)
{
    const int64_t rows = tensor.dim() ? tensor.size(0) : tensor.numel();
    const int64_t each = rows ? tensor.numel() / rows : 0;
    if (splits.empty()) {
        TORCH_CHECK(rows % ranks == 0,
                    "all_to_all: Tensor's dim 0 does not divide equally across group size");
        return Counts(ranks, static_cast<uint64_t>(tensor.numel()) / ranks);
    }
    TORCH_CHECK(splits.size() == ranks,
                "all_to_all: Number of tensor splits not equal to group size");
    Counts counts;
    int64_t sum = 0;
    for (int64_t split : splits) {
        TORCH_CHECK(split >= 0, "all_to_all: a split is negative");
        counts.push_back(static_cast<uint64_t>(split * each));
        sum += split;
    }
    TORCH_CHECK(sum == rows, "all_to_all: Split sizes doesn't match total dim 0 size");
    return counts;
}

WorkPtr Group::alltoall_base(at::Tensor &output, at::Tensor &input,
                             std::vector<int64_t> &output_splits,
                             std::vector<int64_t> &input_splits,
                             const c10d::AllToAllOptions &options)
{
    check_tensors({output, input}, "all_to_all_single");
    auto work = prepare(c10d::OpType::ALLTOALL_BASE, "sidewire:all_to_all", {input}, {{output}},
                        options.timeout);
    set_all_to_all(*work, 0, {input}, {output}, split_rows(input, input_splits, size()),
                   split_rows(output, output_splits, size()));
    if (input_splits.empty() && output_splits.empty()) {
        /* All ranks say so. Small blocks travel with the first message then. */
        sw_coll_call &call = work->operation().call;
        call.count = call.counts[0];
        call.counts = call.recv_counts = nullptr;
    }
    return begin(std::move(work));
}

#if TORCH_VERSION_MAJOR >= 2
WorkPtr Group::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                               const c10d::AllgatherOptions &options)
{
    TORCH_CHECK(outputs.size() == inputs.size(),
                "all_gather_into_tensor_coalesced: as many inputs as outputs");
    auto work = prepare(c10d::OpType::COALESCED, "sidewire:all_gather_into_tensor_coalesced",
                        inputs, {outputs}, options.timeout, outputs.size());
    for (size_t i = 0; i < outputs.size(); i++) {
        check_tensor(outputs[i], "all_gather_into_tensor_coalesced");
        check_tensor(inputs[i], "all_gather_into_tensor_coalesced");
        TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * getSize(),
                    "all_gather_into_tensor_coalesced: an output must be as large as its input, "
                    "times the world size");
        set_all_gather(*work, i, {inputs[i]}, {outputs[i]},
                       Counts(size(), static_cast<uint64_t>(inputs[i].numel())));
    }
    return begin(std::move(work));
}
#endif

} // namespace sidewire_torch

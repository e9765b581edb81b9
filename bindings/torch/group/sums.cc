/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations with an operator. */
#include "torch/group/group.hpp"

namespace sidewire_torch
{

/* ---- all-reduce ---- */

/* Several tensors of a rank are its leaves; all of them get the result. */
void Group::set_all_reduce(Work &work, const Tensors &tensors, const c10d::ReduceOp &op)
{
    const Element element = element_of(tensors[0].scalar_type());
    sw_coll_call &call = work.operation().call;
    call.kind = SW_COLL_ALL_REDUCE;
    call.type = element.type;
    call.op = operator_of(op, tensors[0].scalar_type());
    call.count = static_cast<uint64_t>(tensors[0].numel()) * element.each;
    call.leaves = static_cast<uint32_t>(tensors.size());
    if (tensors.size() == 1 && is_plain(tensors[0])) {
        call.send = call.recv = tensors[0].data_ptr();
        return;
    }
    const Flat flat = Flat::with(tensors);
    call.send = call.recv = flat.data();
    work.then([flat, tensors] {
        flat.copy_out();
        for (size_t i = 1; i < tensors.size(); i++)
            tensors[i].copy_(tensors[0].view(tensors[i].sizes()));
    });
}

WorkPtr Group::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    if (tensors.size() == 1 && tensors[0].is_sparse())
        return sum_sparse(tensors, options);
    check_equal(tensors, "all_reduce");
    auto work = prepare(c10d::OpType::ALLREDUCE, "sidewire:all_reduce", tensors, {tensors},
                        options.timeout);
    if (is_bitwise(options.reduceOp, tensors[0].scalar_type()))
        set_bits(*work, tensors, options.reduceOp, -1);
    else
        set_all_reduce(*work, tensors, options.reduceOp);
    return begin(std::move(work));
}

WorkPtr Group::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
    check_tensors(tensors, "all_reduce_coalesced");
    auto work = prepare(c10d::OpType::ALLREDUCE_COALESCED, "sidewire:all_reduce", tensors,
                        {tensors}, options.timeout);
    const Flat flat = Flat::with(tensors);
    const at::Tensor whole = flat.whole();
    if (is_bitwise(options.reduceOp, whole.scalar_type()))
        set_bits(*work, {whole}, options.reduceOp, -1);
    else
        set_all_reduce(*work, {whole}, options.reduceOp);
    work->then([flat] { flat.copy_out(); });
    return begin(std::move(work));
}

WorkPtr Group::allreduce_leaves(at::Tensor rows, const c10d::ReduceOp &op)
{
    check_tensor(rows, "all_reduce of leaves");
    TORCH_CHECK(rows.is_contiguous() && rows.dim() > 1 && rows.size(0) > 0,
                "all_reduce of leaves: it wants rows, one behind the other");
    auto work = prepare(c10d::OpType::ALLREDUCE, "sidewire:all_reduce", {rows}, {{rows[0]}},
                        c10d::kUnsetTimeout);
    set_all_reduce(*work, {rows}, op);
    sw_coll_call &call = work->operation().call;
    call.count /= static_cast<uint64_t>(rows.size(0));
    call.leaves = static_cast<uint32_t>(rows.size(0));
    return begin(std::move(work));
}

/* ---- reduce ---- */

WorkPtr Group::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    check_equal(tensors, "reduce");
    TORCH_CHECK(options.rootTensor >= 0 &&
                    options.rootTensor < static_cast<int64_t>(tensors.size()),
                "reduce: there is no tensor ", options.rootTensor);
    check_rank(options.rootRank, "reduce");
    auto work =
        prepare(c10d::OpType::REDUCE, "sidewire:reduce", tensors, {tensors}, options.timeout);
    if (is_bitwise(options.reduceOp, tensors[0].scalar_type())) {
        set_bits(*work, tensors, options.reduceOp, options.rootRank);
        return begin(std::move(work));
    }
    const Element element = element_of(tensors[0].scalar_type());
    const bool is_root = options.rootRank == getRank();
    const Flat flat = Flat::with(tensors);
    sw_coll_call &call = work->operation().call;
    call.kind = SW_COLL_REDUCE;
    call.type = element.type;
    call.op = operator_of(options.reduceOp, tensors[0].scalar_type());
    call.root = static_cast<uint32_t>(options.rootRank);
    call.count = static_cast<uint64_t>(tensors[0].numel()) * element.each;
    call.leaves = static_cast<uint32_t>(tensors.size());
    call.send = flat.data();
    call.recv = is_root ? flat.data() : nullptr;
    const int64_t at = options.rootTensor;
    work->then([flat, tensors, is_root, at] {
        if (!is_root)
            return;
        flat.copy_out();
        if (at)
            tensors[at].copy_(tensors[0].view(tensors[at].sizes()));
    });
    work->keep(flat.buffer());
    return begin(std::move(work));
}

/* ---- reduce-scatter ---- */

void Group::set_reduce_scatter(Work &work, size_t at, const Tensors &inputs,
                               const at::Tensor &output, const c10d::ReduceOp &op, Counts counts)
{
    const at::ScalarType type = output.scalar_type();
    TORCH_CHECK(static_cast<uint64_t>(output.numel()) == counts[rank()],
                "reduce_scatter: the output has ", output.numel(), " elements, the input for it ",
                counts[rank()]);
    TORCH_CHECK(inputs[0].scalar_type() == type,
                "reduce_scatter: input and output are of unlike types");
    if (is_bitwise(op, type)) {
        set_bits_scatter(work, at, inputs, output, op, counts);
        return;
    }
    const Element element = element_of(type);
    Flat from = Flat::with(inputs);
    const Flat to = Flat::place_for({output});
    if (from.overlaps(to))
        from.move_away();
    sw_coll_call &call = work.operation(at).call;
    call.kind = SW_COLL_REDUCE_SCATTER;
    call.type = element.type;
    call.op = operator_of(op, type);
    call.send = from.data();
    call.recv = to.data();
    work.set_blocks(at, std::move(counts), element.each);
    work.keep(from.buffer());
    work.keep(to.buffer());
    if (to.is_copy())
        work.then([to] { to.copy_out(); });
}

WorkPtr Group::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                              const c10d::ReduceScatterOptions &options)
{
    TORCH_CHECK(outputs.size() == 1 && inputs.size() == 1 && inputs[0].size() == size(),
                "reduce_scatter: it wants one output, and an input for each rank");
    check_tensors(outputs, "reduce_scatter");
    check_tensors(inputs[0], "reduce_scatter");
    auto work = prepare(c10d::OpType::REDUCE_SCATTER, "sidewire:reduce_scatter", inputs[0],
                        {outputs}, options.timeout);
    Counts counts;
    for (const at::Tensor &input : inputs[0])
        counts.push_back(static_cast<uint64_t>(input.numel()));
    set_reduce_scatter(*work, 0, inputs[0], outputs[0], options.reduceOp, std::move(counts));
    return begin(std::move(work));
}

WorkPtr Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                    const c10d::ReduceScatterOptions &options)
{
    check_tensor(output, "reduce_scatter_tensor");
    check_tensor(input, "reduce_scatter_tensor");
    TORCH_CHECK(input.numel() == output.numel() * getSize(),
                "reduce_scatter_tensor: input must be the same size as output size times world "
                "size");
    auto work = prepare(c10d::OpType::_REDUCE_SCATTER_BASE, "sidewire:_reduce_scatter_base",
                        {input}, {{output}}, options.timeout);
    set_reduce_scatter(*work, 0, {input}, output, options.reduceOp,
                       Counts(size(), static_cast<uint64_t>(output.numel())));
    return begin(std::move(work));
}

#if TORCH_VERSION_MAJOR >= 2
WorkPtr Group::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    return sum_sparse(tensors, options);
}

WorkPtr Group::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                               const c10d::ReduceScatterOptions &options)
{
    TORCH_CHECK(outputs.size() == inputs.size(),
                "reduce_scatter_tensor_coalesced: as many inputs as outputs");
    auto work = prepare(c10d::OpType::COALESCED, "sidewire:reduce_scatter_tensor_coalesced", inputs,
                        {outputs}, options.timeout, outputs.size());
    for (size_t i = 0; i < outputs.size(); i++) {
        check_tensor(outputs[i], "reduce_scatter_tensor_coalesced");
        check_tensor(inputs[i], "reduce_scatter_tensor_coalesced");
        TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * getSize(),
                    "reduce_scatter_tensor_coalesced: an input must be as large as its output, "
                    "times the world size");
        set_reduce_scatter(*work, i, {inputs[i]}, outputs[i], options.reduceOp,
                           Counts(size(), static_cast<uint64_t>(outputs[i].numel())));
    }
    return begin(std::move(work));
}
#endif

} // namespace sidewire_torch

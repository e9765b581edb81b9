/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sums that the library of collectives does not have: by bitwise operators, and of sparse tensors.
 * All ranks gather the contributions, and each one folds them in the order of the ranks.
 */
#include "torch/group/group.hpp"

namespace sidewire_torch
{

/* ---- bitwise operators ---- */

void Group::set_bits(Work &work, const Tensors &tensors, const c10d::ReduceOp &op, int64_t root)
{
    const Flat flat = Flat::with(tensors);
    const at::Tensor mine = flat.whole();
    const int64_t each = tensors[0].numel(), rows = static_cast<int64_t>(tensors.size()) * size();
    at::Tensor all = at::empty({rows, each}, mine.options());
    set_all_gather(work, 0, {mine}, {all}, Counts(size(), static_cast<uint64_t>(mine.numel())));
    if (root >= 0 && root != getRank())
        return;
    work.then([flat, tensors, all, op, rows] {
        at::Tensor sum = all[0];
        for (int64_t row = 1; row < rows; row++)
            fold_bits(op, sum, all[row]);
        for (const at::Tensor &tensor : tensors)
            tensor.copy_(sum.view(tensor.sizes()));
    });
}

void Group::set_bits_scatter(Work &work, size_t at, const Tensors &inputs, const at::Tensor &output,
                             const c10d::ReduceOp &op, const Counts &counts)
{
    at::Tensor all = at::empty({getSize(), output.numel()}, output.options());
    set_all_to_all(work, at, inputs, {all}, counts,
                   Counts(size(), static_cast<uint64_t>(output.numel())));
    work.then([all, output, op] {
        at::Tensor sum = all[0];
        for (int64_t row = 1; row < all.size(0); row++)
            fold_bits(op, sum, all[row]);
        output.copy_(sum.view(output.sizes()));
    });
}

/* ---- sparse tensors ---- */

static Counts counts_times(const at::Tensor &counts, int64_t each)
{
    Counts result;
    for (int64_t i = 0; i < counts.numel(); i++)
        result.push_back(static_cast<uint64_t>(counts.data_ptr<int64_t>()[i] * each));
    return result;
}

static int64_t sum_of(const Counts &counts)
{
    int64_t sum = 0;
    for (uint64_t count : counts)
        sum += static_cast<int64_t>(count);
    return sum;
}

/* Nobody knows how many elements the others have. So it waits for these numbers first. */
WorkPtr Group::sum_sparse(const Tensors &tensors, const c10d::AllreduceOptions &options)
{
    TORCH_CHECK(tensors.size() == 1 && tensors[0].is_sparse() && tensors[0].device().is_cpu(),
                "all_reduce of sparse tensors: it wants one, in the memory of the processor");
    const bool is_average = options.reduceOp.op_ == c10d::ReduceOp::AVG;
    TORCH_CHECK(is_average || options.reduceOp.op_ == c10d::ReduceOp::SUM,
                "all_reduce of sparse tensors: the operator must be SUM or AVG");
    const at::Tensor said = tensors[0], mine = said.coalesce();
    /* A row for each element. */
    const at::Tensor indices = mine.indices().t().contiguous(), values = mine.values().contiguous();
    at::Tensor count = at::full({1}, indices.size(0), at::kLong);
    at::Tensor counts = at::empty({getSize()}, at::kLong);
    auto first = prepare(c10d::OpType::ALLREDUCE, "sidewire:all_reduce", {count}, {{counts}},
                         options.timeout);
    set_all_gather(*first, 0, {count}, {counts}, Counts(size(), 1));
    begin(std::move(first))->wait();

    int64_t width = 1;
    for (int64_t i = 1; i < values.dim(); i++)
        width *= values.size(i);
    Counts places = counts_times(counts, mine.sparse_dim()), numbers = counts_times(counts, width);
    at::Tensor all_indices = at::empty({sum_of(places)}, at::kLong);
    at::Tensor all_values = at::empty({sum_of(numbers)}, values.options());
    auto work = prepare(c10d::OpType::ALLREDUCE, "sidewire:all_reduce", tensors, {tensors},
                        options.timeout, 2);
    set_all_gather(*work, 0, {indices}, {all_indices}, std::move(places));
    set_all_gather(*work, 1, {values}, {all_values}, std::move(numbers));
    const int64_t ranks = getSize();
    work->then([said, mine, all_indices, all_values, is_average, ranks] {
        std::vector<int64_t> shape = mine.values().sizes().vec();
        shape[0] = all_indices.numel() / mine.sparse_dim();
        at::Tensor sum = at::sparse_coo_tensor(all_indices.view({shape[0], mine.sparse_dim()}).t(),
                                               all_values.view(shape), said.sizes());
        sum = sum.coalesce();
        if (is_average)
            sum = at::sparse_coo_tensor(sum.indices(), sum.values().div(ranks), said.sizes());
        said.copy_(sum);
    });
    return begin(std::move(work));
}

} // namespace sidewire_torch

/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/tensors.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <cstring>

namespace sidewire_torch
{

Element element_of(at::ScalarType type)
{
    switch (type) {
    case at::kBool:
    case at::kByte:
    case at::kQUInt8:
        return {SW_COLL_U8, 1};
    case at::kChar:
    case at::kQInt8:
        return {SW_COLL_I8, 1};
    case at::kShort:
        return {SW_COLL_I16, 1};
    case at::kInt:
    case at::kQInt32:
        return {SW_COLL_I32, 1};
    case at::kLong:
        return {SW_COLL_I64, 1};
    case at::kHalf:
        return {SW_COLL_F16, 1};
    case at::kBFloat16:
        return {SW_COLL_BF16, 1};
    case at::kFloat:
        return {SW_COLL_F32, 1};
    case at::kDouble:
        return {SW_COLL_F64, 1};
    case at::kComplexHalf:
        return {SW_COLL_F16, 2};
    case at::kComplexFloat:
        return {SW_COLL_F32, 2};
    case at::kComplexDouble:
        return {SW_COLL_F64, 2};
#if TORCH_VERSION_MAJOR >= 2
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e5m2:
        return {SW_COLL_U8, 1};
#if TORCH_VERSION_MINOR >= 3
    case at::kUInt16:
        return {SW_COLL_U16, 1};
    case at::kUInt32:
        return {SW_COLL_U32, 1};
    case at::kUInt64:
        return {SW_COLL_U64, 1};
#endif
#endif
    default:
        TORCH_CHECK(false, "sidewire: tensors of type ", toString(type), " are not supported");
    }
}

/* ---- operators ---- */

static const char *name_operator(const c10d::ReduceOp &op)
{
    static const char *const names[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                        "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
    const size_t at = static_cast<size_t>(op.op_);
    return at < sizeof(names) / sizeof(names[0]) ? names[at] : "UNUSED";
}

/* True is 1: the greatest of several is their sum, the least their product. */
static sw_coll_op operator_of_bools(const c10d::ReduceOp &op)
{
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        return SW_COLL_MAX;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        return SW_COLL_MIN;
    default:
        TORCH_CHECK(false, "sidewire: ReduceOp.", name_operator(op), " of bools is not supported");
    }
}

sw_coll_op operator_of(const c10d::ReduceOp &op, at::ScalarType type)
{
    if (type == at::kBool)
        return operator_of_bools(op);
    const bool is_sum = op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG;
    TORCH_CHECK(!at::isQIntType(type), "sidewire: quantized tensors have no sums");
    TORCH_CHECK(is_sum || !at::isComplexType(type), "sidewire: ReduceOp.", name_operator(op),
                " of complex numbers is not supported");
#if TORCH_VERSION_MAJOR >= 2
    TORCH_CHECK(c10::elementSize(type) > 1 || at::isIntegralType(type, false), "sidewire: sums of ",
                toString(type), " are not supported");
#endif
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        return SW_COLL_SUM;
    case c10d::ReduceOp::AVG:
        return SW_COLL_AVG;
    case c10d::ReduceOp::PRODUCT:
        return SW_COLL_PROD;
    case c10d::ReduceOp::MIN:
        return SW_COLL_MIN;
    case c10d::ReduceOp::MAX:
        return SW_COLL_MAX;
    default:
        TORCH_CHECK(false, "sidewire: ReduceOp.", name_operator(op), " of ", toString(type),
                    " is not supported");
    }
}

bool is_bitwise(const c10d::ReduceOp &op, at::ScalarType type)
{
    if (op.op_ == c10d::ReduceOp::BXOR)
        return at::isIntegralType(type, true);
    const bool is_both = op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR;
    return is_both && at::isIntegralType(type, false);
}

void fold_bits(const c10d::ReduceOp &op, at::Tensor &sum, const at::Tensor &tensor)
{
    if (op.op_ == c10d::ReduceOp::BAND)
        sum.bitwise_and_(tensor);
    else if (op.op_ == c10d::ReduceOp::BOR)
        sum.bitwise_or_(tensor);
    else
        sum.bitwise_xor_(tensor);
}

/* ---- checks ---- */

void check_tensor(const at::Tensor &tensor, const char *what)
{
    TORCH_CHECK(tensor.defined(), what, ": a tensor is not defined");
    TORCH_CHECK(tensor.device().is_cpu(), what, ": a tensor is on ", tensor.device(),
                "; sidewire moves tensors in the memory of the processor");
    TORCH_CHECK(tensor.layout() == at::kStrided, what, ": a tensor is not dense");
    TORCH_CHECK(!tensor.numel() || tensor.storage().nbytes(), what,
                ": the memory of a tensor was given back");
}

void check_tensors(const Tensors &tensors, const char *what)
{
    TORCH_CHECK(!tensors.empty(), what, ": there is no tensor");
    for (const at::Tensor &tensor : tensors) {
        check_tensor(tensor, what);
        TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), what,
                    ": tensors are of unlike types, ", tensor.scalar_type(), " and ",
                    tensors[0].scalar_type());
    }
}

void check_equal(const Tensors &tensors, const char *what)
{
    check_tensors(tensors, what);
    for (const at::Tensor &tensor : tensors)
        TORCH_CHECK(tensor.numel() == tensors[0].numel(), what, ": tensors have unlike sizes, ",
                    tensor.sizes(), " and ", tensors[0].sizes());
}

int64_t count_all(const Tensors &tensors)
{
    int64_t count = 0;
    for (const at::Tensor &tensor : tensors)
        count += tensor.numel();
    return count;
}

/* ---- one behind the other ---- */

bool is_plain(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

/* The first that has elements, if all lie behind it in their order and in its storage. */
static const at::Tensor *find_first(const Tensors &tensors)
{
    const at::Tensor *first = &tensors[0];
    const char *next = nullptr;
    for (const at::Tensor &tensor : tensors) {
        if (!tensor.numel())
            continue;
        if (!is_plain(tensor) || (next && next != tensor.data_ptr()))
            return nullptr;
        if (!next)
            first = &tensor;
        if (tensor.storage().data() != first->storage().data())
            return nullptr;
        next = static_cast<const char *>(tensor.data_ptr()) + tensor.nbytes();
    }
    return first;
}

Flat::Flat(const Tensors &tensors, bool must_copy_in) : tensors_(tensors)
{
    const at::Tensor *first = find_first(tensors);
    bytes_ = count_all(tensors) * static_cast<int64_t>(tensors[0].element_size());
    if (first)
        buffer_ = *first;
    else
        make_copy(must_copy_in);
}

void Flat::make_copy(bool must_copy_in)
{
    is_copy_ = true;
    buffer_ = at::empty({count_all(tensors_)}, tensors_[0].options());
    if (must_copy_in)
        copy_in();
}

void Flat::move_away()
{
    if (!is_copy_)
        make_copy(true);
}

at::Tensor Flat::whole() const
{
    at::AutoDispatchBelowADInplaceOrView guard;
    return is_copy_ ? buffer_ : buffer_.as_strided({count_all(tensors_)}, {1});
}

bool Flat::overlaps(const Flat &other) const
{
    return bytes_ && other.bytes_ && data() < other.data() + other.bytes_ &&
           other.data() < data() + bytes_;
}

Flat Flat::place_for(const Tensors &tensors)
{
    return Flat(tensors, false);
}

Flat Flat::with(const Tensors &tensors)
{
    return Flat(tensors, true);
}

void Flat::copy_in() const
{
    at::AutoDispatchBelowADInplaceOrView guard;
    int64_t at = 0;
    for (const at::Tensor &tensor : tensors_) {
        buffer_.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
        at += tensor.numel();
    }
}

/* Elements of an expand()ed tensor share memory. All of them get one value, or it is an error. */
static void copy_results(at::Tensor tensor, at::Tensor results)
{
    const at::Tensor all = results;
    for (int64_t dim = 0; dim < tensor.dim(); dim++) {
        if (tensor.stride(dim) || tensor.size(dim) < 2)
            continue;
        tensor = tensor.narrow(dim, 0, 1);
        results = results.narrow(dim, 0, 1);
    }
    if (results.numel() != all.numel()) {
        const at::Tensor alike = results.expand(all.sizes()).contiguous();
        TORCH_CHECK(!memcmp(alike.data_ptr(), all.data_ptr(), all.nbytes()),
                    "sidewire: elements of a tensor share memory, as of expand(), and their "
                    "results differ: clone() it before the operation");
    }
    tensor.copy_(results);
}

void Flat::copy_out() const
{
    int64_t at = 0;
    if (!is_copy_)
        return;
    for (const at::Tensor &tensor : tensors_) {
        copy_results(tensor, buffer_.narrow(0, at, tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
    }
}

} // namespace sidewire_torch

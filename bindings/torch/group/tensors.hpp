/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tensors as operations see them: elements of one type that lie one behind the other.
 */
#ifndef SW_BINDINGS_TORCH_TENSORS_HPP
#define SW_BINDINGS_TORCH_TENSORS_HPP

#include "sidewire/coll.h"
#include "torch/group/torch.hpp"

namespace sidewire_torch
{

/* What an element of a tensor is in an operation: a complex number is two of its parts. */
struct Element {
    sw_coll_type type;
    uint64_t each; /* numbers in an element */
};

/* Throws where operations do not know the type. */
Element element_of(at::ScalarType type);

/* The operator, as operations have it; throws where they do not have it for that type. */
sw_coll_op operator_of(const c10d::ReduceOp &op, at::ScalarType type);
bool is_bitwise(const c10d::ReduceOp &op, at::ScalarType type);
/* sum = sum op tensor, by a bitwise operator. */
void fold_bits(const c10d::ReduceOp &op, at::Tensor &sum, const at::Tensor &tensor);

/* Throws unless it is a dense tensor in the memory of the processor. `what` begins the text. */
void check_tensor(const at::Tensor &tensor, const char *what);
/* The same for each one; they are at least one, and of one type. */
void check_tensors(const Tensors &tensors, const char *what);
/* The same, and all have as many elements. */
void check_equal(const Tensors &tensors, const char *what);

/* Its elements lie one behind the other, as they are. */
bool is_plain(const at::Tensor &tensor);
/* Elements of all of them. */
int64_t count_all(const Tensors &tensors);

/*
 * The elements of tensors, one tensor behind the other: in the tensors themselves where they lie
 * so already, else in a copy.
 */
class Flat
{
  public:
    /* Nothing. */
    Flat() = default;
    /* A place for results. copy_out() brings them to the tensors. */
    static Flat place_for(const Tensors &tensors);
    /* The same, and what is in the tensors is there. */
    static Flat with(const Tensors &tensors);

    char *data() const
    {
        return buffer_.defined() ? static_cast<char *>(buffer_.data_ptr()) : nullptr;
    }
    /* It keeps the memory. */
    const at::Tensor &buffer() const
    {
        return buffer_;
    }
    bool is_copy() const
    {
        return is_copy_;
    }
    /* All elements, as a tensor of one dimension. */
    at::Tensor whole() const;
    /* Whether both use the same memory, partly at least. */
    bool overlaps(const Flat &other) const;
    /* Moves what is in them to a copy. */
    void move_away();
    void copy_out() const;

  private:
    Flat(const Tensors &tensors, bool must_copy_in);
    void make_copy(bool must_copy_in);
    void copy_in() const;

    Tensors tensors_;
    at::Tensor buffer_; /* keeps the memory; the first of the tensors where it is no copy */
    int64_t bytes_ = 0;
    bool is_copy_ = false;
};

} // namespace sidewire_torch

#endif

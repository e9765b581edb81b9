/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a process can be met by those that open a group with it: the handle that torch's programs
 * hand to each other, by whatever means they have, before they call reconfigure().
 *
 * Each handle names a port where its process listens, so none of them depends on another process,
 * as a store does. The first rank of the new group opens a store of torch's at its own port.
 */
#ifndef SW_BINDINGS_TORCH_RECONFIGURE_HPP
#define SW_BINDINGS_TORCH_RECONFIGURE_HPP

#include <mutex>
#include <set>

#include "torch/group/torch.hpp"

namespace sidewire_torch
{

/* "sidewire:1:RANK:NONCE:PORT:ADDRESS". The rank is that of the process's first group, with leading
 * zeros: handles in the order of their texts are those of the ranks. */
struct Handle {
    std::string text, address;
    uint16_t port = 0;

    static Handle make(int rank, const std::string &address, uint16_t port);
    /* Throws. */
    static Handle parse(const std::string &text);
};

class MeetingPlace
{
  public:
    MeetingPlace() = default;
    ~MeetingPlace();
    MeetingPlace(const MeetingPlace &) = delete;
    MeetingPlace &operator=(const MeetingPlace &) = delete;

    /* That of this process. It listens from the first call on. Throws. */
    std::string handle(int rank, const std::string &address);
    /* The store of the ranks with these handles, the first of which has it. Throws. */
    c10::intrusive_ptr<c10d::Store> open_store(const std::vector<std::string> &handles,
                                               std::chrono::milliseconds timeout);

    /* The place of this process among the handles. It throws where there is none, where one is
     * there twice, or where this group had that uuid before. */
    int claim(int64_t uuid, const std::vector<std::string> &handles);

  private:
    std::mutex lock_;
    int listener_ = -1;
    Handle own_;
    c10::intrusive_ptr<c10d::Store> served_; /* once this process was the first: it stays */
    std::set<int64_t> uuids_;                /* which this process has used */
};

} // namespace sidewire_torch

#endif

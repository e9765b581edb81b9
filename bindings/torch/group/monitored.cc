/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A barrier that says who has not come: by messages, so that the group is of use afterwards. Each
 * rank tells rank 0 that it has come, and rank 0 answers each that has with who is absent. The
 * words of the errors are those that torch's programs know from gloo.
 */
#include "torch/group/group.hpp"

namespace sidewire_torch
{

/* torch's own tags have 32 bits. */
static const uint64_t MONITORED_TAG = 1ull << 32;
static const int64_t ANSWER_BYTES = 512;
/* What the others give rank 0, whose time begins later, to say who is absent. */
static const std::chrono::milliseconds ANSWER_SLACK{1000};

WorkPtr Group::begin_word(pge_kind kind, uint32_t peer, uint64_t tag, const at::Tensor &word,
                          std::chrono::milliseconds timeout)
{
    const auto type = kind == PGE_SEND ? c10d::OpType::SEND : c10d::OpType::RECV;
    auto work = prepare(type, "sidewire:monitored_barrier", {word}, {}, timeout);
    pge_operation &operation = work->operation();
    operation.kind = kind;
    operation.call.send = operation.call.recv = word.data_ptr();
    operation.call.count = word.nbytes();
    operation.peer = peer;
    operation.tag = tag;
    work->keep(word);
    return begin(std::move(work));
}

/* The ranks that have come, of those that are waited for; `why` is what the first of the others
 * failed by. */
static std::vector<bool> await_arrivals(const std::vector<WorkPtr> &arrivals, std::string *why)
{
    std::vector<bool> came;
    for (const WorkPtr &arrival : arrivals) {
        try {
            arrival->wait(kNoTimeout);
            came.push_back(true);
        } catch (const std::exception &error) {
            if (why->empty())
                *why = error.what();
            came.push_back(false);
        }
    }
    return came;
}

/* Empty if all have come; arrival 0 is that of rank 1. */
static std::string absent_text(const std::vector<bool> &came, bool must_name_all,
                               std::chrono::milliseconds timeout)
{
    std::string ranks;
    size_t count = 0;
    for (size_t i = 0; i < came.size() && (must_name_all || !count); i++) {
        if (!came[i])
            ranks += (count++ ? ", " : "") + std::to_string(i + 1);
    }
    if (!count)
        return "";
    return (count > 1 ? "Ranks " : "Rank ") + ranks + " failed to pass monitoredBarrier in " +
           std::to_string(timeout.count()) + " ms";
}

static at::Tensor word_of(const std::string &text)
{
    at::Tensor word = at::zeros({ANSWER_BYTES}, at::kByte);
    const size_t bytes = std::min(text.size(), static_cast<size_t>(ANSWER_BYTES) - 1);
    memcpy(word.data_ptr(), text.data(), bytes);
    return word;
}

void Group::lead_barrier(uint64_t tag, std::chrono::milliseconds timeout, bool must_name_all)
{
    std::vector<WorkPtr> arrivals, answers;
    for (uint32_t peer = 1; peer < size(); peer++)
        arrivals.push_back(begin_word(PGE_RECV, peer, tag, word_of(""), timeout));
    std::string why;
    const std::vector<bool> came = await_arrivals(arrivals, &why);
    const std::string absent = absent_text(came, must_name_all, timeout);
    for (uint32_t peer = 1; peer < size(); peer++) {
        if (came[peer - 1])
            answers.push_back(begin_word(PGE_SEND, peer, tag, word_of(absent), ANSWER_SLACK));
    }
    TORCH_CHECK(absent.empty(), "[Rank 0]: ", absent, ": ", why);
    for (const WorkPtr &answer : answers)
        answer->wait(kNoTimeout);
}

void Group::join_barrier(uint64_t tag, std::chrono::milliseconds timeout)
{
    const at::Tensor answer = word_of("");
    std::string why;
    try {
        const WorkPtr awaited = begin_word(PGE_RECV, 0, tag, answer, timeout + ANSWER_SLACK);
        begin_word(PGE_SEND, 0, tag, word_of(""), timeout)->wait(kNoTimeout);
        awaited->wait(kNoTimeout);
        why = answer.data_ptr<uint8_t>()[ANSWER_BYTES - 1]
                  ? "an answer without an end"
                  : reinterpret_cast<const char *>(answer.data_ptr());
    } catch (const std::exception &error) {
        why = error.what();
    }
    TORCH_CHECK(why.empty(), "Rank ", getRank(),
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0: ",
                why);
}

void Group::monitoredBarrier(const c10d::BarrierOptions &options, bool must_name_all)
{
    const auto timeout = options.timeout == c10d::kUnsetTimeout
                             ? std::chrono::milliseconds(timeout_ms_)
                             : options.timeout;
    const uint64_t tag = MONITORED_TAG + monitored_++;
    TORCH_CHECK(timeout.count() > 0, "Rank ", getRank(), " timed out in monitoredBarrier after ",
                timeout.count(), " ms");
    if (getRank() == 0)
        lead_barrier(tag, timeout, must_name_all);
    else
        join_barrier(tag, timeout);
}

} // namespace sidewire_torch

/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/reconfigure.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <algorithm>
#include <cstring>
#include <netdb.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "torch/group/group.hpp"

namespace sidewire_torch
{

static const char HANDLE_BEGIN[] = "sidewire:1:";
static const size_t HANDLE_BYTES_MAX = 300;
static const int RANK_DIGITS = 8, BACKLOG = 1024;

/* ---- handles ---- */

Handle Handle::make(int rank, const std::string &address, uint16_t port)
{
    std::random_device random;
    char text[HANDLE_BYTES_MAX];
    snprintf(text, sizeof(text), "%s%0*d:%08x%08x:%u:%s", HANDLE_BEGIN, RANK_DIGITS, rank, random(),
             random(), port, address.c_str());
    return parse(text);
}

static bool is_made_of(const std::string &word, const char *letters)
{
    return !word.empty() && word.find_first_not_of(letters) == std::string::npos;
}

Handle Handle::parse(const std::string &text)
{
    const size_t begin = strlen(HANDLE_BEGIN);
    Handle handle;
    std::string words[3];
    size_t at = begin;
    bool is_right = text.size() < HANDLE_BYTES_MAX && !text.compare(0, begin, HANDLE_BEGIN);
    for (size_t i = 0; is_right && i < 3; i++) {
        const size_t end = text.find(':', at);
        is_right = end != std::string::npos;
        words[i] = is_right ? text.substr(at, end - at) : "";
        at = end + 1;
    }
    is_right = is_right && is_made_of(words[0], "0123456789") &&
               is_made_of(words[1], "0123456789abcdef") && is_made_of(words[2], "0123456789") &&
               words[2].size() <= 5 && at < text.size();
    const unsigned long port = is_right ? std::stoul(words[2]) : 0;
    TORCH_CHECK(port && port <= UINT16_MAX, "sidewire: reconfigure: this is no handle of the back ",
                "end sidewire: \"", text.substr(0, HANDLE_BYTES_MAX), "\"");
    handle.text = text;
    handle.port = static_cast<uint16_t>(port);
    handle.address = text.substr(at);
    return handle;
}

/* ---- the port ---- */

static uint16_t port_of(int socket)
{
    sockaddr_storage name;
    socklen_t bytes = sizeof(name);
    if (getsockname(socket, reinterpret_cast<sockaddr *>(&name), &bytes))
        return 0;
    return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(&name)->sin6_port
                                            : reinterpret_cast<sockaddr_in *>(&name)->sin_port);
}

/* -1, and errno: it cannot. */
static int listen_at(const std::string &address)
{
    addrinfo hints, *found;
    memset(&hints, 0, sizeof(hints));
    hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    errno = EADDRNOTAVAIL;
    if (getaddrinfo(address.c_str(), "0", &hints, &found))
        return -1;
    int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener >= 0 &&
        (bind(listener, found->ai_addr, found->ai_addrlen) || listen(listener, BACKLOG))) {
        close(listener);
        listener = -1;
    }
    freeaddrinfo(found);
    return listener;
}

MeetingPlace::~MeetingPlace()
{
    if (listener_ >= 0)
        close(listener_);
}

std::string MeetingPlace::handle(int rank, const std::string &address)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (listener_ < 0) {
        listener_ = listen_at(address);
        TORCH_CHECK(listener_ >= 0, "sidewire: get_reconfigure_handle: cannot listen at ", address,
                    ": ", strerror(errno));
        own_ = Handle::make(rank, address, port_of(listener_));
    }
    return own_.text;
}

/* ---- who meets there ---- */

int MeetingPlace::claim(int64_t uuid, const std::vector<std::string> &handles)
{
    std::lock_guard<std::mutex> guard(lock_);
    int rank = -1;
    TORCH_CHECK(handles.size() <= SW_COLL_RANKS_MAX, "sidewire: reconfigure: ", handles.size(),
                " ranks are too many");
    for (const std::string &text : handles) {
        Handle::parse(text);
        TORCH_CHECK(std::count(handles.begin(), handles.end(), text) == 1,
                    "sidewire: reconfigure: a handle is there twice: ", text);
        if (text == own_.text)
            rank = static_cast<int>(&text - handles.data());
    }
    TORCH_CHECK(rank >= 0, "sidewire: reconfigure: the handle of this process is not among the ",
                handles.size(), " of the new group");
    TORCH_CHECK(uuids_.insert(uuid).second, "sidewire: reconfigure: this process has used uuid ",
                uuid, " before");
    return rank;
}

static c10::intrusive_ptr<c10d::Store> make_tcp_store(const Handle &handle, int listener,
                                                      std::chrono::milliseconds timeout,
                                                      bool has_libuv)
{
    c10d::TCPStoreOptions options;
    options.port = handle.port;
    options.isServer = listener >= 0;
    options.waitWorkers = false;
    options.timeout = timeout;
    options.useLibUV = has_libuv;
    if (listener >= 0)
        options.masterListenFd = dup(listener); /* the store closes it */
    return c10::make_intrusive<c10d::TCPStore>(handle.address, options);
}

c10::intrusive_ptr<c10d::Store> MeetingPlace::open_store(const std::vector<std::string> &handles,
                                                         std::chrono::milliseconds timeout)
{
    std::lock_guard<std::mutex> guard(lock_);
    const Handle first = Handle::parse(handles[0]);
    const bool is_first = first.text == own_.text;
    c10::intrusive_ptr<c10d::Store> store = is_first ? served_ : nullptr;
    if (store)
        return store;
    const int listener = is_first ? listener_ : -1;
    try {
        store = make_tcp_store(first, listener, timeout, true);
    } catch (const std::exception &error) {
        /* Debian builds torch without it. */
        if (!strstr(error.what(), "libuv"))
            throw;
        store = make_tcp_store(first, listener, timeout, false);
    }
    if (is_first)
        served_ = store;
    return store;
}

/* ---- the group ---- */

c10d::ReconfigureHandle Group::get_reconfigure_handle() const
{
    return place_.handle(first_rank_, settings_.address);
}

static std::vector<std::string> ordered_handles(const c10d::ReconfigureOptions &options)
{
    if (const auto *list = std::get_if<std::vector<std::string>>(&options.handles))
        return *list;
    const auto &set = std::get<std::unordered_set<std::string>>(options.handles);
    std::vector<std::string> handles(set.begin(), set.end());
    std::sort(handles.begin(), handles.end());
    return handles;
}

WorkPtr Group::reconfigure(const c10d::ReconfigureOptions &options)
{
    TORCH_CHECK(options.hints.empty(), "sidewire: reconfigure: there is no hint \"",
                options.hints.begin()->first, "\"");
    const std::vector<std::string> handles = ordered_handles(options);
    get_reconfigure_handle();
    const int rank = place_.claim(options.uuid, handles);
    const int size = static_cast<int>(handles.size());
    const std::chrono::milliseconds timeout =
        options.timeout.value_or(std::chrono::milliseconds(timeout_ms_));
    const WithoutPython unlocked;
    engine().close();
    store_ = c10::make_intrusive<c10d::PrefixStore>("reconfigure/" + std::to_string(options.uuid),
                                                    place_.open_store(handles, timeout));
    Meeting meeting(store_, static_cast<uint32_t>(rank), static_cast<uint32_t>(size),
                    timeout.count(), Meeting::Watch(), Meeting::Show());
    take_engine(open_engine(meeting, settings_, rank, size));
    rank_ = rank;
    size_ = size;
    monitored_ = 0;
    is_coalescing_ = false;
    coalesced_.clear();
    return begin(
        prepare(c10d::OpType::UNKNOWN, "sidewire:reconfigure", {}, {}, c10d::kUnsetTimeout, 0));
}

} // namespace sidewire_torch

#endif

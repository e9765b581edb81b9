// SPDX-License-Identifier: BSD-2-Clause
// Errors. A verb that fails throws std::system_error, whose text begins with the verb's name and
// whose code is an errno of std::generic_category(). A completion carries a code of wc_category(),
// an event of the connection manager one of cm_category(). All of them compare with std::errc.
#ifndef SIDEWIRE_VERBS_ERROR_HPP
#define SIDEWIRE_VERBS_ERROR_HPP

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace sidewire
{

namespace detail
{

class wc_error_category final : public std::error_category
{
  public:
    const char *name() const noexcept override
    {
        return "ibv_wc_status";
    }
    std::string message(int value) const override
    {
        return ibv_wc_status_str(static_cast<ibv_wc_status>(value));
    }
    std::error_condition default_error_condition(int value) const noexcept override
    {
        switch (value) {
        case IBV_WC_SUCCESS:
            return {};
        case IBV_WC_LOC_LEN_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
            return std::errc::invalid_argument;
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_MW_BIND_ERR:
            return std::errc::permission_denied;
        case IBV_WC_WR_FLUSH_ERR:
            return std::errc::operation_canceled;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RESP_TIMEOUT_ERR:
            return std::errc::timed_out;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return std::errc::no_buffer_space;
        case IBV_WC_REM_ABORT_ERR:
            return std::errc::connection_aborted;
        default:
            return std::error_condition(value, *this);
        }
    }
};

class cm_error_category final : public std::error_category
{
  public:
    const char *name() const noexcept override
    {
        return "rdma_cm_event_type";
    }
    std::string message(int value) const override
    {
        return rdma_event_str(static_cast<rdma_cm_event_type>(value));
    }
    std::error_condition default_error_condition(int value) const noexcept override
    {
        switch (value) {
        case RDMA_CM_EVENT_ADDR_ERROR:
            return std::errc::address_not_available;
        case RDMA_CM_EVENT_ROUTE_ERROR:
            return std::errc::network_unreachable;
        case RDMA_CM_EVENT_UNREACHABLE:
            return std::errc::host_unreachable;
        case RDMA_CM_EVENT_REJECTED:
            return std::errc::connection_refused;
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_DISCONNECTED:
            return std::errc::connection_reset;
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return std::errc::no_such_device;
        default:
            return std::error_condition(value, *this);
        }
    }
};

// What a verb has returned, as an errno: most give it, some set it and give -1, a few give -errno.
inline int errno_of(int returned) noexcept
{
    if (returned == -1)
        return errno ? errno : EIO;
    return returned < 0 ? -returned : returned;
}

} // namespace detail

inline const std::error_category &wc_category() noexcept
{
    static const detail::wc_error_category category;
    return category;
}

inline const std::error_category &cm_category() noexcept
{
    static const detail::cm_error_category category;
    return category;
}

inline std::error_code make_error_code(ibv_wc_status status) noexcept
{
    return {static_cast<int>(status), wc_category()};
}

inline std::error_code make_error_code(rdma_cm_event_type event) noexcept
{
    return {static_cast<int>(event), cm_category()};
}

[[noreturn]] inline void throw_errno(const char *verb, int code)
{
    throw std::system_error(code, std::generic_category(), verb);
}

// For verbs that return a number: 0 is success.
inline void check(const char *verb, int returned)
{
    if (returned)
        throw_errno(verb, detail::errno_of(returned));
}

// For verbs that return an object, or NULL and errno.
template <class Raw> Raw *check(const char *verb, Raw *object)
{
    if (!object)
        throw_errno(verb, errno ? errno : EIO);
    return object;
}

// Called when a destructor's verb fails; what it could not destroy stays. EBUSY says that something
// made of the object was destroyed later than the object itself.
using destroy_failed_fn = void (*)(const char *verb, int code) noexcept;

namespace detail
{

inline void print_destroy_failed(const char *verb, int code) noexcept
{
    std::fprintf(stderr, "%s failed in a destructor: %s\n", verb, std::strerror(code));
}

inline destroy_failed_fn &destroy_failed_slot() noexcept
{
    static destroy_failed_fn handler = print_destroy_failed;
    return handler;
}

} // namespace detail

// Returns the handler of before. To be set before there are threads; without one, a line is written
// to stderr.
inline destroy_failed_fn on_destroy_failed(destroy_failed_fn handler) noexcept
{
    destroy_failed_fn before = detail::destroy_failed_slot();

    detail::destroy_failed_slot() = handler ? handler : detail::print_destroy_failed;
    return before;
}

} // namespace sidewire

#endif

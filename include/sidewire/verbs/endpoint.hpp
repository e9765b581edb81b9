// SPDX-License-Identifier: BSD-2-Clause
// Connecting two queue pairs without a connection manager. Each side makes an endpoint, sends it to
// the other by whatever it has (a socket, a file), and calls connect() with both.
#ifndef SIDEWIRE_VERBS_ENDPOINT_HPP
#define SIDEWIRE_VERBS_ENDPOINT_HPP

#include <algorithm>
#include <array>

#include <sys/random.h>

#include <sidewire/verbs/memory.hpp>

namespace sidewire
{

// Attributes of the path between two queue pairs. Both sides may differ in all of it.
struct path_options {
    uint8_t port = 1;
    int gid_index = -1; // -1: the best of the port (best_gid_index)
    uint16_t pkey_index = 0;
    ibv_mtu mtu = IBV_MTU_4096; // at most; the port and the peer may have less
    uint8_t rd_atomic = 16;     // READs and atomics under way, at most
    uint8_t timeout = 14;       // of an ACK: 4.096 us * 2^timeout, 67 ms
    uint8_t retries = 7;        // of what is not acknowledged
    uint8_t rnr_retries = 7;    // of what finds no receive; 7: for ever
    uint8_t min_rnr_timer = 12; // 0.64 ms (IBTA Vol1 9.7.5.2.8)
    uint8_t hop_limit = 64;
    uint8_t traffic_class = 0;
    uint8_t service_level = 0;
    uint32_t qkey = 0x11111111;        // of UD
    unsigned int rights = access::all; // of the peer, within those of each region
};

// 28 bytes without padding, the same on every machine.
struct endpoint {
    big_endian<uint32_t> qp_num;
    big_endian<uint32_t> psn;
    big_endian<uint16_t> lid;
    uint8_t mtu = 0;       // enum ibv_mtu
    uint8_t rd_atomic = 0; // READs and atomics that it answers at once
    std::array<uint8_t, 16> gid{};
};

static_assert(sizeof(endpoint) == 28 && alignof(endpoint) == 1);
static_assert(std::is_trivially_copyable_v<endpoint>);

namespace detail
{

// RoCE v2 with an IPv4 address is routed and the usual; link-local addresses cannot leave a link.
inline int gid_worth(const ibv_gid_entry &entry) noexcept
{
    const uint8_t *raw = entry.gid.raw;
    bool is_link_local = raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
    bool is_ipv4 = raw[10] == 0xff && raw[11] == 0xff;

    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2)
        return 1;
    return is_ipv4 ? 4 : is_link_local ? 2 : 3;
}

} // namespace detail

// The index of the GID that a program would choose by hand. Throws ENOENT if the port has none.
inline int best_gid_index(borrowed<ibv_context> device, uint8_t port = 1)
{
    int best = -1, worth = 0;
    int count = query_port(device, port).gid_tbl_len;

    for (int i = 0; i < count; i++) {
        ibv_gid_entry entry{};

        if (ibv_query_gid_ex(device, port, static_cast<uint32_t>(i), &entry, 0))
            continue; // an empty place of the table
        if (detail::gid_worth(entry) > worth) {
            worth = detail::gid_worth(entry);
            best = i;
        }
    }
    if (best < 0)
        throw_errno("ibv_query_gid_ex", ENOENT);
    return best;
}

namespace detail
{

inline int gid_index_of(ibv_context *device, const path_options &options)
{
    return options.gid_index < 0 ? best_gid_index(device, options.port) : options.gid_index;
}

// One that a peer of before did not have, so that its late packets are not taken for ours.
inline uint32_t random_psn()
{
    uint32_t number = 0;

    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        throw_errno("getrandom", errno);
    return number & 0xffffff;
}

inline endpoint describe_qp(ibv_qp *queue_pair, const path_options &options)
{
    ibv_context *device = queue_pair->context;
    ibv_port_attr port = query_port(device, options.port);
    int answers = query_device(device).max_qp_rd_atom;
    ibv_gid gid{};
    endpoint made;

    check("ibv_query_gid",
          ibv_query_gid(device, options.port, gid_index_of(device, options), &gid));
    made.qp_num = queue_pair->qp_num;
    made.psn = random_psn();
    made.lid = port.lid;
    made.mtu = static_cast<uint8_t>(std::min(port.active_mtu, options.mtu));
    made.rd_atomic = static_cast<uint8_t>(std::min<int>(answers, options.rd_atomic));
    std::copy(std::begin(gid.raw), std::end(gid.raw), made.gid.begin());
    return made;
}

inline ibv_ah_attr way_to(ibv_context *device, const endpoint &theirs, const path_options &options)
{
    ibv_ah_attr way{};

    // Without a LID the way is by GID, as on RoCE and iWARP.
    way.is_global = theirs.lid == 0;
    way.dlid = theirs.lid;
    way.sl = options.service_level;
    way.port_num = options.port;
    std::copy(theirs.gid.begin(), theirs.gid.end(), std::begin(way.grh.dgid.raw));
    way.grh.sgid_index = static_cast<uint8_t>(gid_index_of(device, options));
    way.grh.hop_limit = options.hop_limit;
    way.grh.traffic_class = options.traffic_class;
    return way;
}

inline void change_qp(ibv_qp *queue_pair, ibv_qp_state state, ibv_qp_attr &attr, int mask)
{
    attr.qp_state = state;
    check("ibv_modify_qp", ibv_modify_qp(queue_pair, &attr, mask | IBV_QP_STATE));
}

inline void connect_qp(ibv_qp *queue_pair, const endpoint &mine, const endpoint &theirs,
                       const path_options &options)
{
    bool is_reliable = queue_pair->qp_type == IBV_QPT_RC;
    ibv_qp_attr attr{};

    attr.port_num = options.port;
    attr.pkey_index = options.pkey_index;
    attr.qp_access_flags = is_reliable
                               ? options.rights
                               : options.rights & (access::local_write | access::remote_write);
    change_qp(queue_pair, IBV_QPS_INIT, attr,
              IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
    attr.ah_attr = way_to(queue_pair->context, theirs, options);
    attr.path_mtu = static_cast<ibv_mtu>(std::min(mine.mtu, theirs.mtu));
    attr.dest_qp_num = theirs.qp_num;
    attr.rq_psn = theirs.psn;
    attr.max_dest_rd_atomic = mine.rd_atomic;
    attr.min_rnr_timer = options.min_rnr_timer;
    change_qp(queue_pair, IBV_QPS_RTR, attr,
              IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                  (is_reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    attr.sq_psn = mine.psn;
    attr.max_rd_atomic = static_cast<uint8_t>(
        std::min<int>({theirs.rd_atomic, options.rd_atomic,
                       query_device(queue_pair->context).max_qp_init_rd_atom}));
    attr.timeout = options.timeout;
    attr.retry_cnt = options.retries;
    attr.rnr_retry = options.rnr_retries;
    change_qp(queue_pair, IBV_QPS_RTS, attr,
              IBV_QP_SQ_PSN | (is_reliable ? IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                                                 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
                                           : 0));
}

inline void activate_qp(ibv_qp *queue_pair, const endpoint &mine, const path_options &options)
{
    ibv_qp_attr attr{};

    attr.port_num = options.port;
    attr.pkey_index = options.pkey_index;
    attr.qkey = options.qkey;
    change_qp(queue_pair, IBV_QPS_INIT, attr, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
    change_qp(queue_pair, IBV_QPS_RTR, attr, 0);
    attr.sq_psn = mine.psn;
    change_qp(queue_pair, IBV_QPS_RTS, attr, IBV_QP_SQ_PSN);
}

} // namespace detail

} // namespace sidewire

#endif

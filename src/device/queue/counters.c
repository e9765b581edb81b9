/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/counters.h"

#include <stdatomic.h>
#include <string.h>

#include "device/nic/netdev.h"

static _Atomic uint64_t counts[SW_NETDEV_MAX][SW_COUNTER_COUNT];

static const char *const names[SW_COUNTER_COUNT] = {
    [SW_RX_DROP_NO_QP] = "rx_drop_no_qp",
    [SW_RX_DROP_ASTRAY] = "rx_drop_astray",
    [SW_RX_DROP_QKEY] = "rx_drop_qkey",
    [SW_RX_DROP_NO_RECV] = "rx_drop_no_recv",
    [SW_RX_DROP_LENGTH] = "rx_drop_length",
    [SW_RX_DROP_MALFORMED] = "rx_drop_malformed",
    [SW_RX_DROP_CROWDED] = "rx_drop_crowded",
    [SW_TX_DROP_UNREACHABLE] = "tx_drop_unreachable",
    [SW_TX_DROP_STALLED] = "tx_drop_stalled",
    [SW_PEER_REFUSED] = "peer_refused",
    [SW_PEER_MEMORY_LOST] = "peer_memory_lost",
    [SW_REQ_ERROR] = "req_cqe_error",
    [SW_REQ_FLUSH] = "req_cqe_flush_error",
    [SW_RESP_ERROR] = "resp_cqe_error",
    [SW_RESP_FLUSH] = "resp_cqe_flush_error",
    [SW_RNR_EXCEEDED] = "retry_rnr_exceeded_err",
    [SW_RETRY_EXCEEDED] = "retry_exceeded_err",
    [SW_RNR_RECEIVED] = "rnr_nak_retry_err",
    [SW_RNR_SENT] = "send_rnr_err",
    [SW_OUT_OF_SEQUENCE] = "out_of_sequence",
    [SW_DUPLICATE_REQUEST] = "duplicate_request",
    [SW_PACKET_SEQ_ERR] = "packet_seq_err",
    [SW_ACK_TIMEOUT] = "local_ack_timeout_err",
    [SW_RETRANSMITTED] = "retrans_pkts",
    [SW_ICRC_ERROR] = "rx_icrc_encapsulated",
    [SW_CNP_SENT] = "np_cnp_sent",
    [SW_CNP_HANDLED] = "rp_cnp_handled",
    [SW_ECN_MARKED] = "np_ecn_marked_roce_packets",
    [SW_TIMEOUTS_EXCUSED] = "ack_timeouts_excused",
    [SW_PEER_DEATHS] = "peer_deaths",
    [SW_LIVENESS_REFUSALS] = "liveness_refused",
    [SW_TERMINATES_SENT] = "iwarp_terminates_sent",
    [SW_TERMINATES_RECEIVED] = "iwarp_terminates_received",
    [SW_IWARP_STRANGERS] = "iwarp_strangers",
    [SW_TCP_CONNECTIONS] = "tcp_connections",
    [SW_TCP_FALLBACKS] = "tcp_fallbacks",
    [SW_TCP_RESETS] = "tcp_resets",
    [SW_TCP_REFUSED] = "tcp_calls_refused",
    [SW_TCP_STRANGERS] = "tcp_strangers",
};

static int counters_index_of(struct sw_netdev *dev)
{
    struct sw_netdev_info info;
    if (!dev)
        return 0;
    sw_netdev_read(dev, &info);
    return info.index;
}

void sw_counter_add_many(struct sw_netdev *dev, enum sw_counter counter, uint64_t more)
{
    atomic_fetch_add_explicit(&counts[counters_index_of(dev)][counter], more, memory_order_relaxed);
}

void sw_counter_add(struct sw_netdev *dev, enum sw_counter counter)
{
    sw_counter_add_many(dev, counter, 1);
}

void sw_counter_add_error(struct sw_netdev *dev, enum ibv_wc_status status, bool of_receive)
{
    sw_counter_add(dev, of_receive ? SW_RESP_ERROR : SW_REQ_ERROR);
    if (status == IBV_WC_WR_FLUSH_ERR)
        sw_counter_add(dev, of_receive ? SW_RESP_FLUSH : SW_REQ_FLUSH);
    if (status == IBV_WC_RNR_RETRY_EXC_ERR)
        sw_counter_add(dev, SW_RNR_EXCEEDED);
    if (status == IBV_WC_RETRY_EXC_ERR)
        sw_counter_add(dev, SW_RETRY_EXCEEDED);
}

uint64_t sw_counter_read(struct sw_netdev *dev, enum sw_counter counter)
{
    return atomic_load_explicit(&counts[counters_index_of(dev)][counter], memory_order_relaxed);
}

const char *sw_counter_name(enum sw_counter counter)
{
    return names[counter];
}

void sw_counts_read(struct sw_netdev *dev, struct sw_counts *out)
{
    sw_traffic_read(dev, &out->traffic);
    for (int i = 0; i < SW_COUNTER_COUNT; i++)
        out->counters[i] = sw_counter_read(dev, (enum sw_counter)i);
}

void sw_counts_add(struct sw_counts *sum, const struct sw_counts *part)
{
    sw_traffic_add(&sum->traffic, &part->traffic);
    for (int i = 0; i < SW_COUNTER_COUNT; i++)
        sum->counters[i] += part->counters[i];
}

void sw_counts_fork_child(void)
{
    memset(counts, 0, sizeof(counts));
    sw_traffic_fork_child();
}

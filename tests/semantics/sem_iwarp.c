/* SPDX-License-Identifier: BSD-2-Clause */
/* The cases that iWARP's devices cannot have, and those that RoCE's cannot over TCP, and why. All
 * others run over either. */
#include <fnmatch.h>
#include <stddef.h>

#include "sem.h"

struct reason {
    const char *text;
    const char *const *names; /* patterns of fnmatch(3), up to NULL */
};
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static const struct reason reasons[] = {
    {"no UC, UD and XRC queue pairs, so no multicast",
     NAMES("uc_*", "uc2*", "ud__*", "xrc*", "mcast*", "send_inv__uc_*", "*_uc", "*datagram*",
           "builders__all_opcodes", "order__bind_and_invalidate",
           "port_counters__in_the_middle_of_a_list")},
    {"no immediate data",
     NAMES("*write_imm*", "two_faults__imm_no_receive", "signaling__one_for_many",
           "req_notify__senders_completions", "req_notify__any_and_solicited",
           "completion__lengths_and_opcodes", "zero_length__skips_the_key_check", "srq__run_*",
           "srq__among_writes_and_reads", "connect__many_qps")},
    {"no atomics",
     NAMES("*atomic*", "target_refuses__cas_*", "target_refuses__faa_*", "rd_atomic__*")},
    {"no FLUSH, so no persistence; no rate limits", NAMES("flush__*", "persist__*", "pacing__*")},
    {"no RNR: a SEND without a receive ends the connection",
     NAMES("rnr_retry__*", "srq__empty_then_posted", "send_inv__*no_receive*",
           "send_inv__counts_its_receive", "inline__free_on_return", "peer_qp__*")},
    {"no retries: TCP has them, and the connection ends when TCP gives up",
     NAMES("timeout__*", "peer_gone__*")},
    {"connection management alone connects, gives the rights, and knows whether the peer is there",
     NAMES("connect__*", "comm_est__*", "post__in_each_state", "query_qp__returns_what_was_set",
           "modify_qp__state_table", "ece__*", "target_refuses__*_no_qp_right")},
    {"a move to SQD ends the connection",
     NAMES("modify_qp__sqd_*", "srq__sqd_*", "destroy__waits_for_acknowledgement")},
    {"the end of one side is the end of the other", NAMES("local_fault__*", "two_faults__*")},
    {"a WRITE or SEND is complete when TCP has it, so there is nothing left to flush or to blame",
     NAMES("post_send__full_queue", "modify_qp__err_flushes_in_order", "modify_qp__err_keeps_*",
           "destroy_qp__keeps_what_came_*", "error_completion__names_its_qp",
           "signaling__errors_always", "send_inv__no_such_key", "send_inv__plain_region")},
    {"a long message is placed FPDU by FPDU: nobody knows earlier that a later one is refused",
     NAMES("target_refuses__long_write_past_end")},
    {"a fault ends the connection at once: answers that are due do not come any more",
     NAMES("target_refuses__after_reads_that_are_due")},
    {"nothing has an order between two connections",
     NAMES("srq__shared_by_qps_*", "srq__receive_too_small*", "modify_srq__resize")},
    {"no packets that could be counted", NAMES("port_counters__*")},
    {"peers' memory is not mapped", NAMES("peer_memory__lost_*")},
    {"a connection that the peer closes has ended, whatever was on its way", NAMES("parting__*")},
};

/* RoCE's devices over TCP, without the direct link, which a queue pair of the same process and
 * counters of other processes would have. */
static const struct reason tcp_reasons[] = {
    {"RC queue pairs and datagrams alone are carried to other hosts",
     NAMES("uc_*", "uc2*", "xrc*", "mcast*", "send_inv__uc_*", "*_uc", "pacing__uc_*")},
    {"a datagram of RoCE v1 leaves as RoCE v2, as by packets",
     NAMES("ud__what_arrives_v1", "ud__ah_from_wc_v1")},
    {"what the direct link does where a receiver is slow to attach",
     NAMES("ud__receiver_is_slow_to_attach")},
    {"a queue pair that is its own peer has no connection",
     NAMES("connect__to_itself", "post__in_each_state", "order__atomics_from_both_sides",
           "window1__through_any_qp", "window2__of_other_qp", "window2__qp_destroyed",
           "local_inv__of_other_qp", "send_inv__of_other_qp", "window1__taken_away_under_writes",
           "import__device_pd_region")},
    {"a long message is placed FPDU by FPDU: nobody knows earlier that a later one is refused",
     NAMES("target_refuses__long_write_past_end", "target_refuses__long_write_imm_past_end")},
    {"no packets that could be counted, nor other processes that could be asked",
     NAMES("port_counters__*")},
    {"peers' memory is not mapped", NAMES("peer_memory__lost_*")},
};

static bool is_in(const struct reason *reason, const char *name)
{
    for (const char *const *pattern = reason->names; *pattern; pattern++)
        if (fnmatch(*pattern, name, 0) == 0)
            return true;
    return false;
}

bool sem_iwarp_has(const char *name)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (is_in(&reasons[i], name))
            return false;
    return true;
}

bool sem_tcp_has(const char *name)
{
    for (size_t i = 0; i < sizeof(tcp_reasons) / sizeof(tcp_reasons[0]); i++)
        if (is_in(&tcp_reasons[i], name))
            return false;
    return true;
}

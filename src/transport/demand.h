/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a peer's request asks of memory and queues, and what came of it: between a machine that
 * reads requests (transport/responder.h, transport/iwarp/iwarp.h) and its user, which carries them
 * out by the rules of device/rules/target.h.
 */
#ifndef SW_TRANSPORT_DEMAND_H
#define SW_TRANSPORT_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

enum sw_demand_kind {
    SW_DEMAND_SEND,  /* payload goes to byte `offset` of the receive, which is taken at `first` and
                        completed at `last` */
    SW_DEMAND_WRITE, /* payload goes to addr by rkey, after the checks; at `last` an immediate
                        consumes a receive */
    SW_DEMAND_READ,  /* check [addr, addr+total) by rkey for reading; emissions ask for the bytes */
    SW_DEMAND_CMP_SWAP,
    SW_DEMAND_FETCH_ADD,
    SW_DEMAND_ATOMIC_WRITE, /* the eight bytes of compare_add */
    SW_DEMAND_FLUSH,        /* [addr, addr+total), or the region of rkey, as flush_type says */
};

/*
 * What a packet asks for. Unreliable connections: a `first` begins anew; if a message was under
 * way, the rest of that one is lost and its receive serves this one.
 */
struct sw_demand {
    enum sw_demand_kind kind;
    bool first, last, has_imm, has_inv, solicited;
    bool duplicate; /* a READ or FLUSH that was executed before: if it is refused now, it is dropped
                       in silence, and nobody's state changes */
    uint32_t rkey, imm_be, inv_rkey, srq_num, flush_type;
    uint64_t addr;   /* of this packet's part */
    uint64_t offset; /* of the part in the message */
    uint64_t total;  /* bytes of the message; SEND: unknown, 0 */
    const uint8_t *payload;
    uint32_t len_bytes;
    uint32_t pieces, stride_bytes; /* of a run: so many payloads of len_bytes each, so far apart;
                                      each of them is a message if it is `last`. Otherwise 1 */
    uint64_t compare_add, swap;
    /* The machine's notes for conclude(). */
    uint32_t seq, count;
    bool ack_req;
};

/* Why memory is out of reach. IBTA has one NAK code for all of it; iWARP tells. */
enum sw_access_fault {
    SW_ACCESS_FAULT_NONE,
    SW_ACCESS_FAULT_KEY,    /* nothing has this key, or not any more */
    SW_ACCESS_FAULT_OWNER,  /* of another protection domain or queue pair */
    SW_ACCESS_FAULT_RIGHTS, /* the region or the queue pair does not admit it */
    SW_ACCESS_FAULT_BOUNDS,
};

struct sw_outcome {
    uint8_t syndrome;  /* of the AETH, as device/ has it: class 0 ACK, 1 RNR (the timer is the
                          machine's), 3 NAK. Unreliable: all but ACK loses the message. */
    uint8_t why;       /* enum sw_access_fault: behind a refusal of access */
    bool dead;         /* the QP goes to ERR: nothing more is executed, but the NAK is still sent,
                          and what was executed before is answered again */
    uint64_t original; /* of an atomic */
};

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/* The protocol of docs/transfer.md: private data of connections, and messages. Bytes to structs and
 * back, no I/O. */
#ifndef SW_MOVERS_TRANSFER_MESSAGE_H
#define SW_MOVERS_TRANSFER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/transfer.h"

enum {
    XFW_CONNECT_BYTES = 56,
    XFW_ACCEPT_BYTES = 32,
    XFW_REJECT_BYTES = 8,
    XFW_MESSAGE_HEADER_BYTES = 16,
    XFW_MESSAGE_MAX = XFW_MESSAGE_HEADER_BYTES + SW_XFER_NOTICE_MAX,
    XFW_SUM_BYTES = 16, /* of a SUM, what one part is */
    XFW_END_BYTES = 8,  /* what an END says */
    XFW_SUMS_MAX = SW_XFER_NOTICE_MAX / XFW_SUM_BYTES,
    XFW_ANSWER_MAX = XFW_MESSAGE_HEADER_BYTES + 4 * XFW_SUMS_MAX,
};

enum xfw_reason {
    XFW_REASON_VERSION = 1,
    XFW_REASON_MALFORMED,
    XFW_REASON_INSTANCE,
    XFW_REASON_LAYOUT,
    XFW_REASON_MANY,
    XFW_REASON_MEMORY,
};

struct xfw_connect {
    uint8_t called[SW_XFER_INSTANCE_BYTES], calling[SW_XFER_INSTANCE_BYTES];
    uint64_t layout, session;
    uint8_t lane, count; /* of the connections on that lane so far, modulo 256 */
};

struct xfw_accept {
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    uint16_t notices, notice_bytes_max;
    uint32_t abilities; /* XFW_CAN_... */
};

enum { XFW_CAN_SUM = 1 };

enum xfw_type { XFW_NOTICE = 1, XFW_ACK, XFW_SUM, XFW_SUMS, XFW_END, XFW_ENDED };

struct xfw_message {
    enum xfw_type type;
    uint32_t bytes; /* behind the header */
    uint64_t tag;
};

/* A part of a region, whose sum is asked for. */
struct xfw_sum {
    uint64_t address;
    uint32_t key, bytes;
};

/* A lane of the session. Its connections with an earlier count are to be ended. */
struct xfw_end {
    uint8_t lane, count;
};

/* Each `put` fills what it names. */
void xfw_put_connect(uint8_t out[XFW_CONNECT_BYTES], const struct xfw_connect *connect);
void xfw_put_accept(uint8_t out[XFW_ACCEPT_BYTES], const struct xfw_accept *accept);
void xfw_put_reject(uint8_t out[XFW_REJECT_BYTES], enum xfw_reason reason);
/* The header alone; its bytes come behind. Returns the length of the message. */
uint32_t xfw_put_message(uint8_t out[XFW_MESSAGE_HEADER_BYTES], const struct xfw_message *message);

/* 0, or why not. */
enum xfw_reason xfw_get_connect(const uint8_t *in, size_t bytes, struct xfw_connect *connect);
bool xfw_get_accept(const uint8_t *in, size_t bytes, struct xfw_accept *accept);
/* 0: the rejection is not one of this protocol. */
enum xfw_reason xfw_get_reject(const uint8_t *in, size_t bytes);
bool xfw_get_message(const uint8_t *in, size_t bytes, struct xfw_message *message);
/* The `index`th entry of a SUM, or of SUMS. */
void xfw_put_sum(uint8_t *message, uint32_t index, const struct xfw_sum *sum);
void xfw_get_sum(const uint8_t *message, uint32_t index, struct xfw_sum *sum);
void xfw_put_sums(uint8_t *message, uint32_t index, uint32_t sum);
uint32_t xfw_get_sums(const uint8_t *message, uint32_t index);
void xfw_put_end(uint8_t *message, const struct xfw_end *end);
void xfw_get_end(const uint8_t *message, struct xfw_end *end);

/* Whether the first of two connections of a lane was made before the second. */
static inline bool xfw_is_earlier(uint8_t one, uint8_t other)
{
    return (int8_t)(uint8_t)(one - other) < 0;
}

#endif

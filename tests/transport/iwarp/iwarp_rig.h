/* SPDX-License-Identifier: BSD-2-Clause */
/* One machine of iWARP alone, spoken to segment by segment. */
#ifndef SW_TESTS_TRANSPORT_IWARP_RIG_H
#define SW_TESTS_TRANSPORT_IWARP_RIG_H

#include "transport/iwarp/iwarp.h"

enum { IWARP_RING = 16, IWARP_FPDU_BYTES = 256, IWARP_IRD = 4, IWARP_ORD = 2 };

/* What was asked for is done. */
static const struct sw_outcome iwarp_good = {.syndrome = 0x1f};

struct iwarp_rig {
    struct sw_iwarp machine;
    struct sw_request ring[IWARP_RING];
    struct sw_iwarp_emission emission;
    struct sw_ddp_segment segment; /* of the emission; without its payload */
    struct sw_iwarp_input input;
};

struct sw_iwarp_config iwarp_usual(void);
/* A machine with this configuration, or the usual one. There is one rig: the next call begins anew.
 */
struct iwarp_rig *iwarp_rig_with(const struct sw_iwarp_config *config);
struct iwarp_rig *iwarp_rig_of(void);

/* Posts a request to address 0x10000, key 0x1234. */
void iwarp_post(struct iwarp_rig *rig, uint8_t kind, uint32_t len_bytes, uint8_t flags);
/* The next FPDU, which is of this kind; there is none; it is a TERMINATE, and the last. */
void iwarp_sends(struct iwarp_rig *rig, enum sw_rdmap_kind kind);
void iwarp_sends_nothing(struct iwarp_rig *rig);
void iwarp_terminates(struct iwarp_rig *rig, uint16_t cause);
/* The sink that the machine told in the READ of this number. */
uint32_t iwarp_token_of(const struct iwarp_rig *rig, uint32_t index);

/* An arrival; zeros as payload unless `body` is given. */
enum sw_iwarp_step iwarp_take(struct iwarp_rig *rig, const struct sw_ddp_segment *segment,
                              const uint8_t *body, uint32_t body_len);
enum sw_iwarp_step iwarp_take_send(struct iwarp_rig *rig, uint8_t kind, uint32_t msn, uint32_t mo,
                                   uint32_t len, bool last);
enum sw_iwarp_step iwarp_take_write(struct iwarp_rig *rig, uint64_t to, uint32_t len, bool last);
enum sw_iwarp_step iwarp_take_read(struct iwarp_rig *rig, uint32_t msn, uint64_t from,
                                   uint32_t len);
enum sw_iwarp_step iwarp_take_response(struct iwarp_rig *rig, uint32_t stag, uint64_t to,
                                       uint32_t len, bool last);
/* What the last arrival asked for ends like this. */
void iwarp_conclude(struct iwarp_rig *rig, uint8_t syndrome, enum sw_access_fault why);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What two queue pairs of RoCE devices tell each other where TCP carries them (docs/tcp.md): the
 * private data of MPA's start, and their notes to each other on the connection.
 *
 *   private data:  "SwQP" | u8 version | u8 kind | u16 skills | u32 own QPN | u32 peer's QPN |
 *                  u32 own first PSN | u32 peer's first PSN | u64 nonce
 *   note, which is the body of an Immediate (RFC 7306 s6):  u8 kind | u8 argument | u16 0 | u32
 *
 * Immediate data of a WRITE is a note of kind 0, so it is what the RFC has.
 */
#ifndef SW_WIRE_IWARP_PAIRING_H
#define SW_WIRE_IWARP_PAIRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SW_PAIRING_BYTES = 32, SW_PAIRING_NOTE_BYTES = 8 };
#define SW_PAIRING_PSN_OPEN 0xffffffffu /* not known yet: the queue pair is not in RTS */

enum sw_pairing_kind {
    SW_PAIRING_REQUEST,
    SW_PAIRING_REPLY,
    SW_PAIRING_LATER,     /* a refusal: not now. The caller tries again, or is called */
    SW_PAIRING_NOBODY,    /* a refusal: no process of this host has the queue pair */
    SW_PAIRING_GONE,      /* a refusal: nor does the process live that had it */
    SW_PAIRING_DATAGRAMS, /* a request: to carry datagrams to the process of the peer's QPN, or to
                             any one; the other numbers but the nonce are 0 */
    SW_PAIRING_KINDS
};

/* What an end understands beyond the notes below. Bits that are not known are not looked at. */
enum sw_pairing_skills {
    SW_PAIRING_VOIDS = 1 << 0,       /* FPDUs that say that their data is gone (fpdu.h) */
    SW_PAIRING_PERSISTENCE = 1 << 1, /* FLUSH and ATOMIC WRITE (rdmap.h) */
    SW_PAIRING_SKILLS = SW_PAIRING_VOIDS | SW_PAIRING_PERSISTENCE,
};

struct sw_pairing {
    uint8_t kind; /* enum sw_pairing_kind */
    uint16_t skills;
    uint32_t own_qpn, peer_qpn;
    uint32_t own_psn, peer_psn; /* that the one sends first, and the other is to send first; both
                                   open in a request: an inquiry, which connects nothing */
    uint64_t nonce;             /* of the request; the answer has the same */
};

void sw_pairing_encode(const struct sw_pairing *pairing, uint8_t to[SW_PAIRING_BYTES]);
/* False: it is nothing like that. */
bool sw_pairing_decode(const uint8_t *from, size_t len, struct sw_pairing *out);

/* Whether the reply is to this request, of the queue pair that was meant, in the life that was. */
bool sw_pairing_agrees(const struct sw_pairing *request, const struct sw_pairing *reply);

enum sw_pairing_note_kind {
    SW_PAIRING_IMM_OF_WRITE, /* of the WRITE before it; the value is the immediate */
    SW_PAIRING_IMM_OF_SEND,  /* of the SEND behind it */
    SW_PAIRING_TAKEN,        /* so many messages have come and are done */
    SW_PAIRING_RNR,          /* so many; there was no receive for the next. The argument: its timer.
                                All requests are dropped from that one to RESUME */
    SW_PAIRING_RESUME,       /* requests begin again with the one that was refused */
    SW_PAIRING_BYE,          /* the queue pair lets go of its peer */
    SW_PAIRING_NOTE_KINDS
};

struct sw_pairing_note {
    uint8_t kind; /* enum sw_pairing_note_kind, or what is not known */
    uint8_t argument;
    uint32_t value; /* an immediate: as it lies there */
};

void sw_pairing_note_encode(const struct sw_pairing_note *note, uint8_t to[SW_PAIRING_NOTE_BYTES]);
void sw_pairing_note_decode(const uint8_t from[SW_PAIRING_NOTE_BYTES], struct sw_pairing_note *out);

#endif

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that connections have while something is on its way, and share else: a thousand of them
 * that are idle would have a page or two each for nothing.
 */
#ifndef SW_LINK_IWARP_BUFFERS_H
#define SW_LINK_IWARP_BUFFERS_H

enum sw_iwarp_buffer {
    SW_IWARP_BUFFER_READ,    /* bytes as they come: nothing of it stays between two calls */
    SW_IWARP_BUFFER_FPDU,    /* one that is not whole yet */
    SW_IWARP_BUFFER_OUT,     /* what is copied of FPDUs that leave, */
    SW_IWARP_BUFFER_OUT_CRC, /* with all payload */
    SW_IWARP_BUFFERS,
};

/* Bytes of each kind. */
unsigned int sw_iwarp_buffer_bytes(enum sw_iwarp_buffer kind);
/* NULL: no memory. */
void *sw_iwarp_buffer_borrow(enum sw_iwarp_buffer kind);
/* `buffer` may be NULL. */
void sw_iwarp_buffer_return(enum sw_iwarp_buffer kind, void *buffer);
/* In a forked child: a thread that had a lock is not there. */
void sw_iwarp_buffers_fork_child(void);

#endif

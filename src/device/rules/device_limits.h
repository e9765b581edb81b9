/* SPDX-License-Identifier: BSD-2-Clause */
/* What one device offers; reported by ibv_query_device and enforced at creation. */
#ifndef SW_DEVICE_RULES_DEVICE_LIMITS_H
#define SW_DEVICE_RULES_DEVICE_LIMITS_H

#define SW_VENDOR_ID 0x5357 /* no vendor's: programs must not try private paths */
#define SW_MAX_QP_WR 32768
#define SW_MAX_SGE 32
#define SW_MAX_INLINE_BYTES 1024
#define SW_MAX_CQE (1 << 22)
#define SW_MAX_SRQ_WR 32768
#define SW_MAX_PD (1 << 20)
#define SW_MAX_RD_ATOMIC 16
#define SW_MAX_IWARP_RD_ATOMIC 128
#define SW_MAX_DM_BYTES (16ull << 20) /* device memory, of a process altogether */
#define SW_MIN_RATE_KBPS 1000         /* of a QP's rate limit */
#define SW_MAX_RATE_KBPS 400000000    /* the fastest port */
#define SW_MAX_MCAST_GROUPS 1024      /* of a process */
#define SW_MAX_MCAST_QPS 1024         /* of one group */
#define SW_MAX_MSG_BYTES (1ull << 31)

#endif

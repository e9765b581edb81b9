/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The messages of communication management (CM), each one MAD: bytes to a host struct and back.
 * IBTA Vol1 12.6, 12.7, 12.11; the header of the RDMA IP CM service: annex A11.
 *
 * The codec refuses what is no CM message; whether its values make sense to a connection is for
 * cm/ to say, which answers some of it with a REJ. Reserved bits are ignored and sent as zero.
 * GIDs are 16 bytes in network order, all numbers are host order.
 */
#ifndef SW_WIRE_CM_MAD_H
#define SW_WIRE_CM_MAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/mad.h"

enum sw_cm_attribute { /* the message, as the MAD's attribute ID */
                       SW_CM_REQ = 0x10,
                       SW_CM_MRA = 0x11,
                       SW_CM_REJ = 0x12,
                       SW_CM_REP = 0x13,
                       SW_CM_RTU = 0x14,
                       SW_CM_DREQ = 0x15,
                       SW_CM_DREP = 0x16,
                       SW_CM_SIDR_REQ = 0x17,
                       SW_CM_SIDR_REP = 0x18,
                       SW_CM_LAP = 0x19,
                       SW_CM_APR = 0x1a,
};

enum { /* bytes of private data; what is not used of it is zero */
       SW_CM_REQ_PRIVATE = 92,
       SW_CM_MRA_PRIVATE = 222,
       SW_CM_REJ_PRIVATE = 148,
       SW_CM_REP_PRIVATE = 196,
       SW_CM_RTU_PRIVATE = 224,
       SW_CM_DREQ_PRIVATE = 220,
       SW_CM_DREP_PRIVATE = 224,
       SW_CM_SIDR_REQ_PRIVATE = 216,
       SW_CM_SIDR_REP_PRIVATE = 136,
       SW_CM_LAP_PRIVATE = 168,
       SW_CM_APR_PRIVATE = 148,
       SW_CM_INFO_MAX = 72, /* additional information of REJ (its ARI), APR and SIDR_REP */
};

enum sw_cm_service { SW_CM_RC, SW_CM_UC, SW_CM_RD, SW_CM_EXTENDED }; /* transport service type */
enum { SW_CM_EXTENDED_XRC = 1 };                                     /* extended transport type */

/* A path as a REQ has it: twice, the alternate one zero if there is none. */
struct sw_cm_req_path {
    uint16_t local_lid, remote_lid; /* 0xffff with RoCE */
    uint8_t local_gid[16], remote_gid[16];
    uint32_t flow_label; /* 20 bits */
    uint8_t packet_rate; /* 6 bits */
    uint8_t traffic_class, hop_limit;
    uint8_t sl; /* 4 bits */
    bool subnet_local;
    uint8_t local_ack_timeout; /* 5 bits: 4.096 us * 2^n */
};

struct sw_cm_req {
    uint32_t local_comm_id;
    uint32_t vendor_id;   /* 24 bits: ECE, with its options in the MAD's attribute modifier */
    uint32_t ece_options; /* as struct ibv_ece has them */
    uint64_t service_id;
    uint64_t local_ca_guid;
    uint32_t local_qkey;
    uint32_t local_qpn, local_eecn, remote_eecn; /* 24 bits each */
    uint8_t responder_resources;        /* READs and atomics of the peer that we execute at once */
    uint8_t initiator_depth;            /* and of ours that the peer is asked to */
    uint8_t remote_cm_response_timeout; /* 5 bits, 4.096 us * 2^n: until the peer has answered */
    uint8_t local_cm_response_timeout;  /* until we have */
    uint8_t service;                    /* enum sw_cm_service */
    uint8_t extended_service;           /* 3 bits, for SW_CM_EXTENDED */
    bool flow_control;                  /* end-to-end credits */
    bool rdc_exists, srq;
    uint32_t starting_psn;                /* 24 bits */
    uint8_t retry_count, rnr_retry_count; /* 3 bits each */
    uint16_t pkey;
    uint8_t path_mtu;       /* 4 bits: 1 (256 bytes) to 5 (4096) */
    uint8_t max_cm_retries; /* 4 bits */
    bool sap_supported;     /* suggest alternate path */
    struct sw_cm_req_path primary, alternate;
    uint8_t private_data[SW_CM_REQ_PRIVATE];
};

/* Which message an MRA or a REJ is about. */
enum sw_cm_about { SW_CM_ABOUT_REQ, SW_CM_ABOUT_REP, SW_CM_ABOUT_OTHER, SW_CM_ABOUT_RESERVED };

struct sw_cm_mra {
    uint32_t local_comm_id, remote_comm_id;
    uint8_t about;           /* enum sw_cm_about (of a LAP: OTHER) */
    uint8_t service_timeout; /* 5 bits: 4.096 us * 2^n */
    uint8_t private_data[SW_CM_MRA_PRIVATE];
};

struct sw_cm_rej {
    uint32_t local_comm_id, remote_comm_id;
    uint8_t about;                /* enum sw_cm_about (nothing was received: OTHER) */
    uint8_t info_len;             /* bytes of info */
    uint16_t reason;              /* enum sw_cm_reason, or another */
    uint8_t info[SW_CM_INFO_MAX]; /* ARI */
    uint8_t private_data[SW_CM_REJ_PRIVATE];
};

enum sw_cm_reason { /* IBTA Vol1 table 116 */
                    SW_CM_REASON_NO_QP = 1,
                    SW_CM_REASON_NO_EEC = 2,
                    SW_CM_REASON_NO_RESOURCES = 3,
                    SW_CM_REASON_TIMEOUT = 4, /* the ARI is the CA GUID of the side that gave up */
                    SW_CM_REASON_UNSUPPORTED = 5,
                    SW_CM_REASON_COMM_ID = 6,
                    SW_CM_REASON_COMM_INSTANCE = 7,
                    SW_CM_REASON_SERVICE_ID = 8, /* nobody listens */
                    SW_CM_REASON_TRANSPORT = 9,
                    SW_CM_REASON_STALE = 10,
                    SW_CM_REASON_RDC = 11,
                    SW_CM_REASON_GID = 12,
                    SW_CM_REASON_LID = 13,
                    SW_CM_REASON_SL = 14,
                    SW_CM_REASON_TRAFFIC_CLASS = 15,
                    SW_CM_REASON_HOP_LIMIT = 16,
                    SW_CM_REASON_PACKET_RATE = 17,
                    SW_CM_REASON_ALTERNATE_GID = 18,
                    SW_CM_REASON_ALTERNATE_LID = 19,
                    SW_CM_REASON_ALTERNATE_SL = 20,
                    SW_CM_REASON_ALTERNATE_TRAFFIC_CLASS = 21,
                    SW_CM_REASON_ALTERNATE_HOP_LIMIT = 22,
                    SW_CM_REASON_ALTERNATE_PACKET_RATE = 23,
                    SW_CM_REASON_PORT_CM_REDIRECT = 24,
                    SW_CM_REASON_PORT_REDIRECT = 25,
                    SW_CM_REASON_MTU = 26,
                    SW_CM_REASON_RESPONDER_RESOURCES = 27,
                    SW_CM_REASON_CONSUMER =
                        28, /* the program said no, why is in the private data */
                    SW_CM_REASON_RNR_RETRY = 29,
                    SW_CM_REASON_DUPLICATE_COMM_ID = 30,
                    SW_CM_REASON_CLASS_VERSION = 31,
                    SW_CM_REASON_FLOW_LABEL = 32,
                    SW_CM_REASON_ALTERNATE_FLOW_LABEL = 33,
                    SW_CM_REASON_VENDOR_OPTION = 35,
};

struct sw_cm_rep {
    uint32_t local_comm_id, remote_comm_id;
    uint32_t local_qkey;
    uint32_t local_qpn, local_eecn; /* 24 bits each; of an XRC target the QPN is the EECN */
    uint32_t starting_psn;          /* 24 bits */
    uint8_t responder_resources, initiator_depth;
    uint8_t target_ack_delay;  /* 5 bits */
    uint8_t failover_accepted; /* 2 bits: 1, not supported; 2, refused */
    bool flow_control, srq;
    uint8_t rnr_retry_count;         /* 3 bits */
    uint32_t vendor_id, ece_options; /* as in a REQ */
    uint64_t local_ca_guid;
    uint8_t private_data[SW_CM_REP_PRIVATE];
};

struct sw_cm_rtu {
    uint32_t local_comm_id, remote_comm_id;
    uint8_t private_data[SW_CM_RTU_PRIVATE];
};

struct sw_cm_dreq {
    uint32_t local_comm_id, remote_comm_id;
    uint32_t remote_qpn; /* 24 bits */
    uint8_t private_data[SW_CM_DREQ_PRIVATE];
};

struct sw_cm_drep {
    uint32_t local_comm_id, remote_comm_id;
    uint8_t private_data[SW_CM_DREP_PRIVATE];
};

struct sw_cm_sidr_req {
    uint32_t request_id;
    uint16_t pkey;
    uint64_t service_id;
    uint8_t private_data[SW_CM_SIDR_REQ_PRIVATE];
};

enum sw_cm_sidr_status {
    SW_CM_SIDR_VALID,
    SW_CM_SIDR_UNSUPPORTED, /* nobody serves that service id */
    SW_CM_SIDR_REJECTED,    /* by the program */
    SW_CM_SIDR_NO_QP,
    SW_CM_SIDR_REDIRECT,
    SW_CM_SIDR_VERSION,
};

struct sw_cm_sidr_rep {
    uint32_t request_id;
    uint8_t status;   /* enum sw_cm_sidr_status, or another */
    uint8_t info_len; /* bytes of info */
    uint32_t qpn;     /* 24 bits */
    uint64_t service_id;
    uint32_t qkey;
    uint32_t vendor_id, ece_options; /* as in a REQ */
    uint8_t info[SW_CM_INFO_MAX];
    uint8_t private_data[SW_CM_SIDR_REP_PRIVATE];
};

/* Load alternate path: read for its ids alone, as it is always refused. */
struct sw_cm_lap {
    uint32_t local_comm_id, remote_comm_id;
    uint32_t remote_qpn;                /* 24 bits */
    uint8_t remote_cm_response_timeout; /* 5 bits */
    struct sw_cm_req_path alternate;
    uint8_t private_data[SW_CM_LAP_PRIVATE];
};

enum sw_cm_apr_status { /* the first of them */
                        SW_CM_APR_LOADED,
                        SW_CM_APR_COMM_ID,     /* unknown */
                        SW_CM_APR_UNSUPPORTED, /* alternate paths are not */
                        SW_CM_APR_REJECTED,
};

struct sw_cm_apr {
    uint32_t local_comm_id, remote_comm_id;
    uint8_t info_len; /* bytes of info */
    uint8_t status;   /* enum sw_cm_apr_status, or another */
    uint8_t info[SW_CM_INFO_MAX];
    uint8_t private_data[SW_CM_APR_PRIVATE];
};

struct sw_cm_message {
    enum sw_cm_attribute attribute; /* which of the union */
    uint64_t transaction;
    union {
        struct sw_cm_req req;
        struct sw_cm_mra mra;
        struct sw_cm_rej rej;
        struct sw_cm_rep rep;
        struct sw_cm_rtu rtu;
        struct sw_cm_dreq dreq;
        struct sw_cm_drep drep;
        struct sw_cm_sidr_req sidr_req;
        struct sw_cm_sidr_rep sidr_rep;
        struct sw_cm_lap lap;
        struct sw_cm_apr apr;
    };
};

/* Why a MAD is no CM message. */
enum sw_cm_mad_fault {
    SW_CM_MAD_FAULT_NONE,
    SW_CM_MAD_FAULT_LENGTH,    /* not SW_MAD_BYTES */
    SW_CM_MAD_FAULT_VERSION,   /* of the header, or of the class */
    SW_CM_MAD_FAULT_CLASS,     /* not communication management */
    SW_CM_MAD_FAULT_METHOD,    /* not Send */
    SW_CM_MAD_FAULT_ATTRIBUTE, /* unknown */
    SW_CM_MAD_FAULT_INFO,      /* more additional information than fits */
    SW_CM_MAD_FAULT_COUNT
};
const char *sw_cm_mad_fault_name(enum sw_cm_mad_fault fault);

/* Takes a MAD of `len` bytes apart. *out is set on SW_CM_MAD_FAULT_NONE only. */
enum sw_cm_mad_fault sw_cm_mad_decode(const uint8_t *mad, size_t len, struct sw_cm_message *out);

/* Writes all SW_MAD_BYTES of a MAD. Values are cut to the bits they have. */
void sw_cm_mad_encode(const struct sw_cm_message *message, uint8_t mad[SW_MAD_BYTES]);

/* "REQ"; NULL: no message of CM has this attribute. */
const char *sw_cm_attribute_name(uint16_t attribute);

/* "invalid service ID"; NULL: not one of enum sw_cm_reason. */
const char *sw_cm_reason_name(uint16_t reason);

/* The private data of a REQ or SIDR_REQ of RDMA CM begins with this header; what is left of it is
 * the program's. */
enum { SW_CM_IP_HEADER_BYTES = 36 };

struct sw_cm_ip_header {
    uint8_t major_version, minor_version; /* 0, 0; 4 bits each */
    uint8_t ip_version;                   /* 4 or 6; 4 bits */
    uint16_t src_port;                    /* the other port is in the service id */
    uint8_t src_addr[16], dst_addr[16];   /* network order; IPv4 in the last four bytes */
};

/* false: not of this version, or neither IPv4 nor IPv6. `from` has SW_CM_IP_HEADER_BYTES. */
bool sw_cm_ip_header_decode(const uint8_t *from, struct sw_cm_ip_header *out);
void sw_cm_ip_header_encode(const struct sw_cm_ip_header *header, uint8_t *to);

/* The service id of RDMA CM for a port of a port space (0x0106 TCP, 0x0111 UDP, 0x013f IB): the
 * IP CM service, IBTA Vol1 A11.  */
static inline uint64_t sw_cm_ip_service_id(uint16_t port_space, uint16_t port)
{
    return (uint64_t)port_space << 16 | port;
}

#endif

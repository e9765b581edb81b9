/* SPDX-License-Identifier: BSD-2-Clause */
/* The control protocol of docs/pmem.md: bytes to structs and back, no I/O. A parsed message is
 * within its bounds: counts, lengths, ends of names, ranges inside their region. */
#ifndef SW_MOVERS_PMEM_CONTROL_H
#define SW_MOVERS_PMEM_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/pmem.h"

enum {
    PMF_VERSION = 1,
    PMF_NAME_BYTES = SW_PMEM_NAME_MAX + 1,
    PMF_CONNECT_BYTES = 56,
    PMF_ACCEPT_BYTES = 24,
    PMF_REJECT_BYTES = 8,
    PMF_REQUEST_MAX = 64,
    PMF_LIST_MAX = SW_PMEM_REGIONS_MAX,
    PMF_ANSWER_MAX = 96 + 32 * SW_PMEM_RANGES_MAX,
};

enum pmf_reason {
    PMF_REASON_VERSION = 1,
    PMF_REASON_MALFORMED,
    PMF_REASON_RIGHTS,
    PMF_REASON_MANY,
    PMF_REASON_MEMORY
};
enum pmf_type { PMF_OPEN = 1, PMF_LIST, PMF_COUNTS, PMF_IS_ANSWER = 0x80 };
enum pmf_status {
    PMF_OK,
    PMF_MALFORMED,
    PMF_UNKNOWN,
    PMF_NO_REGION,
    PMF_NO_RIGHTS,
    PMF_NO_MEMORY,   /* the server's device has no room for its ranges */
    PMF_SHARED,      /* other servers serve it, too: nobody can be alone */
    PMF_DISK_FAILED, /* the region's disk has failed a write since the server started */
    PMF_BUSY,        /* a writer before is stopped amid a store: regions[0].name is its label */
    PMF_STATUS_MAX = PMF_BUSY
};
enum pmf_flags { PMF_VISIBLE = 1, PMF_PERSISTENT = 2 };
enum pmf_wish { PMF_ALONE = 1 }; /* of OPEN: no other client writes any more */

/* What people read of a region. */
struct pmf_region {
    char name[PMF_NAME_BYTES];
    uint64_t bytes;
    uint8_t identity[16];
    uint8_t kind; /* enum sw_pmem_kind */
    uint8_t flags;
    uint16_t rights; /* of LIST only */
};

struct pmf_range {
    uint64_t offset, bytes, address;
    uint32_t key, rights;
};

struct pmf_request {
    uint8_t type;
    uint32_t tag;
    uint32_t wishes;           /* of OPEN: enum pmf_wish; bits beyond these are cleared */
    char name[PMF_NAME_BYTES]; /* of OPEN */
};

/* What a server has counted since it started. */
struct pmf_counts {
    uint64_t uptime_ms, connections, refused, malformed, ended;
    uint32_t clients, clients_max;
};

struct pmf_region_counts {
    char name[PMF_NAME_BYTES];
    uint64_t opens;
    uint32_t clients, writers; /* that have it open now */
};

struct pmf_answer {
    uint8_t type; /* without its bit 7 */
    uint8_t status;
    uint32_t tag;
    uint32_t count;
    struct pmf_region regions[PMF_LIST_MAX]; /* OPEN has one */
    struct pmf_range ranges[SW_PMEM_RANGES_MAX];
    struct pmf_counts counts;
    struct pmf_region_counts region_counts[PMF_LIST_MAX];
};

/* Each `put` fills what it names and returns its length. */
size_t pmf_put_connect(uint8_t out[PMF_CONNECT_BYTES], const char *label);
size_t pmf_put_accept(uint8_t out[PMF_ACCEPT_BYTES], const uint8_t instance[16]);
size_t pmf_put_reject(uint8_t out[PMF_REJECT_BYTES], enum pmf_reason reason);
size_t pmf_put_request(uint8_t out[PMF_REQUEST_MAX], const struct pmf_request *request);
size_t pmf_put_answer(uint8_t out[PMF_ANSWER_MAX], const struct pmf_answer *answer);

/* 0, or why not. The label is fit to be printed. */
enum pmf_reason pmf_get_connect(const uint8_t *in, size_t bytes, char label[PMF_NAME_BYTES]);
bool pmf_get_accept(const uint8_t *in, size_t bytes, uint8_t instance[16]);
enum pmf_reason pmf_get_reject(const uint8_t *in, size_t bytes);
const char *pmf_reason_text(enum pmf_reason reason);
/* PMF_OK, PMF_MALFORMED or PMF_UNKNOWN; tag and type are set where there is a header. */
enum pmf_status pmf_get_request(const uint8_t *in, size_t bytes, struct pmf_request *out);
bool pmf_get_answer(const uint8_t *in, size_t bytes, struct pmf_answer *out);

#endif

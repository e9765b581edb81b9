/* SPDX-License-Identifier: BSD-2-Clause */
/* Access rules, `--allow CLIENT:RANGE:RIGHTS[@REGION]`: who may do what to which bytes. Knows no
 * network. */
#ifndef SW_MOVERS_PMEM_RULES_H
#define SW_MOVERS_PMEM_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sidewire/pmem.h"

enum { PMS_RULES_MAX = SW_PMEM_RANGES_MAX };

struct pms_rule {
    int family;                        /* AF_UNSPEC: any client */
    uint8_t address[16];               /* in network order; of IPv4 the first 4 */
    uint64_t offset, end;              /* end UINT64_MAX: that of the region */
    uint32_t rights;                   /* enum sw_pmem_rights */
    char region[SW_PMEM_NAME_MAX + 1]; /* empty: all of them */
};

struct pms_rules {
    struct pms_rule rules[PMS_RULES_MAX];
    uint32_t count;
};

/* 0, or -EINVAL and what is wrong. */
int pms_rules_add(struct pms_rules *rules, const char *text, char *error, size_t error_bytes);
/* Bit i is set where rule i is for this client. */
uint64_t pms_rules_of(const struct pms_rules *rules, const struct sockaddr *client);
bool pms_rule_is_of(const struct pms_rule *rule, const char *region);
/* What those rules of `mask` give on any byte of it. */
uint32_t pms_rules_rights(const struct pms_rules *rules, uint64_t mask, const char *region);
/* -EINVAL where a range of a rule lies outside of a region that it is of. */
int pms_rules_fit(const struct pms_rules *rules, const char *region, uint64_t region_bytes,
                  char *error, size_t error_bytes);

#endif

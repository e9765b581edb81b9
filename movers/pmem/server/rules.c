/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/server/rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/size.h"

static bool parse_client(char *text, struct pms_rule *rule)
{
    if (!strcmp(text, "*"))
        return true;
    if (inet_pton(AF_INET, text, rule->address) == 1) {
        rule->family = AF_INET;
        return true;
    }
    const size_t len = strlen(text);
    if (len < 2 || text[0] != '[' || text[len - 1] != ']')
        return false;
    text[len - 1] = 0;
    rule->family = AF_INET6;
    return inet_pton(AF_INET6, text + 1, rule->address) == 1;
}

static bool parse_range(char *text, struct pms_rule *rule)
{
    rule->end = UINT64_MAX;
    if (!strcmp(text, "*"))
        return true;
    char *dash = strchr(text, '-');
    if (!dash)
        return false;
    *dash = 0;
    return (!*text || mover_parse_size(text, &rule->offset)) &&
           (!dash[1] || mover_parse_size(dash + 1, &rule->end)) && rule->offset < rule->end;
}

static bool parse_rights(const char *text, struct pms_rule *rule)
{
    rule->rights = (strchr(text, 'r') ? SW_PMEM_READ : 0) | (strchr(text, 'w') ? SW_PMEM_WRITE : 0);
    return !strcmp(text, "r") || !strcmp(text, "w") || !strcmp(text, "rw");
}

int pms_rules_add(struct pms_rules *rules, const char *text, char *error, size_t error_bytes)
{
    char copy[200];
    struct pms_rule rule = {.family = AF_UNSPEC};
    if (rules->count == PMS_RULES_MAX) {
        snprintf(error, error_bytes, "there are more than %d rules", PMS_RULES_MAX);
        return -EINVAL;
    }
    snprintf(copy, sizeof(copy), "%s", text);
    char *region = strchr(copy, '@');
    if (region)
        *region++ = 0;
    const bool is_named = !region || (*region && strlen(region) <= SW_PMEM_NAME_MAX);
    if (region && is_named)
        memcpy(rule.region, region, strlen(region));
    char *rights = strrchr(copy, ':'), *range = NULL;
    if (rights && is_named && strlen(text) < sizeof(copy)) {
        *rights++ = 0;
        range = strrchr(copy, ':');
    }
    if (range) {
        *range++ = 0;
        if (parse_client(copy, &rule) && parse_range(range, &rule) && parse_rights(rights, &rule)) {
            rules->rules[rules->count++] = rule;
            return 0;
        }
    }
    snprintf(error, error_bytes,
             "\"%.64s\" is no rule; write 192.0.2.1:0-64M:rw, [2001:db8::1]:*:r or *:1G-:w@REGION",
             text);
    return -EINVAL;
}

static bool is_for(const struct pms_rule *rule, const struct sockaddr *client)
{
    if (rule->family == AF_UNSPEC)
        return true;
    if (rule->family != client->sa_family)
        return false;
    if (rule->family == AF_INET)
        return !memcmp(rule->address, &((const struct sockaddr_in *)client)->sin_addr, 4);
    return !memcmp(rule->address, &((const struct sockaddr_in6 *)client)->sin6_addr, 16);
}

uint64_t pms_rules_of(const struct pms_rules *rules, const struct sockaddr *client)
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < rules->count; i++)
        if (is_for(&rules->rules[i], client))
            mask |= 1ull << i;
    return mask;
}

bool pms_rule_is_of(const struct pms_rule *rule, const char *region)
{
    return !*rule->region || !strcmp(rule->region, region);
}

uint32_t pms_rules_rights(const struct pms_rules *rules, uint64_t mask, const char *region)
{
    uint32_t rights = 0;
    for (uint32_t i = 0; i < rules->count; i++)
        if (mask >> i & 1 && pms_rule_is_of(&rules->rules[i], region))
            rights |= rules->rules[i].rights;
    return rights;
}

int pms_rules_fit(const struct pms_rules *rules, const char *region, uint64_t region_bytes,
                  char *error, size_t error_bytes)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct pms_rule *rule = &rules->rules[i];
        if (!pms_rule_is_of(rule, region))
            continue;
        if (rule->offset >= region_bytes || (rule->end != UINT64_MAX && rule->end > region_bytes)) {
            snprintf(error, error_bytes,
                     "the range of rule %u does not lie within the %" PRIu64
                     " bytes of \"%s\"; a rule for one region ends with @REGION",
                     i + 1, region_bytes, region);
            return -EINVAL;
        }
    }
    return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/server/rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool rule_take_client(char *text, struct snap_rule *rule)
{
    const size_t length = strlen(text);
    rule->is_for_all = !strcmp(text, "*");
    rule->client = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (rule->is_for_all || inet_pton(AF_INET, text, &rule->client.s6_addr[12]) == 1)
        return true;
    if (length < 2 || text[0] != '[' || text[length - 1] != ']')
        return false;
    text[length - 1] = 0;
    return inet_pton(AF_INET6, text + 1, &rule->client) == 1;
}

static bool take_volume(const char *text, struct snap_rule *rule)
{
    if (!snap_wire_name_is_fit(text))
        return false;
    snprintf(rule->volume, sizeof(rule->volume), "%s", text);
    return true;
}

static bool take_rights(const char *text, struct snap_rule *rule)
{
    rule->rights = !strcmp(text, "r")    ? SNAP_MAY_READ
                   : !strcmp(text, "rw") ? SNAP_MAY_READ | SNAP_MAY_WRITE
                                         : 0;
    return rule->rights;
}

int snap_rules_add(struct snap_rules *rules, const char *text, char *error, size_t error_bytes)
{
    char copy[200];
    struct snap_rule rule = {0};
    if (rules->count == SNAP_RULES_MAX) {
        snprintf(error, error_bytes, "there are more than %d rules", SNAP_RULES_MAX);
        return -EINVAL;
    }
    const bool is_whole = snprintf(copy, sizeof(copy), "%s", text) < (int)sizeof(copy);
    char *volume = strchr(copy, '@');
    if (volume)
        *volume++ = 0;
    char *rights = strrchr(copy, ':');
    if (rights)
        *rights++ = 0;
    if (is_whole && rights && take_rights(rights, &rule) && rule_take_client(copy, &rule) &&
        (!volume || take_volume(volume, &rule))) {
        rules->of[rules->count++] = rule;
        return 0;
    }
    snprintf(error, error_bytes,
             "\"%.64s\" is no rule; write 192.0.2.1:rw, [2001:db8::1]:r or *:rw@VOLUME", text);
    return -EINVAL;
}

uint32_t snap_rules_rights(const struct snap_rules *rules, const struct in6_addr *client,
                           const char *volume)
{
    uint32_t rights = rules->count ? 0 : SNAP_MAY_READ | SNAP_MAY_WRITE;
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct snap_rule *rule = &rules->of[i];
        const bool is_of_volume = !volume || !*rule->volume || !strcmp(rule->volume, volume);
        if (is_of_volume && (rule->is_for_all || IN6_ARE_ADDR_EQUAL(&rule->client, client)))
            rights |= rule->rights;
    }
    return rights;
}

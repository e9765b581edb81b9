/* SPDX-License-Identifier: BSD-2-Clause */
/* Rights as the device keeps them: one domain for each set of rules, one region for each range. */
#include <stdlib.h>

#include "common/base/minmax.h"
#include "pmem/server/server.h"
#include "sidewire/flush.h"

static uint64_t end_of(const struct pms_rule *rule, const struct pms_memory *memory)
{
    return mover_min_u64(rule->end, memory->bytes);
}

static struct ibv_mr *register_range(struct pms_grant *grant, const struct pms_memory *memory,
                                     const struct pms_rule *rule, uint8_t *flags)
{
    /* The most first: devices refuse what the memory, or they themselves, cannot keep. */
    static const struct {
        int access;
        uint8_t flags;
    } tries[] = {
        {IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT, PMF_VISIBLE | PMF_PERSISTENT},
        {IBV_ACCESS_FLUSH_GLOBAL, PMF_VISIBLE},
        {0, 0},
    };
    int access = rule->rights & SW_PMEM_READ ? IBV_ACCESS_REMOTE_READ : 0;
    if (rule->rights & SW_PMEM_WRITE)
        access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i++) {
        struct ibv_mr *mr =
            ibv_reg_mr(grant->pd, (char *)memory->base + rule->offset,
                       end_of(rule, memory) - rule->offset, access | tries[i].access);
        if (mr) {
            *flags &= tries[i].flags;
            return mr;
        }
    }
    return NULL;
}

static void free_share(struct pms_share *share)
{
    for (uint32_t i = 0; i < share->count; i++)
        ibv_dereg_mr(share->mrs[i]);
    *share = (struct pms_share){.is_made = false};
}

static void free_grant(const struct pms_server *server, struct pms_grant *grant)
{
    for (uint32_t i = 0; grant->shares && i < server->regions_count; i++)
        free_share(&grant->shares[i]);
    free(grant->shares);
    if (grant->pd)
        ibv_dealloc_pd(grant->pd);
}

static bool fill_share(const struct pms_server *server, struct pms_grant *grant,
                       const struct pms_region *region, struct pms_share *share)
{
    share->flags = PMF_VISIBLE | PMF_PERSISTENT;
    for (uint32_t i = 0; i < server->rules.count; i++) {
        const struct pms_rule *rule = &server->rules.rules[i];
        if (!(grant->mask >> i & 1) || !pms_rule_is_of(rule, region->name))
            continue;
        struct ibv_mr *mr = register_range(grant, &region->memory, rule, &share->flags);
        if (!mr)
            return false;
        share->mrs[share->count] = mr;
        share->ranges[share->count++] = (struct pmf_range){
            .offset = rule->offset,
            .bytes = end_of(rule, &region->memory) - rule->offset,
            .address = (uintptr_t)mr->addr,
            .key = mr->rkey,
            .rights = rule->rights,
        };
    }
    return true;
}

struct pms_share *pms_share_of(struct pms_server *server, struct pms_grant *grant, uint32_t region)
{
    struct pms_share *share = &grant->shares[region];
    if (share->is_made)
        return share;
    share->is_made = fill_share(server, grant, &server->regions[region], share);
    if (share->is_made)
        return share;
    free_share(share);
    return NULL;
}

struct pms_grant *pms_grant_of(struct pms_server *server, struct ibv_context *verbs, uint64_t mask)
{
    for (uint32_t i = 0; i < server->grants_count; i++)
        if (server->grants[i].verbs == verbs && server->grants[i].mask == mask)
            return &server->grants[i];
    if (server->grants_count == PMS_GRANTS_MAX)
        return NULL;
    struct pms_grant *grant = &server->grants[server->grants_count];
    *grant = (struct pms_grant){.verbs = verbs,
                                .mask = mask,
                                .pd = ibv_alloc_pd(verbs),
                                .shares = calloc(server->regions_count, sizeof(*grant->shares))};
    if (grant->pd && grant->shares) {
        server->grants_count++;
        return grant;
    }
    free_grant(server, grant);
    return NULL;
}

void pms_grants_free(struct pms_server *server)
{
    for (uint32_t i = 0; i < server->grants_count; i++)
        free_grant(server, &server->grants[i]);
    server->grants_count = 0;
}

/* SPDX-License-Identifier: BSD-2-Clause */
/* Rights as the device keeps them: one domain for each set of rules, one region for each range. */
#include "pmem/server/server.h"
#include "sidewire/flush.h"

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
        struct ibv_mr *mr = ibv_reg_mr(grant->pd, (char *)memory->base + rule->offset,
                                       rule->end - rule->offset, access | tries[i].access);
        if (mr) {
            *flags &= tries[i].flags;
            return mr;
        }
    }
    return NULL;
}

static void free_grant(struct pms_grant *grant)
{
    for (uint32_t i = 0; i < grant->count; i++)
        ibv_dereg_mr(grant->mrs[i]);
    if (grant->pd)
        ibv_dealloc_pd(grant->pd);
}

static bool fill_grant(struct pms_server *server, struct pms_grant *grant)
{
    grant->pd = ibv_alloc_pd(grant->verbs);
    grant->flags = PMF_VISIBLE | PMF_PERSISTENT;
    for (uint32_t i = 0; grant->pd && i < server->rules.count; i++) {
        const struct pms_rule *rule = &server->rules.rules[i];
        if (!(grant->mask >> i & 1))
            continue;
        struct ibv_mr *mr = register_range(grant, server->memory, rule, &grant->flags);
        if (!mr)
            return false;
        grant->mrs[grant->count] = mr;
        grant->ranges[grant->count++] = (struct pmf_range){
            .offset = rule->offset,
            .bytes = rule->end - rule->offset,
            .address = (uintptr_t)mr->addr,
            .key = mr->rkey,
            .rights = rule->rights,
        };
    }
    return grant->pd;
}

struct pms_grant *pms_grant_of(struct pms_server *server, struct ibv_context *verbs, uint64_t mask)
{
    for (uint32_t i = 0; i < server->grants_count; i++)
        if (server->grants[i].verbs == verbs && server->grants[i].mask == mask)
            return &server->grants[i];
    if (server->grants_count == PMS_GRANTS_MAX)
        return NULL;
    struct pms_grant *grant = &server->grants[server->grants_count];
    *grant = (struct pms_grant){.verbs = verbs, .mask = mask};
    if (fill_grant(server, grant)) {
        server->grants_count++;
        return grant;
    }
    free_grant(grant);
    return NULL;
}

void pms_grants_free(struct pms_server *server)
{
    for (uint32_t i = 0; i < server->grants_count; i++)
        free_grant(&server->grants[i]);
    server->grants_count = 0;
}

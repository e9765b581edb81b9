/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/config.h"

#include <string.h>

struct differ {
    const struct nvt_config *old, *new;
    int (*change)(void *context, const struct nvt_config_change *change);
    void *context;
};

static int tell_change(const struct differ *d, enum nvt_change_of of, enum nvt_change_what what,
                       struct nvt_config_change change)
{
    change.of = of;
    change.what = what;
    return d->change(d->context, &change);
}

static bool same_nqns(const struct nvt_nqn *a, size_t a_count, const struct nvt_nqn *b,
                      size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++)
        if (strcmp(a[i].text, b[i].text) != 0)
            return false;
    return true;
}

static unsigned compare_hosts(const struct nvt_config_host *a, const struct nvt_config_host *b)
{
    const bool same = strcmp(a->dhchap_key, b->dhchap_key) == 0 &&
                      strcmp(a->dhchap_ctrl_key, b->dhchap_ctrl_key) == 0 &&
                      a->dhchap_hash == b->dhchap_hash && a->dhchap_dhgroup == b->dhchap_dhgroup;
    return same ? 0 : NVT_KEYS_DIFFER;
}

static unsigned compare_subsystems(const struct nvt_config_subsystem *a,
                                   const struct nvt_config_subsystem *b)
{
    unsigned aspects = 0;
    if (strcmp(a->serial, b->serial) != 0 || strcmp(a->model, b->model) != 0 ||
        strcmp(a->firmware, b->firmware) != 0 || a->cntlid_min != b->cntlid_min ||
        a->cntlid_max != b->cntlid_max || a->qid_max != b->qid_max)
        aspects |= NVT_IDENTITY_DIFFERS;
    if (a->allow_any_host != b->allow_any_host ||
        !same_nqns(a->hosts, a->host_count, b->hosts, b->host_count))
        aspects |= NVT_ACCESS_DIFFERS;
    return aspects;
}

static unsigned compare_namespaces(const struct nvt_config_namespace *a,
                                   const struct nvt_config_namespace *b)
{
    unsigned aspects = 0;
    if (a->is_failed || strcmp(a->backend, b->backend) != 0)
        aspects |= NVT_BACKEND_DIFFERS;
    if (memcmp(a->uuid, b->uuid, sizeof(a->uuid)) != 0 ||
        memcmp(a->nguid, b->nguid, sizeof(a->nguid)) != 0)
        aspects |= NVT_IDENTITY_DIFFERS;
    if (a->enable != b->enable)
        aspects |= NVT_ENABLE_DIFFERS;
    if (a->ana_grpid != b->ana_grpid)
        aspects |= NVT_ANA_DIFFERS;
    return aspects;
}

static bool same_referrals(const struct nvt_config_port *a, const struct nvt_config_port *b)
{
    if (a->referral_count != b->referral_count)
        return false;
    for (size_t i = 0; i < a->referral_count; i++) {
        const struct nvt_referral *x = &a->referrals[i], *y = &b->referrals[i];
        if (strcmp(x->name, y->name) != 0 || strcmp(x->traddr, y->traddr) != 0 ||
            strcmp(x->trsvcid, y->trsvcid) != 0 ||
            strcmp(x->subsysnqn.text, y->subsysnqn.text) != 0 || x->trtype != y->trtype ||
            x->adrfam != y->adrfam || x->enable != y->enable || x->portid != y->portid)
            return false;
    }
    return true;
}

static bool same_groups(const struct nvt_config_port *a, const struct nvt_config_port *b)
{
    for (uint32_t grpid = 1; grpid <= NVT_ANA_GROUPS_MAX; grpid++)
        if (nvt_config_ana_state(a, grpid) != nvt_config_ana_state(b, grpid))
            return false;
    return true;
}

static unsigned compare_ports(const struct nvt_config_port *a, const struct nvt_config_port *b)
{
    unsigned aspects = 0;
    if (a->is_failed || strcmp(a->listen.traddr, b->listen.traddr) != 0 ||
        a->listen.port != b->listen.port || a->in_capsule_bytes != b->in_capsule_bytes ||
        a->treq != b->treq)
        aspects |= NVT_LISTEN_DIFFERS;
    if (!same_nqns(a->subsystems, a->subsystem_count, b->subsystems, b->subsystem_count))
        aspects |= NVT_SUBSYSTEMS_DIFFER;
    if (!same_referrals(a, b))
        aspects |= NVT_REFERRALS_DIFFER;
    if (!same_groups(a, b))
        aspects |= NVT_ANA_DIFFERS;
    return aspects;
}

static int remove_ports(const struct differ *d)
{
    int status = 0;
    for (size_t i = 0; i < d->old->port_count && !status; i++) {
        const struct nvt_config_port *old = &d->old->ports[i];
        if (!nvt_config_find_port(d->new, old->portid))
            status = tell_change(d, NVT_OF_PORT, NVT_REMOVED,
                                 (struct nvt_config_change){.old_port = old});
    }
    return status;
}

/* Removes namespaces that go, of a subsystem that stays (`new`) or goes too. */
static int remove_namespaces(const struct differ *d, const struct nvt_config_subsystem *old,
                             const struct nvt_config_subsystem *new)
{
    int status = 0;
    for (size_t i = 0; i < old->namespace_count && !status; i++) {
        const struct nvt_config_namespace *ns = &old->namespaces[i];
        if (!new || !nvt_config_find_namespace(new, ns->nsid))
            status =
                tell_change(d, NVT_OF_NAMESPACE, NVT_REMOVED,
                            (struct nvt_config_change){
                                .old_subsystem = old, .new_subsystem = new, .old_namespace = ns});
    }
    return status;
}

static int remove_subsystems(const struct differ *d)
{
    int status = 0;
    for (size_t i = 0; i < d->old->subsystem_count && !status; i++) {
        const struct nvt_config_subsystem *old = &d->old->subsystems[i];
        const struct nvt_config_subsystem *new = nvt_config_find_subsystem(d->new, old->nqn.text);
        status = remove_namespaces(d, old, new);
        if (!status && !new)
            status = tell_change(d, NVT_OF_SUBSYSTEM, NVT_REMOVED,
                                 (struct nvt_config_change){.old_subsystem = old});
    }
    return status;
}

static int add_hosts(const struct differ *d)
{
    int status = 0;
    for (size_t i = 0; i < d->new->host_count && !status; i++) {
        struct nvt_config_change change = {.new_host = &d->new->hosts[i]};
        change.old_host = nvt_config_find_host(d->old, change.new_host->nqn.text);
        if (change.old_host)
            change.aspects = compare_hosts(change.old_host, change.new_host);
        if (!change.old_host || change.aspects)
            status = tell_change(d, NVT_OF_HOST, change.old_host ? NVT_CHANGED : NVT_ADDED, change);
    }
    return status;
}

static int remove_hosts(const struct differ *d)
{
    int status = 0;
    for (size_t i = 0; i < d->old->host_count && !status; i++) {
        const struct nvt_config_host *old = &d->old->hosts[i];
        if (!nvt_config_find_host(d->new, old->nqn.text))
            status = tell_change(d, NVT_OF_HOST, NVT_REMOVED,
                                 (struct nvt_config_change){.old_host = old});
    }
    return status;
}

static int add_namespaces(const struct differ *d, const struct nvt_config_subsystem *old,
                          const struct nvt_config_subsystem *new)
{
    int status = 0;
    for (size_t i = 0; i < new->namespace_count && !status; i++) {
        struct nvt_config_change change = {
            .old_subsystem = old, .new_subsystem = new, .new_namespace = &new->namespaces[i]};
        if (old)
            change.old_namespace = nvt_config_find_namespace(old, change.new_namespace->nsid);
        if (change.old_namespace)
            change.aspects = compare_namespaces(change.old_namespace, change.new_namespace);
        if (!change.old_namespace || change.aspects)
            status = tell_change(d, NVT_OF_NAMESPACE,
                                 change.old_namespace ? NVT_CHANGED : NVT_ADDED, change);
    }
    return status;
}

static int add_subsystems(const struct differ *d)
{
    int status = 0;
    for (size_t i = 0; i < d->new->subsystem_count && !status; i++) {
        struct nvt_config_change change = {.new_subsystem = &d->new->subsystems[i]};
        change.old_subsystem = nvt_config_find_subsystem(d->old, change.new_subsystem->nqn.text);
        if (change.old_subsystem)
            change.aspects = compare_subsystems(change.old_subsystem, change.new_subsystem);
        if (!change.old_subsystem || change.aspects)
            status = tell_change(d, NVT_OF_SUBSYSTEM,
                                 change.old_subsystem ? NVT_CHANGED : NVT_ADDED, change);
        if (!status)
            status = add_namespaces(d, change.old_subsystem, change.new_subsystem);
    }
    return status;
}

static int add_ports(const struct differ *d)
{
    int status = 0;
    for (size_t i = 0; i < d->new->port_count && !status; i++) {
        struct nvt_config_change change = {.new_port = &d->new->ports[i]};
        change.old_port = nvt_config_find_port(d->old, change.new_port->portid);
        if (change.old_port)
            change.aspects = compare_ports(change.old_port, change.new_port);
        if (!change.old_port || change.aspects)
            status = tell_change(d, NVT_OF_PORT, change.old_port ? NVT_CHANGED : NVT_ADDED, change);
    }
    return status;
}

int nvt_config_diff(const struct nvt_config *old, const struct nvt_config *new,
                    int (*change)(void *context, const struct nvt_config_change *change),
                    void *context)
{
    static int (*const steps[])(const struct differ *d) = {
        remove_ports, remove_subsystems, add_hosts, add_subsystems, add_ports, remove_hosts};
    const struct differ d = {old, new, change, context};
    int status = 0;
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !status; i++)
        status = steps[i](&d);
    return status;
}

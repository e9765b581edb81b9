/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/config/config.h"
#include "nvme/target/config/identity.h"
#include "nvme/wire/dhchap_crypto.h"

static int refuse_edit(const struct nvt_config_editor *editor, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse_edit(const struct nvt_config_editor *editor, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(editor->error, editor->error_bytes, format, args);
    va_end(args);
    return status;
}

static int config_edit_no_memory(const struct nvt_config_editor *editor)
{
    return refuse_edit(editor, -ENOMEM, "no memory for it");
}

/* ---- lists ---- */

/* Makes room for one more, which is all zeroes. NULL: no memory. */
static void *extend_list(void *list, size_t *count, size_t element_bytes)
{
    void **elements = list;
    void *longer = realloc(*elements, (*count + 1) * element_bytes);
    if (!longer)
        return NULL;
    *elements = longer;
    return memset((char *)longer + (*count)++ * element_bytes, 0, element_bytes);
}

static void drop_element(void *elements, size_t *count, size_t element_bytes, size_t index)
{
    char *at = (char *)elements + index * element_bytes;
    memmove(at, at + element_bytes, (--*count - index) * element_bytes);
}

static bool append_nqn(struct nvt_nqn **nqns, size_t *count, const char *nqn)
{
    struct nvt_nqn *added = extend_list(nqns, count, sizeof(*added));
    if (added)
        snprintf(added->text, sizeof(added->text), "%s", nqn);
    return added;
}

/* True: it was there. */
static bool drop_nqn(struct nvt_nqn *nqns, size_t *count, const char *nqn)
{
    for (size_t i = 0; i < *count; i++)
        if (!strcmp(nqns[i].text, nqn)) {
            drop_element(nqns, count, sizeof(*nqns), i);
            return true;
        }
    return false;
}

static bool config_edit_is_nqn(const char *text)
{
    return *text && strlen(text) <= NVF_NQN_MAX && nvf_is_shown(text, strlen(text)) &&
           strcmp(text, NVF_DISCOVERY_NQN) != 0;
}

/* ---- copying ---- */

/* Replaces a pointer to [count] elements by one to a copy of them. */
static bool copy_list(void *list, size_t count, size_t element_bytes)
{
    void **elements = list;
    void *copy = count ? malloc(count * element_bytes) : NULL;
    if (copy)
        memcpy(copy, *elements, count * element_bytes);
    *elements = copy;
    return copy || !count;
}

static bool copy_port(struct nvt_config_port *port)
{
    bool is_whole = copy_list(&port->referrals, port->referral_count, sizeof(*port->referrals));
    is_whole &= copy_list(&port->ana_groups, port->ana_group_count, sizeof(*port->ana_groups));
    return is_whole & copy_list(&port->subsystems, port->subsystem_count, sizeof(struct nvt_nqn));
}

static bool copy_subsystem(struct nvt_config_subsystem *subsystem)
{
    bool is_whole = copy_list(&subsystem->hosts, subsystem->host_count, sizeof(struct nvt_nqn));
    if (!copy_list(&subsystem->namespaces, subsystem->namespace_count,
                   sizeof(*subsystem->namespaces))) {
        subsystem->namespace_count = 0;
        return false;
    }
    for (size_t i = 0; i < subsystem->namespace_count; i++) {
        struct nvt_config_namespace *ns = &subsystem->namespaces[i];
        ns->backend = strdup(ns->backend);
        is_whole &= ns->backend != NULL;
    }
    return is_whole;
}

struct nvt_config *nvt_config_copy(const struct nvt_config *config)
{
    struct nvt_config *copy = malloc(sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *config;
    bool is_whole = copy_list(&copy->hosts, copy->host_count, sizeof(*copy->hosts));
    copy->port_count =
        copy_list(&copy->ports, config->port_count, sizeof(*copy->ports)) ? config->port_count : 0;
    copy->subsystem_count =
        copy_list(&copy->subsystems, config->subsystem_count, sizeof(*copy->subsystems))
            ? config->subsystem_count
            : 0;
    is_whole &= copy->port_count == config->port_count;
    is_whole &= copy->subsystem_count == config->subsystem_count;
    /* All of them, whatever happens: what they point to is the copy's own from here on. */
    for (size_t i = 0; i < copy->port_count; i++)
        is_whole &= copy_port(&copy->ports[i]);
    for (size_t i = 0; i < copy->subsystem_count; i++)
        is_whole &= copy_subsystem(&copy->subsystems[i]);
    if (is_whole)
        return copy;
    nvt_config_free(copy);
    return NULL;
}

/* ---- subsystems ---- */

static int find_subsystem(const struct nvt_config_editor *editor, const char *nqn,
                          struct nvt_config_subsystem **out)
{
    *out = nvt_config_find_subsystem(editor->config, nqn);
    return *out ? 0 : refuse_edit(editor, -ENOENT, "there is no subsystem %.223s", nqn);
}

int nvt_config_add_subsystem(const struct nvt_config_editor *editor, const char *nqn)
{
    struct nvt_config *config = editor->config;
    if (!config_edit_is_nqn(nqn))
        return refuse_edit(editor, -EINVAL,
                           "'%.64s' is no name for a subsystem: 1 to %d characters", nqn,
                           NVF_NQN_MAX);
    if (nvt_config_find_subsystem(config, nqn))
        return refuse_edit(editor, -EEXIST, "subsystem %.223s is there", nqn);
    if (config->subsystem_count == NVT_SUBSYSTEMS_MAX)
        return refuse_edit(editor, -ENOSPC, "%d subsystems are the most", NVT_SUBSYSTEMS_MAX);
    struct nvt_config_subsystem *added =
        extend_list(&config->subsystems, &config->subsystem_count, sizeof(*added));
    if (!added)
        return config_edit_no_memory(editor);
    snprintf(added->nqn.text, sizeof(added->nqn.text), "%s", nqn);
    strcpy(added->model, "Sidewire");
    nvt_default_serial(editor->machine_id, nqn, added->serial);
    added->allow_any_host = true;
    added->cntlid_min = 1;
    added->cntlid_max = NVT_CNTLID_MAX;
    for (size_t i = 0; i < config->port_count; i++) {
        struct nvt_config_port *port = &config->ports[i];
        if (!append_nqn(&port->subsystems, &port->subsystem_count, nqn))
            return config_edit_no_memory(editor);
    }
    return 0;
}

int nvt_config_remove_subsystem(const struct nvt_config_editor *editor, const char *nqn)
{
    struct nvt_config *config = editor->config;
    struct nvt_config_subsystem *found;
    const int status = find_subsystem(editor, nqn, &found);
    if (status)
        return status;
    for (size_t i = 0; i < config->port_count; i++)
        drop_nqn(config->ports[i].subsystems, &config->ports[i].subsystem_count, nqn);
    for (size_t i = 0; i < found->namespace_count; i++)
        free(found->namespaces[i].backend);
    free(found->namespaces);
    free(found->hosts);
    drop_element(config->subsystems, &config->subsystem_count, sizeof(*found),
                 (size_t)(found - config->subsystems));
    return 0;
}

/* ---- namespaces ---- */

static uint32_t free_nsid(const struct nvt_config_subsystem *subsystem)
{
    uint32_t nsid = 1;
    while (nvt_config_find_namespace(subsystem, nsid))
        nsid++;
    return nsid;
}

/* In order of nsid. NULL: no memory. */
static struct nvt_config_namespace *insert_namespace(struct nvt_config_subsystem *subsystem,
                                                     uint32_t nsid)
{
    if (!extend_list(&subsystem->namespaces, &subsystem->namespace_count,
                     sizeof(*subsystem->namespaces)))
        return NULL;
    size_t at = subsystem->namespace_count - 1;
    for (; at && subsystem->namespaces[at - 1].nsid > nsid; at--)
        subsystem->namespaces[at] = subsystem->namespaces[at - 1];
    subsystem->namespaces[at] = (struct nvt_config_namespace){.nsid = nsid};
    return &subsystem->namespaces[at];
}

int nvt_config_add_namespace(const struct nvt_config_editor *editor, const char *nqn,
                             const char *backend, uint32_t *nsid)
{
    static struct nvt_backend_spec spec; /* has a path in it */
    struct nvt_config_subsystem *subsystem;
    int status = find_subsystem(editor, nqn, &subsystem);
    if (!status)
        status = nvt_backend_spec_parse(backend, &spec, editor->error, editor->error_bytes);
    if (status)
        return status;
    *nsid = spec.nsid ? spec.nsid : free_nsid(subsystem);
    if (nvt_config_find_namespace(subsystem, *nsid))
        return refuse_edit(editor, -EEXIST, "namespace %u is there; leave nsid= away", *nsid);
    if (*nsid > NVT_NAMESPACES_MAX)
        return refuse_edit(editor, -ENOSPC, "%d is the highest number of a namespace",
                           NVT_NAMESPACES_MAX);
    char *text = strdup(backend);
    struct nvt_config_namespace *ns = text ? insert_namespace(subsystem, *nsid) : NULL;
    if (!ns) {
        free(text);
        return config_edit_no_memory(editor);
    }
    ns->backend = text;
    ns->ana_grpid = 1;
    ns->enable = true;
    nvt_config_describe(ns, &spec);
    nvt_config_identify(ns, &spec, nqn, editor->machine_id);
    const struct nvt_config_namespace *twin = nvt_config_twin(subsystem, ns);
    if (twin)
        return refuse_edit(editor, -EEXIST, "namespace %u has the same uuid; give another",
                           twin->nsid);
    return 0;
}

int nvt_config_remove_namespace(const struct nvt_config_editor *editor, const char *nqn,
                                uint32_t nsid)
{
    struct nvt_config_subsystem *subsystem;
    const int status = find_subsystem(editor, nqn, &subsystem);
    if (status)
        return status;
    struct nvt_config_namespace *ns = nvt_config_find_namespace(subsystem, nsid);
    if (!ns)
        return refuse_edit(editor, -ENOENT, "there is no namespace %u in %.223s", nsid, nqn);
    free(ns->backend);
    drop_element(subsystem->namespaces, &subsystem->namespace_count, sizeof(*ns),
                 (size_t)(ns - subsystem->namespaces));
    return 0;
}

/* ---- hosts ---- */

int nvt_config_add_host(const struct nvt_config_editor *editor, const char *nqn,
                        const char *host_nqn)
{
    struct nvt_config_subsystem *subsystem;
    const int status = find_subsystem(editor, nqn, &subsystem);
    if (status)
        return status;
    if (!config_edit_is_nqn(host_nqn))
        return refuse_edit(editor, -EINVAL, "'%.64s' is no name of a host: 1 to %d characters",
                           host_nqn, NVF_NQN_MAX);
    const bool is_there = !subsystem->allow_any_host && nvt_config_allows(subsystem, host_nqn);
    if (is_there)
        return refuse_edit(editor, -EEXIST, "host %.223s is allowed", host_nqn);
    if (subsystem->host_count == NVT_HOSTS_MAX)
        return refuse_edit(editor, -ENOSPC, "%d hosts are the most", NVT_HOSTS_MAX);
    if (!append_nqn(&subsystem->hosts, &subsystem->host_count, host_nqn))
        return config_edit_no_memory(editor);
    subsystem->allow_any_host = false;
    return 0;
}

int nvt_config_remove_host(const struct nvt_config_editor *editor, const char *nqn,
                           const char *host_nqn)
{
    struct nvt_config_subsystem *subsystem;
    const int status = find_subsystem(editor, nqn, &subsystem);
    if (status)
        return status;
    if (!drop_nqn(subsystem->hosts, &subsystem->host_count, host_nqn))
        return refuse_edit(editor, -ENOENT, "host %.223s is not in the list of %.223s", host_nqn,
                           nqn);
    return 0;
}

/* What a host has to know, or (of_controller) what it may ask the target to know: "DHHC-1:..." */
static int set_host_secret(const struct nvt_config_editor *editor, const char *host_nqn,
                           const char *secret, bool of_controller)
{
    struct nvt_config *config = editor->config;
    struct nvt_config_host *host = nvt_config_find_host(config, host_nqn);
    struct nvf_secret parsed;
    const char *wrong =
        strlen(secret) < NVT_KEY_MAX ? nvf_secret_parse(secret, &parsed) : "it is too long";
    explicit_bzero(&parsed, sizeof(parsed));
    if (wrong)
        return refuse_edit(editor, -EINVAL, "the secret of %.223s: %s", host_nqn, wrong);
    if (!config_edit_is_nqn(host_nqn))
        return refuse_edit(editor, -EINVAL, "'%.64s' is no name of a host", host_nqn);
    if (!host && of_controller)
        return refuse_edit(editor, -EINVAL, "host %.223s has no secret of its own", host_nqn);
    if (!host) {
        host = extend_list(&config->hosts, &config->host_count, sizeof(*host));
        if (!host)
            return config_edit_no_memory(editor);
        snprintf(host->nqn.text, sizeof(host->nqn.text), "%s", host_nqn);
    }
    strcpy(of_controller ? host->dhchap_ctrl_key : host->dhchap_key, secret);
    return 0;
}

int nvt_config_admit(const struct nvt_config_editor *editor, const char *nqn, const char *host_nqn,
                     const char *secret, bool of_controller)
{
    const struct nvt_config_subsystem *subsystem = nvt_config_find_subsystem(editor->config, nqn);
    if (!subsystem)
        return refuse_edit(editor, -ENOENT, "there is no subsystem %.223s", nqn);
    const bool is_listed = !subsystem->allow_any_host && nvt_config_allows(subsystem, host_nqn);
    const int rc = set_host_secret(editor, host_nqn, secret, of_controller);
    return rc || is_listed ? rc : nvt_config_add_host(editor, nqn, host_nqn);
}

/* ---- ports ---- */

static struct nvt_config_port *find_port_at(const struct nvt_config *config,
                                            const struct nvt_listen *at)
{
    for (size_t i = 0; i < config->port_count; i++)
        if (config->ports[i].listen.port == at->port &&
            !strcmp(config->ports[i].listen.traddr, at->traddr))
            return &config->ports[i];
    return NULL;
}

static uint16_t free_portid(const struct nvt_config *config)
{
    uint16_t portid = 1;
    while (nvt_config_find_port(config, portid))
        portid++;
    return portid;
}

int nvt_config_add_port(const struct nvt_config_editor *editor, const char *listen,
                        uint32_t in_capsule_bytes)
{
    struct nvt_config *config = editor->config;
    struct nvt_listen at;
    const int status = nvt_listen_parse(listen, &at, editor->error, editor->error_bytes);
    if (status)
        return status;
    if (find_port_at(config, &at))
        return refuse_edit(editor, -EEXIST, "it listens at %s port %u", at.traddr, at.port);
    if (config->port_count == NVT_PORTS_MAX)
        return refuse_edit(editor, -ENOSPC, "%d ports are the most", NVT_PORTS_MAX);
    const uint16_t portid = free_portid(config);
    struct nvt_config_port *port = extend_list(&config->ports, &config->port_count, sizeof(*port));
    if (!port)
        return config_edit_no_memory(editor);
    port->portid = portid;
    port->listen = at;
    port->in_capsule_bytes = in_capsule_bytes;
    for (size_t i = 0; i < config->subsystem_count; i++)
        if (!append_nqn(&port->subsystems, &port->subsystem_count, config->subsystems[i].nqn.text))
            return config_edit_no_memory(editor);
    return 0;
}

int nvt_config_remove_port(const struct nvt_config_editor *editor, const char *listen)
{
    struct nvt_config *config = editor->config;
    struct nvt_listen at;
    const int status = nvt_listen_parse(listen, &at, editor->error, editor->error_bytes);
    if (status)
        return status;
    struct nvt_config_port *port = find_port_at(config, &at);
    if (!port)
        return refuse_edit(editor, -ENOENT, "it does not listen at %s port %u", at.traddr, at.port);
    free(port->referrals);
    free(port->ana_groups);
    free(port->subsystems);
    drop_element(config->ports, &config->port_count, sizeof(*port), (size_t)(port - config->ports));
    return 0;
}

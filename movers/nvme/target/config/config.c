/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/config.h"
#include "nvme/target/config/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void nvt_config_free(struct nvt_config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->port_count; i++) {
        free(config->ports[i].referrals);
        free(config->ports[i].ana_groups);
        free(config->ports[i].subsystems);
    }
    for (size_t i = 0; i < config->subsystem_count; i++) {
        struct nvt_config_subsystem *subsystem = &config->subsystems[i];
        for (size_t j = 0; j < subsystem->namespace_count; j++)
            free(subsystem->namespaces[j].backend);
        free(subsystem->namespaces);
        free(subsystem->hosts);
    }
    if (config->hosts)
        explicit_bzero(config->hosts, config->host_count * sizeof(*config->hosts));
    free(config->ports);
    free(config->subsystems);
    free(config->hosts);
    free(config);
}

/* A regular file has a size; of a pipe as much is taken as comes. */
static int read_whole(int fd, char *text, size_t *len)
{
    *len = 0;
    while (*len <= NVT_CONFIG_FILE_MAX) {
        const ssize_t got = read(fd, text + *len, NVT_CONFIG_FILE_MAX + 1 - *len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return 0;
        *len += (size_t)got;
    }
    return -EFBIG;
}

int nvt_config_read(const struct nvt_config_source *source, struct nvt_config **out, char *error,
                    size_t error_bytes)
{
    size_t len = 0;
    char *text = malloc(NVT_CONFIG_FILE_MAX + 1);
    if (!text)
        return -ENOMEM;
    const int fd = open(source->name, O_RDONLY | O_CLOEXEC);
    int status = fd < 0 ? -errno : read_whole(fd, text, &len);
    if (fd >= 0)
        close(fd);
    if (status)
        snprintf(error, error_bytes, "%s: %s; give a file that `nvmetcli save` wrote", source->name,
                 strerror(-status));
    else
        status = nvt_config_parse(text, len, source, out, error, error_bytes);
    explicit_bzero(text, len);
    free(text);
    return status;
}

struct nvt_config_port *nvt_config_find_port(const struct nvt_config *config, uint16_t portid)
{
    for (size_t i = 0; i < config->port_count; i++)
        if (config->ports[i].portid == portid)
            return &config->ports[i];
    return NULL;
}

struct nvt_config_subsystem *nvt_config_find_subsystem(const struct nvt_config *config,
                                                       const char *nqn)
{
    for (size_t i = 0; i < config->subsystem_count; i++)
        if (strcmp(config->subsystems[i].nqn.text, nqn) == 0)
            return &config->subsystems[i];
    return NULL;
}

struct nvt_config_host *nvt_config_find_host(const struct nvt_config *config, const char *nqn)
{
    for (size_t i = 0; i < config->host_count; i++)
        if (strcmp(config->hosts[i].nqn.text, nqn) == 0)
            return &config->hosts[i];
    return NULL;
}

struct nvt_config_namespace *nvt_config_find_namespace(const struct nvt_config_subsystem *subsystem,
                                                       uint32_t nsid)
{
    for (size_t i = 0; i < subsystem->namespace_count; i++)
        if (subsystem->namespaces[i].nsid == nsid)
            return &subsystem->namespaces[i];
    return NULL;
}

static bool has_nqn(const struct nvt_nqn *nqns, size_t count, const char *nqn)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(nqns[i].text, nqn) == 0)
            return true;
    return false;
}

bool nvt_config_allows(const struct nvt_config_subsystem *subsystem, const char *host_nqn)
{
    return subsystem->allow_any_host || has_nqn(subsystem->hosts, subsystem->host_count, host_nqn);
}

enum nvme_ana_state nvt_config_ana_state(const struct nvt_config_port *port, uint32_t grpid)
{
    for (size_t i = 0; i < port->ana_group_count; i++)
        if (port->ana_groups[i].grpid == grpid)
            return (enum nvme_ana_state)port->ana_groups[i].state;
    return NVME_ANA_STATE_OPTIMIZED;
}

void nvt_config_describe(struct nvt_config_namespace *ns, const struct nvt_backend_spec *spec)
{
    memcpy(ns->uuid, spec->uuid, sizeof(ns->uuid));
    memcpy(ns->nguid, spec->nguid, sizeof(ns->nguid));
    ns->has_nguid = spec->has_nguid;
    ns->block_bytes = spec->block_bytes;
    ns->read_only = spec->read_only;
}

void nvt_config_identify(struct nvt_config_namespace *ns, const struct nvt_backend_spec *spec,
                         const char *nqn, const char *machine_id)
{
    static const uint8_t none[NVT_UUID_BYTES];
    if (memcmp(ns->uuid, none, sizeof(none)) == 0)
        nvt_default_uuid(machine_id, nqn, ns->nsid, spec, ns->uuid);
}

const struct nvt_config_namespace *nvt_config_twin(const struct nvt_config_subsystem *subsystem,
                                                   const struct nvt_config_namespace *ns)
{
    for (size_t i = 0; i < subsystem->namespace_count; i++) {
        const struct nvt_config_namespace *other = &subsystem->namespaces[i];
        if (other != ns && memcmp(other->uuid, ns->uuid, sizeof(ns->uuid)) == 0)
            return other;
    }
    return NULL;
}

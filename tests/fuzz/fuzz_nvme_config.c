/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What people write for the NVMe target. The first byte chooses: JSON, whose configuration is gone
 * through and compared with itself and with nothing; a backend; or an address. A refusal says why.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/config/config.h"

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static int count_change(void *context, const struct nvt_config_change *change)
{
    demand(change->what != NVT_CHANGED || change->aspects);
    (*(size_t *)context)++;
    return 0;
}

static void check_config(struct nvt_config *config)
{
    static const struct nvt_config nothing;
    size_t all = config->port_count + config->subsystem_count + config->host_count, told = 0;
    demand(config->port_count <= NVT_PORTS_MAX && config->host_count <= NVT_HOSTS_MAX &&
           config->subsystem_count <= NVT_SUBSYSTEMS_MAX);
    for (size_t i = 0; i < config->subsystem_count; i++) {
        const struct nvt_config_subsystem *subsystem = &config->subsystems[i];
        demand(subsystem->namespace_count <= NVT_NAMESPACES_MAX && *subsystem->serial);
        demand(subsystem->cntlid_min && subsystem->cntlid_min <= subsystem->cntlid_max);
        all += subsystem->namespace_count;
        for (size_t j = 0; j < subsystem->namespace_count; j++)
            demand(subsystem->namespaces[j].nsid && subsystem->namespaces[j].backend);
    }
    for (size_t i = 0; i < config->port_count; i++)
        demand(config->ports[i].listen.port && config->ports[i].listen.adrfam);
    demand(nvt_config_diff(config, config, count_change, &told) == 0 && told == 0);
    demand(nvt_config_diff(&nothing, config, count_change, &told) == 0 && told == all);
    demand(nvt_config_diff(config, &nothing, count_change, &told) == 0 && told == 2 * all);
}

static void pass_over(void *context, const char *text)
{
    (void)context;
    demand(*text);
}

static void try_config(const char *text, size_t len)
{
    static const struct nvt_config_source source = {
        .name = "fuzz", .machine_id = "00", .warn = pass_over};
    struct nvt_config *config = NULL;
    char error[512] = "";
    const int status = nvt_config_parse(text, len, &source, &config, error, sizeof(error));
    demand((status == 0) == (config != NULL) && (status == 0) == (*error == '\0'));
    if (config)
        check_config(config);
    nvt_config_free(config);
}

static void try_spec(const char *text)
{
    static struct nvt_backend_spec spec;
    char error[512] = "";
    const int status = nvt_backend_spec_split(text, &spec, error, sizeof(error));
    demand((status == 0) == (*error == '\0'));
    if (status)
        return;
    demand(!spec.path[0] == (spec.size_bytes != 0));
    demand(spec.error_ppm <= NVT_PPM && spec.short_ppm <= NVT_PPM);
    demand(strlen(spec.path) < sizeof(spec.path));
}

static void try_listen(const char *text)
{
    struct nvt_listen listen, again;
    char error[512] = "", written[NVT_ADDR_MAX + 16];
    if (nvt_listen_parse(text, &listen, error, sizeof(error))) {
        demand(*error);
        return;
    }
    snprintf(written, sizeof(written), listen.adrfam == NVMF_ADDR_FAMILY_IP6 ? "[%s]:%u" : "%s:%u",
             listen.traddr, listen.port);
    demand(nvt_listen_parse(written, &again, error, sizeof(error)) == 0);
    demand(strcmp(again.traddr, listen.traddr) == 0 && again.port == listen.port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    char *text = strndup((const char *)data + 1, size - 1);
    if (!text)
        return 0;
    if (data[0] == 'B')
        try_spec(text);
    else if (data[0] == 'L')
        try_listen(text);
    else
        try_config((const char *)data + 1, size - 1);
    free(text);
    return 0;
}

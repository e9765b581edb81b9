/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/identity.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/rdma/resolve.h"
#include "nvme/host/controller.h"

#define UUID_NQN "nqn.2014-08.org.nvmexpress:uuid:"

/* 32 digits, dashes wherever they are. */
static bool parse_uuid(const char *text, uint8_t out[16])
{
    unsigned digits = 0;
    uint8_t bytes[16] = {0};
    for (; *text && *text != '\n'; text++) {
        if (*text == '-')
            continue;
        if (!isxdigit((unsigned char)*text) || digits == 32)
            return false;
        const unsigned digit =
            (unsigned)(isdigit((unsigned char)*text) ? *text - '0' : (*text | 0x20) - 'a' + 10);
        bytes[digits / 2] = (uint8_t)(bytes[digits / 2] << 4 | digit);
        digits++;
    }
    if (digits != 32)
        return false;
    memcpy(out, bytes, 16);
    return true;
}

static bool identity_read_line(const char *path, char *line, size_t bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const bool found = fgets(line, (int)bytes, file);
    fclose(file);
    if (found)
        line[strcspn(line, "\r\n")] = '\0';
    return found && *line;
}

static bool identity_own_name(char *out, const char *name)
{
    if (!*name || strlen(name) > NVF_NQN_MAX)
        return false;
    strcpy(out, name);
    return true;
}

/* The same host keeps its name: of the machine's ID, else one for this process. */
static void make_hostnqn(struct sw_nvme_controller *c)
{
    char line[256];
    uint8_t id[16];
    if (identity_read_line("/etc/nvme/hostnqn", line, sizeof(line)) &&
        identity_own_name(c->hostnqn, line))
        return;
    if (!identity_read_line("/etc/machine-id", line, sizeof(line)) || !parse_uuid(line, id)) {
        if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
            memset(id, 0x5a, sizeof(id));
    }
    int at = snprintf(c->hostnqn, sizeof(c->hostnqn), UUID_NQN);
    for (unsigned i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        at += snprintf(c->hostnqn + at, sizeof(c->hostnqn) - (size_t)at, "%s%02x", dash, id[i]);
    }
}

static void make_hostid(struct sw_nvme_controller *c, bool has_hostnqn)
{
    char line[256];
    const size_t prefix = strlen(UUID_NQN);
    if (!has_hostnqn && identity_read_line("/etc/nvme/hostid", line, sizeof(line)) &&
        parse_uuid(line, c->hostid))
        return;
    if (!strncmp(c->hostnqn, UUID_NQN, prefix) && parse_uuid(c->hostnqn + prefix, c->hostid))
        return;
    /* Any that is stable: a host's name and its ID go together. */
    uint64_t hash[2] = {0xcbf29ce484222325ull, 0x84222325cbf29ce4ull};
    for (const char *at = c->hostnqn; *at; at++) {
        hash[0] = (hash[0] ^ (uint8_t)*at) * 0x100000001b3ull;
        hash[1] = (hash[1] + (uint8_t)*at) * 0x100000001b3ull ^ hash[0] >> 7;
    }
    memcpy(c->hostid, hash, sizeof(hash));
}

static enum sw_nvme_status resolve_host(const char *host, const char *service,
                                        struct sockaddr_storage *out, struct sw_nvme_error *error)
{
    const char *wrong = mover_resolve_peer(host, service, out);
    return wrong ? nvh_error(error, SW_NVME_ADDRESS, "%s, port %s: %s", host,
                             service ? service : "any", wrong)
                 : SW_NVME_OK;
}

enum sw_nvme_status nvh_identity(struct nvh_host *host, const struct sw_nvme_options *options,
                                 struct sw_nvme_error *error)
{
    struct sw_nvme_controller *c = &host->controller;
    const char *service = options->trsvcid && *options->trsvcid ? options->trsvcid : "4420";
    enum sw_nvme_status status = resolve_host(options->traddr, service, &host->address, error);
    if (!status && options->host_traddr) {
        status = resolve_host(options->host_traddr, NULL, &host->source, error);
        host->has_source = !status;
    }
    if (status)
        return status;
    if (!identity_own_name(c->subsysnqn,
                           options->subsysnqn ? options->subsysnqn : NVF_DISCOVERY_NQN))
        return nvh_error(error, SW_NVME_INVALID, "a name of a subsystem has 1 to %d characters",
                         NVF_NQN_MAX);
    if (!options->hostnqn)
        make_hostnqn(c);
    else if (!identity_own_name(c->hostnqn, options->hostnqn))
        return nvh_error(error, SW_NVME_INVALID, "a name of a host has 1 to %d characters",
                         NVF_NQN_MAX);
    if (!options->hostid)
        make_hostid(c, options->hostnqn);
    else if (!parse_uuid(options->hostid, c->hostid))
        return nvh_error(error, SW_NVME_INVALID, "\"%s\" is not a UUID (hostid)", options->hostid);
    if (asprintf(&c->where, "%s:%s", options->traddr, service) < 0) {
        c->where = NULL;
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for a controller");
    }
    /* The strings are the caller's. */
    c->options.traddr = c->options.trsvcid = c->options.host_traddr = NULL;
    c->options.subsysnqn = c->options.hostnqn = c->options.hostid = NULL;
    c->options.dhchap_secret = c->options.dhchap_ctrl_secret = NULL;
    return SW_NVME_OK;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/command/secret.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nvme/target/model.h"

const char *nv_secret_read(const char *text, char out[NV_SECRET_MAX])
{
    if (*text != '@') {
        if (strlen(text) >= NV_SECRET_MAX)
            return "it is too long";
        memcpy(out, text, strlen(text) + 1);
        return NULL;
    }
    FILE *file = fopen(text + 1, "re");
    if (!file)
        return strerror(errno);
    const bool has_line = fgets(out, NV_SECRET_MAX, file);
    fclose(file);
    if (!has_line)
        return "the file is empty";
    out[strcspn(out, "\r\n")] = '\0';
    return NULL;
}

/* The secret in "HOSTNQN=SECRET". NULL: there is none. */
static const char *split(const char *text, char nqn[NVF_NQN_MAX + 1])
{
    /* A name may have a '=' of its own. */
    for (const char *at = strchr(text, '='); at; at = strchr(at + 1, '='))
        if ((at[1] == '@' || !strncmp(at + 1, "DHHC-1:", 7)) && at - text <= NVF_NQN_MAX) {
            snprintf(nqn, NVF_NQN_MAX + 1, "%.*s", (int)(at - text), text);
            return at + 1;
        }
    return NULL;
}

static int fail(const char *text, const char *why)
{
    fprintf(stderr, "sidewire nvme target: the secret of '%.*s': %s\n", (int)strcspn(text, "="),
            text, why);
    return -1;
}

static int add_host(struct nvt_subsystem *subsystem, const char *text)
{
    struct nvt_auth_policy policy;
    char nqn[NVF_NQN_MAX + 1], secret[NV_SECRET_MAX];
    const char *value = split(text, nqn);
    if (!value)
        return fail(text, "it is given as HOSTNQN=DHHC-1:... or HOSTNQN=@FILE");
    const char *wrong = nv_secret_read(value, secret);
    if (!wrong)
        wrong = nvt_auth_policy_parse(secret, NULL, 0, 0, &policy);
    if (!wrong && !nvt_subsystem_host(subsystem, nqn) && nvt_subsystem_allow(subsystem, nqn))
        wrong = "no memory";
    return wrong ? fail(text, wrong) : nvt_subsystem_authenticate(subsystem, nqn, &policy);
}

static int add_ctrl(struct nvt_subsystem *subsystem, const char *text)
{
    char nqn[NVF_NQN_MAX + 1], secret[NV_SECRET_MAX];
    const char *value = split(text, nqn);
    if (!value)
        return fail(text, "it is given as HOSTNQN=DHHC-1:... or HOSTNQN=@FILE");
    struct nvt_host *host = nvt_subsystem_host(subsystem, nqn);
    if (!host || !host->has_policy)
        return fail(text, "that host has no --dhchap-secret");
    const char *wrong = nv_secret_read(value, secret);
    if (!wrong)
        wrong = nvf_secret_parse(secret, &host->policy.controller_secret);
    host->policy.has_controller_secret = true;
    return wrong ? fail(text, wrong) : 0;
}

int nv_secrets_add(const struct nv_secrets *secrets, struct nvt_subsystem *subsystem)
{
    for (int i = 0; i < secrets->host_count; i++)
        if (add_host(subsystem, secrets->of_hosts[i]))
            return -1;
    for (int i = 0; i < secrets->ctrl_count; i++)
        if (add_ctrl(subsystem, secrets->of_ctrl[i]))
            return -1;
    return 0;
}

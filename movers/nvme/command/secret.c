/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/command/secret.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nvme/target/config.h"

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

static int fail(const struct nvt_config_editor *editor, const char *text, const char *why)
{
    snprintf(editor->error, editor->error_bytes, "the secret of '%.*s': %s",
             (int)strcspn(text, "="), text, why);
    return -EINVAL;
}

static int add(const struct nvt_config_editor *editor, const char *subsysnqn, const char *text,
               bool of_controller)
{
    char nqn[NVF_NQN_MAX + 1], secret[NV_SECRET_MAX];
    const char *value = split(text, nqn);
    if (!value)
        return fail(editor, text, "it is given as HOSTNQN=DHHC-1:... or HOSTNQN=@FILE");
    const char *wrong = nv_secret_read(value, secret);
    if (wrong)
        return fail(editor, text, wrong);
    const struct nvt_config_subsystem *subsystem =
        nvt_config_find_subsystem(editor->config, subsysnqn);
    const bool is_listed = !subsystem->allow_any_host && nvt_config_allows(subsystem, nqn);
    int rc = nvt_config_set_secret(editor, nqn, secret, of_controller);
    if (!rc && !is_listed)
        rc = nvt_config_add_host(editor, subsysnqn, nqn);
    explicit_bzero(secret, sizeof(secret));
    return rc;
}

int nv_secrets_add(const struct nv_secrets *secrets, const struct nvt_config_editor *editor,
                   const char *subsysnqn)
{
    int rc = 0;
    for (int i = 0; i < secrets->host_count && !rc; i++)
        rc = add(editor, subsysnqn, secrets->of_hosts[i], false);
    for (int i = 0; i < secrets->ctrl_count && !rc; i++)
        rc = add(editor, subsysnqn, secrets->of_ctrl[i], true);
    return rc;
}

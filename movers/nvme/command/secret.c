/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/command/secret.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nvme/target/config/config.h"

/* The secret in "HOSTNQN=SECRET". NULL: there is none. */
static const char *split_secret(const char *text, char nqn[NVF_NQN_MAX + 1])
{
    /* A name may have a '=' of its own. */
    for (const char *at = strchr(text, '='); at; at = strchr(at + 1, '='))
        if ((at[1] == '@' || !strncmp(at + 1, "DHHC-1:", 7)) && at - text <= NVF_NQN_MAX) {
            snprintf(nqn, NVF_NQN_MAX + 1, "%.*s", (int)(at - text), text);
            return at + 1;
        }
    return NULL;
}

const char *nv_secret_split(const char *text, char nqn[NVF_NQN_MAX + 1],
                            char out[NVF_SECRET_TEXT_MAX])
{
    const char *value = split_secret(text, nqn);
    return value ? nvf_secret_read(value, out)
                 : "it is given as HOSTNQN=DHHC-1:... or HOSTNQN=@FILE";
}

const char *nv_secret_file(const char *text)
{
    char nqn[NVF_NQN_MAX + 1];
    const char *value = split_secret(text, nqn);
    return value && *value == '@' ? value + 1 : NULL;
}

static int add_secret(const struct nvt_config_editor *editor, const char *subsysnqn,
                      const char *text, bool of_controller)
{
    char nqn[NVF_NQN_MAX + 1], secret[NVF_SECRET_TEXT_MAX];
    const char *wrong = nv_secret_split(text, nqn, secret);
    if (wrong) {
        const char *file = nv_secret_file(text);
        snprintf(editor->error, editor->error_bytes, "the secret of '%.*s'%s%s: %s",
                 (int)strcspn(text, "="), text, file ? " in " : "", file ? file : "", wrong);
        return -EINVAL;
    }
    const int rc = nvt_config_admit(editor, subsysnqn, nqn, secret, of_controller);
    explicit_bzero(secret, sizeof(secret));
    return rc;
}

int nv_secrets_add(const struct nv_secrets *secrets, const struct nvt_config_editor *editor,
                   const char *subsysnqn)
{
    int rc = 0;
    for (int i = 0; i < secrets->of_hosts.count && !rc; i++)
        rc = add_secret(editor, subsysnqn, secrets->of_hosts.words[i], false);
    for (int i = 0; i < secrets->of_ctrl.count && !rc; i++)
        rc = add_secret(editor, subsysnqn, secrets->of_ctrl.words[i], true);
    return rc;
}

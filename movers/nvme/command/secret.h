/* SPDX-License-Identifier: BSD-2-Clause */
/* Secrets on a command line: as they are, or out of a file, as all users see the line. */
#ifndef SW_MOVERS_NVME_SECRET_H
#define SW_MOVERS_NVME_SECRET_H

#include "nvme/wire/fabrics.h"

enum { NV_SECRET_MAX = 128, NV_SECRETS_MAX = 64 };

struct nvt_config_editor;

/* "DHHC-1:00:BASE64:", or "@FILE" whose first line is that. Returns NULL, or what is wrong. */
const char *nv_secret_read(const char *text, char out[NV_SECRET_MAX]);

/* "HOSTNQN=SECRET". Returns NULL, or what is wrong. */
const char *nv_secret_split(const char *text, char nqn[NVF_NQN_MAX + 1], char out[NV_SECRET_MAX]);

/* Options of a target: "HOSTNQN=SECRET" each. */
struct nv_secrets {
    const char *of_hosts[NV_SECRETS_MAX], *of_ctrl[NV_SECRETS_MAX];
    int host_count, ctrl_count;
};

/* Allows the hosts in a subsystem, each if it knows its secret. Returns 0, or a negative errno with
 * what is wrong in the editor's `error`. */
int nv_secrets_add(const struct nv_secrets *secrets, const struct nvt_config_editor *editor,
                   const char *subsysnqn);

#endif

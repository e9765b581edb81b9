/* SPDX-License-Identifier: BSD-2-Clause */
/* Secrets of hosts on the command line of a target. */
#ifndef SW_MOVERS_NVME_SECRET_H
#define SW_MOVERS_NVME_SECRET_H

#include "nvme/wire/fabrics.h"
#include "nvme/wire/secret_text.h"

enum { NV_WORDS_MAX = 64 };

/* The arguments of an option that may be repeated. */
struct nv_words {
    const char *words[NV_WORDS_MAX];
    int count;
};

struct nvt_config_editor;

/* "HOSTNQN=SECRET". Returns NULL, or what is wrong. */
const char *nv_secret_split(const char *text, char nqn[NVF_NQN_MAX + 1],
                            char out[NVF_SECRET_TEXT_MAX]);

/* The file in "HOSTNQN=@FILE"; NULL: there is none. */
const char *nv_secret_file(const char *text);

/* Options of a target: "HOSTNQN=SECRET" each. */
struct nv_secrets {
    struct nv_words of_hosts, of_ctrl;
};

/* Allows the hosts in a subsystem, each if it knows its secret. Returns 0, or a negative errno with
 * what is wrong in the editor's `error`. */
int nv_secrets_add(const struct nv_secrets *secrets, const struct nvt_config_editor *editor,
                   const char *subsysnqn);

#endif

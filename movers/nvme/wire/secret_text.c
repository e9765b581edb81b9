/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/wire/secret_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *nvf_secret_read(const char *text, char out[NVF_SECRET_TEXT_MAX])
{
    if (*text != '@') {
        if (strlen(text) >= NVF_SECRET_TEXT_MAX)
            return "it is too long";
        memcpy(out, text, strlen(text) + 1);
        return NULL;
    }
    FILE *file = fopen(text + 1, "re");
    if (!file)
        return strerror(errno);
    const bool has_line = fgets(out, NVF_SECRET_TEXT_MAX, file);
    fclose(file);
    if (!has_line)
        return "the file is empty; 'nvme gen-dhchap-key' of nvme-cli makes a secret";
    out[strcspn(out, "\r\n")] = '\0';
    return NULL;
}

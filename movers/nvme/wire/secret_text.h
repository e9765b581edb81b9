/* SPDX-License-Identifier: BSD-2-Clause */
/* Secrets as options give them: as they are, or out of a file, as all users see a command line. */
#ifndef SW_MOVERS_NVME_SECRET_TEXT_H
#define SW_MOVERS_NVME_SECRET_TEXT_H

enum { NVF_SECRET_TEXT_MAX = 128 };

/* "DHHC-1:00:BASE64:", or "@FILE" whose first line is that. Returns NULL, or what is wrong. */
const char *nvf_secret_read(const char *text, char out[NVF_SECRET_TEXT_MAX]);

#endif

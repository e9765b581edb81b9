/* SPDX-License-Identifier: BSD-2-Clause */
/* Which release this is: meson.build says it, once. */
#ifndef SW_BASE_VERSION_H
#define SW_BASE_VERSION_H

/* As 1.2.3. */
const char *sw_version(void);

#endif

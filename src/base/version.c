/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/version.h"

const char *sw_version(void)
{
    return SW_VERSION;
}

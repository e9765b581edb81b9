/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/group/settings.h"

#include <errno.h>
#include <stdio.h>

#include "nvme/target/group/record.h"

int nvg_settings_check(const struct nvg_settings *s, char *error, size_t error_bytes)
{
    const char *wrong = NULL;
    if (!nvg_name_is_valid(s->member))
        wrong = "a member's name has 1 to 31 letters, digits, \".\", \"_\" and \"-\"";
    else if (s->copy_count < 1 || s->copy_count > NVG_COPIES_MAX)
        wrong = "a group's log has 1 to 5 copies";
    else if (s->namespace_count > NVG_NAMESPACES_MAX)
        wrong = "a group has at most 128 namespaces";
    else if (s->address_count > NVG_ADDRESSES_MAX)
        wrong = "a member of a group has at most 8 addresses for hosts";
    for (uint32_t i = 0; !wrong && i < s->namespace_count; i++)
        if (!s->namespaces[i].nsid || s->namespaces[i].nsid > NVG_NSID_MAX)
            wrong = "a group's namespaces have the numbers 1 to 128";
    if (wrong)
        snprintf(error, error_bytes, "%s", wrong);
    return wrong ? -EINVAL : 0;
}

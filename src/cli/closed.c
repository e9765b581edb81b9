/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/closed.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *user_name(void)
{
    static char number[32];
    struct passwd *entry = getpwuid(geteuid());
    if (entry)
        return entry->pw_name;
    snprintf(number, sizeof(number), "user %u", (unsigned int)geteuid());
    return number;
}

void sw_closed_explain(const char *path, char right, struct sw_closed *out)
{
    char part[PATH_MAX];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (faccessat(AT_FDCWD, part, X_OK, AT_EACCESS)) {
            snprintf(out->mend, sizeof(out->mend), "chmod a+x %s", part);
            snprintf(out->reason, sizeof(out->reason), "the folder %s is closed to %s", part,
                     user_name());
            return;
        }
        *slash = '/';
    }
    snprintf(out->mend, sizeof(out->mend), "chmod a+%c %s", right, part);
    snprintf(out->reason, sizeof(out->reason), "%s may not %s it", user_name(),
             right == 'r' ? "read" : "execute");
}

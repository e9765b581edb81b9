/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/checkers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sw_checkers_allow_preload(void)
{
    static const char variable[] = "ASAN_OPTIONS", ours[] = "verify_asan_link_order=0";
    const char *old = getenv(variable);
    char *value = NULL;
    if (old && !strncmp(old, ours, sizeof(ours) - 1)) /* by a run around this one */
        return 0;
    if (asprintf(&value, "%s%s%s", ours, old ? ":" : "", old ? old : "") < 0)
        return -1;
    const int failed = setenv(variable, value, 1);
    free(value);
    return failed;
}

char **sw_checkers_by_valgrind(const struct sw_library *library, int argc, char **argv)
{
    char path[PATH_MAX], *option = NULL;
    char **words = calloc((size_t)argc + 4, sizeof(*words));
    if (!words || (sw_library_find_suppressions(library, path) &&
                   asprintf(&option, "--suppressions=%s", path) < 0)) {
        free(words);
        return NULL;
    }
    int count = 0;
    words[count++] = (char *)"valgrind";
    /* Else a program that polls keeps the thread of the library away. */
    words[count++] = (char *)"--fair-sched=try";
    if (option)
        words[count++] = option;
    for (int i = 0; i < argc; i++)
        words[count++] = argv[i];
    return words;
}

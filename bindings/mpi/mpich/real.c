/* SPDX-License-Identifier: BSD-2-Clause */
#include "real.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../middle/settings.h"

static const char *const names[] = {
#define MPP_TEXT(name) "PMPI_" #name,
    MPP_NAMES(MPP_TEXT)
#undef MPP_TEXT
        "PMPIX_Grequest_start",
};

/* Where a program has loaded it for itself alone, as Python does for its modules, its names are
 * not found but in the library. */
static const char *const libraries[] = {"libmpich.so.12", "libmpi.so.12", "libmpi.so.40",
                                        "libmpi.so"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *functions[MPP_NAME_COUNT];
static bool is_mpich;

static void *find_library(void)
{
    if (dlsym(RTLD_NEXT, "PMPI_Allreduce"))
        return RTLD_NEXT;
    void *found = NULL;
    for (size_t i = 0; !found && i < sizeof(libraries) / sizeof(*libraries); i++)
        found = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    return found;
}

static void load_functions(void)
{
    void *library = find_library();
    for (int i = 0; library && i < MPP_NAME_COUNT; i++)
        functions[i] = dlsym(library, names[i]);
    int (*version)(char *, int *) = functions[MPP_Get_library_version];
    static char text[8192]; /* MPI_MAX_LIBRARY_VERSION_STRING of MPICH */
    int len = 0;
    if (version && !version(text, &len))
        is_mpich = !strncmp(text, "MPICH Version:", 14) && mpm_is_on();
}

bool mpp_is_mpich(void)
{
    pthread_once(&once, load_functions);
    return is_mpich;
}

bool mpp_has(enum mpp_name name)
{
    pthread_once(&once, load_functions);
    return functions[name];
}

void *mpp_find(enum mpp_name name)
{
    pthread_once(&once, load_functions);
    if (!functions[name]) {
        mpm_say("the MPI of this program has no %s", names[name]);
        abort();
    }
    return functions[name];
}

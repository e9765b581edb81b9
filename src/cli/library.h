/* SPDX-License-Identifier: BSD-2-Clause */
/* Where libsidewire.so is: SIDEWIRE_LIB, else beside this command in the build tree, else where it
 * was installed to. */
#ifndef SW_CLI_LIBRARY_H
#define SW_CLI_LIBRARY_H

#include <limits.h>
#include <stdbool.h>

struct sw_library {
    char path[PATH_MAX];
    char reason[PATH_MAX + 256]; /* why it cannot be used */
    char mend[PATH_MAX + 64];    /* the command that mends it, or empty */
};

/* Returns 0, or -1 with `reason` and `mend` set. */
int sw_library_find(struct sw_library *out);

/* The library of `--sockets`: beside the other one, or where the build has it. As above. */
int sw_library_find_sockets(const struct sw_library *library, struct sw_library *out);

/* What `--collectives` needs: the library for programs of MPICH, whose path is empty if there is
 * none, and the folder with the component of Open MPI, the same. One of the two will do. */
int sw_library_find_mpi(const struct sw_library *library, struct sw_library *mpich,
                        char openmpi[PATH_MAX]);

/* What valgrind need not say of the library. False: the file is not there. */
bool sw_library_find_suppressions(const struct sw_library *library, char path[PATH_MAX]);

#endif

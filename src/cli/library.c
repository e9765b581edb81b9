/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/library.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/closed.h"
#include "cli/elf_file.h"

#define FILE_NAME "libsidewire.so"
#define SOCKETS_NAME "libsidewire-sockets.so"
#define MPICH_NAME "libsidewire-mpich.so"
#define OPENMPI_NAME "mca_coll_sidewire.so"

static int refuse_library(struct sw_library *out, const char *mend, const char *reason)
{
    snprintf(out->reason, sizeof(out->reason), "%s", reason);
    snprintf(out->mend, sizeof(out->mend), "%s", mend);
    return -1;
}

/* Checks what the loader would otherwise only complain about and then run the program without us.
 */
static int check_library(struct sw_library *out)
{
    int fd = open(out->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) {
        static struct sw_closed closed;
        sw_closed_explain(out->path, 'r', &closed);
        return refuse_library(out, closed.mend, closed.reason);
    }
    if (fd < 0)
        return refuse_library(out, "set SIDEWIRE_LIB to the file, or: make build, make install",
                              strerror(errno));
    struct stat info;
    size_t len = fstat(fd, &info) ? 0 : (size_t)info.st_size;
    void *bytes = len ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    enum sw_elf_kind kind = SW_ELF_NOT_ELF;
    if (bytes != MAP_FAILED) {
        kind = sw_elf_inspect(bytes, len);
        munmap(bytes, len);
    }
    struct statvfs system;
    bool noexec = fstatvfs(fd, &system) == 0 && (system.f_flag & ST_NOEXEC);
    close(fd);
    if (kind != SW_ELF_LIBRARY && kind != SW_ELF_DYNAMIC)
        return refuse_library(out, "", "it is not a shared library of this machine");
    if (noexec)
        return refuse_library(out, "mount -o remount,exec the file system, or: make install",
                              "its file system is mounted noexec, so the loader cannot map it");
    if (strpbrk(out->path, ": ;"))
        return refuse_library(
            out, "move it to a path without them",
            "the loader splits LD_PRELOAD at blanks and colons, and the path has one");
    return 0;
}

/* The folder of this command, without the last slash; NULL if it cannot be told. The caller frees
 * it. */
static char *own_folder(void)
{
    char *path = realpath("/proc/self/exe", NULL);
    char *slash = path ? strrchr(path, '/') : NULL;
    if (slash)
        *slash = '\0';
    return path;
}

/* Sets `out` if there is such a file, or if it cannot be told whether there is. */
static bool take_if_there(const char *folder, const char *rest, char out[PATH_MAX])
{
    char *path = NULL;
    if (asprintf(&path, "%s%s/" FILE_NAME, folder, rest) < 0)
        return false;
    bool there = access(path, F_OK) == 0 || errno == EACCES;
    if (there && !realpath(path, out))
        snprintf(out, PATH_MAX, "%s", path);
    free(path);
    return there;
}

static bool find_beside(char out[PATH_MAX])
{
    char *folder = own_folder();
    if (!folder)
        return false;
    bool found = take_if_there(folder, "/../preload", out);
    /* Installed, perhaps below a DESTDIR or moved: the way from bindir to libdir stays the same. */
    size_t folder_len = strlen(folder), bin_len = strlen(SW_BINDIR);
    if (!found && folder_len > bin_len && folder[folder_len - bin_len - 1] == '/' &&
        !strcmp(folder + folder_len - bin_len, SW_BINDIR)) {
        folder[folder_len - bin_len] = '\0';
        found = take_if_there(folder, SW_LIBDIR, out);
    }
    free(folder);
    return found;
}

int sw_library_find(struct sw_library *out)
{
    memset(out, 0, sizeof(*out));
    const char *wanted = getenv("SIDEWIRE_LIB");
    if (wanted && *wanted) {
        if (!realpath(wanted, out->path))
            snprintf(out->path, sizeof(out->path), "%s", wanted);
        return check_library(out);
    }
    if (!find_beside(out->path))
        snprintf(out->path, sizeof(out->path), "%s", SW_LIBRARY_DIR "/" FILE_NAME);
    return check_library(out);
}

/* The first of the two places that there is: in the build tree, or installed. They begin at the
 * folder of the library. False: there is neither, and `path` is the last. */
static bool find_beside_library(const struct sw_library *library, const char *const places[2],
                                char path[PATH_MAX])
{
    const char *slash = strrchr(library->path, '/');
    int len = slash ? (int)(slash - library->path) : 0;
    for (size_t i = 0; i < 2; i++) {
        char *tried = NULL;
        if (asprintf(&tried, "%.*s%s", len, library->path, places[i]) < 0)
            continue;
        if (!realpath(tried, path))
            snprintf(path, PATH_MAX, "%s", tried);
        free(tried);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

int sw_library_find_sockets(const struct sw_library *library, struct sw_library *out)
{
    static const char *const places[2] = {"/../sockets/" SOCKETS_NAME, "/" SOCKETS_NAME};
    memset(out, 0, sizeof(*out));
    find_beside_library(library, places, out->path);
    return check_library(out);
}

int sw_library_find_mpi(const struct sw_library *library, struct sw_library *mpich,
                        char openmpi[PATH_MAX])
{
    static const char *const mpich_places[2] = {"/../../bindings/mpi/mpich/" MPICH_NAME,
                                                "/" MPICH_NAME};
    static const char *const openmpi_places[2] = {"/../../bindings/mpi/openmpi/" OPENMPI_NAME,
                                                  "/openmpi/" OPENMPI_NAME};
    memset(mpich, 0, sizeof(*mpich));
    bool has_openmpi = find_beside_library(library, openmpi_places, openmpi);
    bool has_mpich = find_beside_library(library, mpich_places, mpich->path);
    if (has_openmpi)
        *strrchr(openmpi, '/') = '\0';
    else
        *openmpi = '\0';
    if (has_mpich)
        return check_library(mpich);
    if (!has_openmpi)
        return refuse_library(mpich, "apt-get install sidewire-mpi", "it is not there");
    *mpich->path = '\0';
    return 0;
}

bool sw_library_find_suppressions(const struct sw_library *library, char path[PATH_MAX])
{
    static const char *const places[2] = {"/valgrind.supp", SW_SHARE_FROM_LIBRARY "/valgrind.supp"};
    return find_beside_library(library, places, path);
}

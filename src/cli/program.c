/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/elf_file.h"

/* The kernel follows an interpreter that is itself a script no deeper (fs/exec.c). */
enum { SCRIPT_DEPTH_MAX = 4, SCRIPT_LINE_MAX = 256 };

static enum sw_program_fault check_file(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return errno == EACCES ? SW_PROGRAM_NOT_EXECUTABLE : SW_PROGRAM_NOT_FOUND;
    if (S_ISDIR(info.st_mode))
        return SW_PROGRAM_DIRECTORY;
    if (!S_ISREG(info.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS))
        return SW_PROGRAM_NOT_EXECUTABLE;
    return SW_PROGRAM_OK;
}

/* Tries NAME in each folder of PATH. A file that may not be executed is only reported if no later
 * one may. */
static enum sw_program_fault search_path(const char *name, char out[PATH_MAX])
{
    const char *path = getenv("PATH");
    if (!path)
        path = "/bin:/usr/bin"; /* what execvp(3) takes then */
    enum sw_program_fault worst = SW_PROGRAM_NOT_FOUND;
    for (const char *at = path;; at++) {
        int len = (int)strcspn(at, ":");
        char candidate[PATH_MAX];
        int used =
            snprintf(candidate, sizeof(candidate), "%.*s%s%s", len, at, len ? "/" : "", name);
        if (used < (int)sizeof(candidate)) {
            enum sw_program_fault fault = check_file(candidate);
            if (fault == SW_PROGRAM_NOT_EXECUTABLE && access(candidate, F_OK))
                fault = SW_PROGRAM_NOT_FOUND; /* a closed folder, another user's: nothing found */
            if (fault == SW_PROGRAM_OK || (fault == SW_PROGRAM_NOT_EXECUTABLE && fault > worst)) {
                strcpy(out, candidate);
                worst = fault;
            }
            if (fault == SW_PROGRAM_OK)
                return fault;
        }
        at += len;
        if (*at == '\0')
            return worst;
    }
}

/* Whether execution sets AT_SECURE, upon which the loader drops LD_PRELOAD from the environment
 * (ld.so(8)). */
static bool is_privileged(const char *path)
{
    struct stat info;
    struct statvfs system;
    if (stat(path, &info) || statvfs(path, &system))
        return false;
    if ((system.f_flag & ST_NOSUID) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        return false; /* the kernel ignores the bits */
    if ((info.st_mode & S_ISUID) && info.st_uid != getuid())
        return true;
    if ((info.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && info.st_gid != getgid())
        return true;
    return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

static enum sw_program_fault fault_of_elf(enum sw_elf_kind kind)
{
    switch (kind) {
    case SW_ELF_STATIC:
        return SW_PROGRAM_STATIC;
    case SW_ELF_FOREIGN_MACHINE:
        return SW_PROGRAM_FOREIGN_MACHINE;
    case SW_ELF_FOREIGN_LIBC:
        return SW_PROGRAM_FOREIGN_LIBC;
    case SW_ELF_NOT_ELF: /* binfmt_misc, or a script without #!; the kernel decides */
    case SW_ELF_DAMAGED:
    case SW_ELF_DYNAMIC:
    case SW_ELF_LIBRARY:
        return SW_PROGRAM_OK;
    }
    return SW_PROGRAM_OK;
}

/* Cuts the interpreter out of a line "#! interpreter argument". */
static bool script_interpreter(const char *bytes, size_t len_bytes, char out[SCRIPT_LINE_MAX])
{
    if (len_bytes < 3 || bytes[0] != '#' || bytes[1] != '!')
        return false;
    char line[SCRIPT_LINE_MAX] = "";
    memcpy(line, bytes + 2, len_bytes - 2 < sizeof(line) - 1 ? len_bytes - 2 : sizeof(line) - 1);
    line[strcspn(line, "\n")] = '\0';
    char *start = line + strspn(line, " \t");
    start[strcspn(start, " \t")] = '\0';
    snprintf(out, SCRIPT_LINE_MAX, "%s", start);
    return *start != '\0';
}

/* Looks at one file. Returns true and sets `next` when it is a script. */
static bool inspect_file(const char *path, enum sw_program_fault *fault, char next[SCRIPT_LINE_MAX])
{
    *fault = SW_PROGRAM_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false; /* may be executed but not read: nothing to say */
    struct stat info;
    size_t len = fstat(fd, &info) ? 0 : (size_t)info.st_size;
    void *bytes = len ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    bool is_script = script_interpreter(bytes, len, next);
    if (!is_script)
        *fault = fault_of_elf(sw_elf_inspect(bytes, len));
    munmap(bytes, len);
    return is_script;
}

enum sw_program_fault sw_program_find(const char *name, struct sw_program *out)
{
    enum sw_program_fault fault;
    snprintf(out->path, sizeof(out->path), "%s", name);
    if (strlen(name) >= sizeof(out->path) || *name == '\0')
        return SW_PROGRAM_NOT_FOUND;
    fault = strchr(name, '/') ? check_file(name) : search_path(name, out->path);
    strcpy(out->image, out->path);
    if (fault != SW_PROGRAM_OK)
        return fault;

    char next[SCRIPT_LINE_MAX] = "";
    for (int depth = 0; depth <= SCRIPT_DEPTH_MAX; depth++) {
        bool is_script = inspect_file(out->image, &fault, next);
        if (!is_script)
            break;
        strcpy(out->image, next);
        fault = check_file(out->image);
        if (fault != SW_PROGRAM_OK)
            return fault;
    }
    return fault == SW_PROGRAM_OK && is_privileged(out->image) ? SW_PROGRAM_PRIVILEGED : fault;
}

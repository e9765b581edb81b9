/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port/holder.h"

#include <ctype.h>
#include <dirent.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The socket's line in the kernel's table: proc(5), /proc/net/udp. */
static bool find_socket(const char *table, uint16_t udp_port, unsigned int *uid,
                        unsigned long *inode)
{
    FILE *file = fopen(table, "re");
    if (!file)
        return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof(line), file)) {
        unsigned int port;
        found = sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*s %*s %*s %*s %*s %u %*s %lu", &port, uid,
                       inode) == 3 &&
                port == udp_port;
    }
    fclose(file);
    return found;
}

static bool has_socket(int fds, unsigned long inode)
{
    char wanted[64], seen[64];
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    DIR *dir = fdopendir(fds);
    if (!dir) {
        close(fds);
        return false;
    }
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, seen, sizeof(seen) - 1);
        seen[len > 0 ? len : 0] = 0;
        found = !strcmp(seen, wanted);
    }
    closedir(dir);
    return found;
}

static void holder_read_name(const char *pid, char name[32])
{
    char path[300];
    snprintf(path, sizeof(path), "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(name, 32, file))
        strcpy(name, "?");
    name[strcspn(name, "\n")] = 0;
    if (file)
        fclose(file);
}

/* 0: none that may be looked into. */
static long find_process(unsigned long inode, char name[32])
{
    long pid = 0;
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    for (struct dirent *entry; !pid && (entry = readdir(proc));) {
        char path[300];
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%s/fd", entry->d_name);
        DIR *fds = opendir(path);
        if (!fds)
            continue;
        if (has_socket(dup(dirfd(fds)), inode)) {
            pid = strtol(entry->d_name, NULL, 10);
            holder_read_name(entry->d_name, name);
        }
        closedir(fds);
    }
    closedir(proc);
    return pid;
}

void sw_holder_describe(uint16_t udp_port, char *text, size_t room)
{
    unsigned int uid = 0;
    unsigned long inode = 0;
    char name[32] = "";
    if (!find_socket("/proc/self/net/udp", udp_port, &uid, &inode) &&
        !find_socket("/proc/self/net/udp6", udp_port, &uid, &inode)) {
        snprintf(text, room, "nobody that can be seen");
        return;
    }
    long pid = find_process(inode, name);
    struct passwd entry, *user = NULL;
    char strings[1024];
    getpwuid_r(uid, &entry, strings, sizeof(strings), &user);
    if (pid)
        snprintf(text, room, "process %ld (%s) of user %s (%u)", pid, name,
                 user ? user->pw_name : "?", uid);
    else
        snprintf(text, room, "%s of user %s (%u)",
                 uid ? "a process" : "the kernel (rdma_rxe?) or a process",
                 user ? user->pw_name : "?", uid);
}

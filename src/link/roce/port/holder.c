/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port/holder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link/roce/port/socket.h"

/* A socket of the kernel's table: proc(5), /proc/net/udp. */
struct listed {
    unsigned int uid;
    unsigned long inode;
    bool is_bound_to_one; /* address of this host, not to all of them */
};

/* Groups are joined beside others (roce/group.c), so a socket of theirs keeps nobody out. The
 * address stands there as words in the order of this machine's bytes. */
static bool is_unicast(const char *address)
{
    unsigned int word = 0;
    uint8_t first;
    sscanf(address, "%8x", &word);
    memcpy(&first, &word, 1);
    return strspn(address, "0") != strlen(address) &&
           (strlen(address) > 8 ? first != 0xff : first >> 4 != 0xe);
}

static bool read_listed(const char *line, uint16_t udp_port, struct listed *out)
{
    char own[33];
    unsigned int port, peer_port;
    if (sscanf(line, "%*d: %32[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%x %*s %*s %*s %*s %u %*s %lu", own,
               &port, &peer_port, &out->uid, &out->inode) != 5)
        return false;
    out->is_bound_to_one = is_unicast(own);
    return port == udp_port && !peer_port; /* what is connected keeps nobody out, either */
}

/* The first one of the port, or of those that are bound to one address. */
static bool find_socket(const char *table, uint16_t udp_port, bool bound_to_one, struct listed *out)
{
    FILE *file = fopen(table, "re");
    if (!file)
        return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof(line), file))
        found = read_listed(line, udp_port, out) && (!bound_to_one || out->is_bound_to_one);
    fclose(file);
    return found;
}

/* A socket of IPv6 may have the port of IPv4, too. */
static bool find_listed(uint16_t udp_port, bool is_ipv4, struct listed *out)
{
    return (is_ipv4 && find_socket("/proc/self/net/udp", udp_port, false, out)) ||
           find_socket("/proc/self/net/udp6", udp_port, false, out);
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

void sw_holder_find(uint16_t udp_port, bool is_ipv4, struct sw_holder *out)
{
    struct listed listed;
    *out = (struct sw_holder){.is_seen = find_listed(udp_port, is_ipv4, &listed)};
    if (!out->is_seen)
        return;
    out->uid = listed.uid;
    out->pid = find_process(listed.inode, out->program);
}

void sw_holder_describe(const struct sw_holder *holder, char *text, size_t room)
{
    struct passwd entry, *user = NULL;
    char strings[1024];
    if (!holder->is_seen) {
        snprintf(text, room, "nobody that can be seen");
        return;
    }
    getpwuid_r(holder->uid, &entry, strings, sizeof(strings), &user);
    const char *name = user ? user->pw_name : "?";
    if (holder->pid)
        snprintf(text, room, "process %ld (%s) of user %s (%u)", holder->pid, holder->program, name,
                 holder->uid);
    else
        snprintf(text, room, "%s of user %s (%u)",
                 holder->uid ? "a process" : "the kernel (rdma_rxe?) or a process", name,
                 holder->uid);
}

/* An address that no packet comes to, so that the trial takes none from those who share the port:
 * the last one of the loopback; of IPv6 one of those that are discarded (RFC 6666). */
static bool can_share(uint16_t udp_port, bool is_ipv4)
{
    struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(udp_port), .sin_addr.s_addr = htonl(0x7ffffffe)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons(udp_port),
                              .sin6_addr.s6_addr = {[0] = 1, [15] = 1}};
    const int fd = sw_socket_udp(is_ipv4);
    if (fd < 0)
        return true;
    sw_socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    sw_socket_set(fd, is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, is_ipv4 ? IP_FREEBIND : IPV6_FREEBIND,
                  1);
    const int failed = is_ipv4 ? bind(fd, (struct sockaddr *)&v4, sizeof(v4))
                               : bind(fd, (struct sockaddr *)&v6, sizeof(v6));
    const bool is_taken = failed && errno == EADDRINUSE;
    close(fd);
    return !is_taken;
}

bool sw_holder_keeps_out(uint16_t udp_port, bool is_ipv4)
{
    struct listed listed;
    if (!find_listed(udp_port, is_ipv4, &listed))
        return false;
    return !can_share(udp_port, is_ipv4) ||
           find_socket(is_ipv4 ? "/proc/self/net/udp" : "/proc/self/net/udp6", udp_port, true,
                       &listed);
}

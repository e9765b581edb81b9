/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/names/names.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "link/names/registry.h"

#ifndef UDIAG_SHOW_UID
#define UDIAG_SHOW_UID 0x40 /* Linux 5.3 */
#endif
#define DIAG_UID 7 /* UNIX_DIAG_UID, an enumerator where it is known */

#define PART_BYTES 32768u /* of the list, at once: what the kernel sends at most */
#define SUFFIX '~'
#define SUFFIX_DIGITS 16

socklen_t sw_name_address(const char *name, struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    size_t len = strlen(name);
    if (len > sizeof(out->sun_path) - 1)
        len = sizeof(out->sun_path) - 1;
    memcpy(out->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

/* ---- the kernel's list ---- */

struct entry {
    const char *name; /* whole */
    uint32_t uid;
    bool is_ours;
};

typedef bool (*entry_visitor)(void *context, const struct entry *entry);

static bool take_socket(const struct nlmsghdr *head, entry_visitor visitor, void *context)
{
    const struct unix_diag_msg *socket = NLMSG_DATA(head);
    char name[sizeof(((struct sockaddr_un *)NULL)->sun_path)] = "";
    uint32_t uid = UINT32_MAX;
    if (socket->udiag_state == TCP_ESTABLISHED)
        return true; /* connections bear the listener's name */
    const char *at = (const char *)(socket + 1), *end = (const char *)head + head->nlmsg_len;
    while (end - at >= (ptrdiff_t)sizeof(struct nlattr)) {
        struct nlattr attr;
        memcpy(&attr, at, sizeof(attr));
        if (attr.nla_len < sizeof(attr) || attr.nla_len > end - at)
            break;
        const char *value = at + sizeof(attr);
        const size_t len = attr.nla_len - sizeof(attr);
        if (attr.nla_type == UNIX_DIAG_NAME && len > 1 && len <= sizeof(name) && !value[0])
            memcpy(name, value + 1, len - 1);
        if (attr.nla_type == DIAG_UID && len >= sizeof(uid))
            memcpy(&uid, value, sizeof(uid));
        at += (attr.nla_len + 3u) & ~3u;
    }
    const struct entry entry = {.name = name, .uid = uid, .is_ours = uid == geteuid()};
    return !name[0] || visitor(context, &entry);
}

/* One datagram of the answer: 1: more follows; 0: that was all; -1: it cannot be had. */
static int take_part(const char *bytes, ssize_t len, entry_visitor visitor, void *context,
                     bool *wanted)
{
    const struct nlmsghdr *head = (const struct nlmsghdr *)bytes;
    for (; len > 0 && NLMSG_OK(head, (size_t)len); head = NLMSG_NEXT(head, len)) {
        if (head->nlmsg_type == NLMSG_DONE)
            return 0;
        if (head->nlmsg_type == NLMSG_ERROR)
            return -1;
        if (*wanted && head->nlmsg_type == SOCK_DIAG_BY_FAMILY)
            *wanted = take_socket(head, visitor, context);
    }
    return len < 0 ? -1 : 1;
}

static bool list_by_diag(entry_visitor visitor, void *context)
{
    static atomic_bool is_absent;
    struct {
        struct nlmsghdr head;
        struct unix_diag_req request;
    } ask = {.head = {.nlmsg_len = sizeof(ask),
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
             .request = {.sdiag_family = AF_UNIX,
                         .udiag_states = UINT32_MAX,
                         .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID}};
    char *bytes = atomic_load(&is_absent) ? NULL : malloc(PART_BYTES);
    if (!bytes)
        return false;
    int fd = sw_fd_own(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)), more = 1;
    bool wanted = true, is_first = true;
    if (fd < 0 || send(fd, &ask, sizeof(ask), 0) != sizeof(ask))
        more = -1;
    while (more > 0) {
        ssize_t len = recv(fd, bytes, PART_BYTES, 0);
        if (len < 0 && errno == EINTR)
            continue;
        more = len <= 0 ? -1 : take_part(bytes, len, visitor, context, &wanted);
        if (more < 0 && is_first)
            atomic_store(&is_absent, true);
        is_first = false;
    }
    if (fd >= 0)
        close(fd);
    free(bytes);
    return more == 0;
}

/* Without the users: every name counts, as if it were ours. */
static bool list_by_file(entry_visitor visitor, void *context)
{
    char line[256];
    FILE *file = fopen("/proc/self/net/unix", "re");
    bool wanted = true;
    while (file && wanted && fgets(line, sizeof(line), file)) {
        unsigned int state = 0;
        char *name = strchr(line, '@');
        if (!name || sscanf(line, "%*s %*s %*s %*s %*s %x", &state) != 1 || state == 3)
            continue; /* 3: connected */
        name[strcspn(name, "\n")] = 0;
        const struct entry entry = {.name = name + 1, .uid = geteuid(), .is_ours = true};
        wanted = visitor(context, &entry);
    }
    if (file)
        fclose(file);
    return file != NULL;
}

static bool list_all(entry_visitor visitor, void *context)
{
    return list_by_diag(visitor, context) || list_by_file(visitor, context);
}

/* ---- what is looked for in it ---- */

/* Whether a whole name is `name`, with or without a suffix. */
static bool is_named(const char *whole, const char *name)
{
    const size_t len = strlen(name);
    return !strncmp(whole, name, len) && (!whole[len] || whole[len] == SUFFIX);
}

struct search {
    const char *name;
    char found[108]; /* of ours: the first in the order of bytes, which all agree on */
    bool has_stranger;
    uint32_t stranger;
};

static bool search_entry(void *context, const struct entry *entry)
{
    struct search *search = context;
    if (!is_named(entry->name, search->name))
        return true;
    if (!entry->is_ours) {
        search->has_stranger = true;
        search->stranger = entry->uid;
    } else if (!search->found[0] || strcmp(entry->name, search->found) < 0) {
        snprintf(search->found, sizeof(search->found), "%s", entry->name);
    }
    return true;
}

bool sw_name_find(const char *name, struct sockaddr_un *address, socklen_t *len)
{
    struct search search = {.name = name};
    list_all(search_entry, &search);
    if (search.found[0])
        *len = sw_name_address(search.found, address);
    return search.found[0];
}

bool sw_name_stranger(const char *name, uint32_t *uid)
{
    struct search search = {.name = name};
    list_all(search_entry, &search);
    *uid = search.stranger;
    return search.has_stranger;
}

struct visit {
    const char *prefix;
    bool (*visitor)(void *context, const char *name);
    void *context;
};

static bool visit_entry(void *context, const struct entry *entry)
{
    const struct visit *visit = context;
    char name[108];
    if (!entry->is_ours || strncmp(entry->name, visit->prefix, strlen(visit->prefix)) != 0)
        return true;
    snprintf(name, sizeof(name), "%s", entry->name);
    name[strcspn(name, "~")] = 0;
    return visit->visitor(visit->context, name);
}

bool sw_names_visit(const char *prefix, bool (*visitor)(void *context, const char *name),
                    void *context)
{
    struct visit visit = {prefix, visitor, context};
    return list_all(visit_entry, &visit);
}

/* ---- ours ---- */

static int bind_whole(int type, const char *name)
{
    struct sockaddr_un address;
    socklen_t len = sw_name_address(name, &address);
    int fd = sw_fd_own(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address, len) == 0)
        return fd;
    int error = errno;
    close(fd);
    return -error;
}

/* A name that somebody else has: ours is another one. If two processes do so at once, the one whose
 * name comes first has it. */
static int bind_suffixed(int type, const char *name, uint32_t stranger)
{
    static _Atomic uint32_t told = UINT32_MAX;
    char whole[108];
    uint64_t suffix;
    if (getrandom(&suffix, sizeof(suffix), 0) != sizeof(suffix))
        return -EADDRINUSE;
    snprintf(whole, sizeof(whole), "%s%c%0*llx", name, SUFFIX, SUFFIX_DIGITS,
             (unsigned long long)suffix);
    int fd = bind_whole(type, whole);
    struct search search = {.name = name};
    if (fd < 0 || !list_all(search_entry, &search))
        return fd;
    if (strcmp(search.found, whole) != 0) {
        close(fd);
        return -EADDRINUSE;
    }
    if (atomic_exchange(&told, stranger) != stranger)
        sw_info("user %u has bound names of ours (@%s); others are used", stranger, name);
    return fd;
}

int sw_name_bind(int type, const char *name)
{
    int fd = bind_whole(type, name);
    struct search search = {.name = name};
    if (fd != -EADDRINUSE)
        return fd;
    list_all(search_entry, &search);
    if (search.found[0] || !search.has_stranger)
        return -EADDRINUSE;
    return bind_suffixed(type, name, search.stranger);
}

static int connect_address(const struct sockaddr_un *address, socklen_t len)
{
    pid_t pid;
    int fd = sw_fd_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), rc = 0;
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)address, len))
        rc = errno == EAGAIN ? -EAGAIN : -ECONNREFUSED;
    else if (!sw_registry_same_user(fd, &pid))
        rc = -EPERM;
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

int sw_name_connect(const char *name)
{
    struct sockaddr_un address;
    socklen_t len = sw_name_address(name, &address);
    int fd = connect_address(&address, len);
    if (fd >= 0 || fd == -EAGAIN)
        return fd;
    if (!sw_name_find(name, &address, &len))
        return -ECONNREFUSED;
    fd = connect_address(&address, len);
    return fd == -EPERM ? -ECONNREFUSED : fd;
}

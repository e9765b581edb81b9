/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/device_choice.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESS_MAX = 128, PATH_BYTES = 512 };

typedef bool entry_fn(const char *path, const void *arg);

/* Calls fn for each entry of a folder until one says true. *found, if not NULL: its name. */
static bool any_entry(const char *folder, entry_fn *fn, const void *arg, char *found)
{
    char path[PATH_BYTES];
    bool is_found = false;
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && !is_found && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= SW_DEVICE_NAME_MAX)
            continue;
        const int len = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        is_found = len < (int)sizeof(path) && fn(path, arg);
        if (is_found && found)
            strcpy(found, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return is_found;
}

static bool device_choice_read_line(const char *folder, const char *file, char *line, int size)
{
    char path[PATH_BYTES];
    *line = '\0';
    if (snprintf(path, sizeof(path), "%s%s", folder, file) >= (int)sizeof(path))
        return false;
    FILE *stream = fopen(path, "re");
    const bool has_line = stream && fgets(line, size, stream);
    if (stream)
        fclose(stream);
    line[strcspn(line, "\n")] = '\0';
    return has_line;
}

/* ---- devices ---- */

static bool names_netdev(const char *path, const void *netdev)
{
    char line[IF_NAMESIZE + 1];
    return device_choice_read_line(path, "", line, sizeof(line)) && !strcmp(line, netdev);
}

/* The kernel writes "4: ACTIVE". */
static bool is_port_of(const char *port, const void *netdev)
{
    char state[32], folder[PATH_BYTES];
    if (!device_choice_read_line(port, "/state", state, sizeof(state)) || state[0] != '4')
        return false;
    return snprintf(folder, sizeof(folder), "%s/gid_attrs/ndevs", port) < (int)sizeof(folder) &&
           any_entry(folder, names_netdev, netdev, NULL);
}

static bool is_device_of(const char *device, const void *netdev)
{
    char ports[PATH_BYTES];
    return snprintf(ports, sizeof(ports), "%s/ports", device) < (int)sizeof(ports) &&
           any_entry(ports, is_port_of, netdev, NULL);
}

bool sw_device_of_netdev(const char *sysfs, const char *netdev, char name[SW_DEVICE_NAME_MAX])
{
    *name = '\0';
    return any_entry(sysfs, is_device_of, netdev, name);
}

/* ---- addresses ---- */

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                   &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
}

static bool netdev_of(const struct sockaddr *address, char netdev[IF_NAMESIZE])
{
    struct ifaddrs *all;
    bool is_found = false;
    if (getifaddrs(&all))
        return false;
    for (const struct ifaddrs *one = all; one && !is_found; one = one->ifa_next) {
        is_found = same_address(one->ifa_addr, address);
        if (is_found)
            snprintf(netdev, IF_NAMESIZE, "%s", one->ifa_name);
    }
    freeifaddrs(all);
    return is_found;
}

/* Replaces a peer's address by ours that packets to it would bear. Sends nothing. */
static bool route_to(struct sockaddr_storage *address, socklen_t len)
{
    const int fd = socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_routed = fd >= 0 && !connect(fd, (struct sockaddr *)address, len) &&
                           !getsockname(fd, (struct sockaddr *)address, &len);
    if (fd >= 0)
        close(fd);
    return is_routed;
}

/* "192.0.2.1:4420", "[2001:db8::1]:4420", or either without a port; "/REGION" may follow. */
static void without_port(const char *text, char out[ADDRESS_MAX])
{
    const char *colon = strchr(text, ':');
    size_t len = strcspn(text, "/");
    if (*text == '[')
        len = strcspn(++text, "]");
    else if (colon && !strchr(colon + 1, ':'))
        len = (size_t)(colon - text);
    snprintf(out, ADDRESS_MAX, "%.*s", (int)(len < ADDRESS_MAX ? len : ADDRESS_MAX - 1), text);
}

static bool cli_device_of(const char *sysfs, const char *text, bool is_local,
                          char name[SW_DEVICE_NAME_MAX])
{
    char address[ADDRESS_MAX], netdev[IF_NAMESIZE];
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    struct sockaddr_storage at;
    without_port(text, address);
    if (getaddrinfo(address, "9", &hints, &found))
        return false;
    const socklen_t len = found->ai_addrlen;
    memcpy(&at, found->ai_addr, len);
    freeaddrinfo(found);
    return (is_local || route_to(&at, len)) && netdev_of((struct sockaddr *)&at, netdev) &&
           sw_device_of_netdev(sysfs, netdev, name);
}

/* ---- command lines ---- */

/* The value of an option at words[at], or NULL. */
static const char *device_choice_value_at(char *const *words, int count, int at,
                                          const struct sw_address_option *option)
{
    const char *word = words[at], *next = at + 1 < count ? words[at + 1] : NULL;
    const size_t longest = strlen(option->longest);
    if (!strcmp(word, option->shortest) || !strcmp(word, option->longest))
        return next;
    if (!strncmp(word, option->longest, longest) && word[longest] == '=')
        return word + longest + 1;
    return !strncmp(word, option->shortest, 2) && word[1] != '-' ? word + 2 : NULL;
}

static const char *device_choice_find_value(char *const *words, int count,
                                            const struct sw_address_option *options, bool is_local)
{
    for (int at = 0; at < count; at++)
        for (const struct sw_address_option *option = options; option->longest; option++) {
            const char *value = option->is_local == is_local
                                    ? device_choice_value_at(words, count, at, option)
                                    : NULL;
            if (value)
                return value;
        }
    return NULL;
}

bool sw_device_choose(const char *sysfs, char *const *words, int count,
                      const struct sw_address_option *options, char name[SW_DEVICE_NAME_MAX])
{
    const char *local = device_choice_find_value(words, count, options, true);
    const char *remote = local ? NULL : device_choice_find_value(words, count, options, false);
    *name = '\0';
    if (access(sysfs, X_OK) || (!local && !remote))
        return false;
    return cli_device_of(sysfs, local ? local : remote, local != NULL, name);
}

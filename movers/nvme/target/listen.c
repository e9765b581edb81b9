/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/wire/fabrics.h"

enum { PORT_DIGITS_MAX = 5 };

static int parse_ip6(const char *text, struct nvt_listen *out)
{
    char bare[INET6_ADDRSTRLEN];
    struct in6_addr addr;
    const size_t len = strcspn(text, "%");
    const char *scope = text + len;
    if (len >= sizeof(bare) || strlen(scope) > IF_NAMESIZE || strcmp(scope, "%") == 0 ||
        (*scope && scope[1 + strcspn(scope + 1, "%:/[] \t\n")]))
        return -EINVAL;
    memcpy(bare, text, len);
    bare[len] = '\0';
    if (inet_pton(AF_INET6, bare, &addr) != 1)
        return -EINVAL;
    if (*scope && !IN6_IS_ADDR_LINKLOCAL(&addr))
        return -EINVAL;
    inet_ntop(AF_INET6, &addr, out->traddr, INET6_ADDRSTRLEN);
    strcat(out->traddr, scope);
    out->adrfam = NVMF_ADDR_FAMILY_IP6;
    return 0;
}

int nvt_addr_parse(const char *text, uint8_t adrfam, struct nvt_listen *out)
{
    struct in_addr addr;
    if (adrfam != NVMF_ADDR_FAMILY_IP6 && inet_pton(AF_INET, text, &addr) == 1) {
        inet_ntop(AF_INET, &addr, out->traddr, sizeof(out->traddr));
        out->adrfam = NVMF_ADDR_FAMILY_IP4;
        return 0;
    }
    return adrfam == NVMF_ADDR_FAMILY_IP4 ? -EINVAL : parse_ip6(text, out);
}

uint16_t nvt_port_parse(const char *text)
{
    const size_t len = strspn(text, "0123456789");
    if (!len || len > PORT_DIGITS_MAX || text[len])
        return 0;
    const unsigned long port = strtoul(text, NULL, 10);
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* Sets where the address ends and where the port begins, if there is one. */
static int split_port(const char *text, const char **addr, size_t *addr_len, const char **port)
{
    *addr = text;
    *addr_len = strlen(text);
    *port = NULL;
    if (*text == '[') {
        const char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return -EINVAL;
        *addr = text + 1;
        *addr_len = (size_t)(end - *addr);
        *port = end[1] ? end + 2 : NULL;
        return 0;
    }
    const char *colon = strchr(text, ':');
    if (colon && !strchr(colon + 1, ':')) {
        *addr_len = (size_t)(colon - text);
        *port = colon + 1;
    }
    return 0;
}

int nvt_listen_parse(const char *text, struct nvt_listen *out, char *error, size_t error_bytes)
{
    char addr_text[NVT_ADDR_MAX];
    struct nvt_listen found = {.port = NVF_PORT};
    const char *addr, *port;
    size_t len;
    if (!split_port(text, &addr, &len, &port) && len < sizeof(addr_text)) {
        memcpy(addr_text, addr, len);
        addr_text[len] = '\0';
        if (port)
            found.port = nvt_port_parse(port);
        if (!found.port) {
            snprintf(error, error_bytes, "\"%.16s\" is not a port of 1 to 65535", port);
            return -EINVAL;
        }
        if (!nvt_addr_parse(addr_text, *text == '[' ? NVMF_ADDR_FAMILY_IP6 : 0, &found)) {
            *out = found;
            return 0;
        }
    }
    snprintf(error, error_bytes,
             "\"%.64s\" is not an address; write 192.0.2.1:4420 or [2001:db8::1]:4420", text);
    return -EINVAL;
}

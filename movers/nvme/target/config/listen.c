/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/spec.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "common/text/endpoint.h"
#include "common/text/number.h"
#include "nvme/wire/fabrics.h"

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
    uint16_t port;
    return mover_parse_port(text, &port) ? port : 0;
}

int nvt_listen_parse(const char *text, struct nvt_listen *out, char *error, size_t error_bytes)
{
    char copy[NVT_ADDR_MAX + sizeof("[]:65535")];
    struct nvt_listen found = {.port = NVF_PORT};
    const char *addr, *port = NULL;
    const int len = snprintf(copy, sizeof(copy), "%s", text);
    if (len < (int)sizeof(copy) && mover_split_endpoint(copy, &addr, &port)) {
        if (port)
            found.port = nvt_port_parse(port);
        if (!found.port) {
            snprintf(error, error_bytes, "\"%.16s\" is not a port of 1 to 65535", port);
            return -EINVAL;
        }
        if (!nvt_addr_parse(addr, *text == '[' ? NVMF_ADDR_FAMILY_IP6 : 0, &found)) {
            *out = found;
            return 0;
        }
    }
    snprintf(error, error_bytes,
             "\"%.64s\" is not an address; write 192.0.2.1:4420 or [2001:db8::1]:4420", text);
    return -EINVAL;
}

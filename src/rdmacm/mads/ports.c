/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names, all of abstract sockets:
 *   sidewire.cm.p<space>.<port>.<address>.<flags>.<slot>.<n>   a port that a program asked for
 *   sidewire.cm.b<space>.<block>      32 ephemeral ports, which the process gives to its IDs itself
 *   sidewire.cm.s<service>.<key>      where requests for a service go
 *   sidewire.cm.lock                  held while names are compared and bound; who waits for it
 *                                     connects to it, and sees its end
 * The rules are pairwise, so all names of a port must be looked at (link/names/names.h).
 */
#include "rdmacm/mads/ports.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "link/iwarp/socket.h"
#include "link/link.h"
#include "link/names/names.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/local_service.h"

#define EPHEMERAL_FIRST 32768u /* as the kernel has it: ip_local_port_range */
#define EPHEMERAL_PORTS 28224u
#define BLOCK_PORTS 32u
#define BLOCKS (EPHEMERAL_PORTS / BLOCK_PORTS)
#define BUCKETS 1024u
#define LOCK_WAIT_MS 1000

struct sw_cm_port {
    struct sw_cm_port *next, **back;
    struct sw_cm_port_name name;
    int fd;       /* its name; -1: it is of a block */
    int listener; /* -1: it does not listen */
    uint64_t service_id;
};

struct block { /* of ephemeral ports, this process's until it ends */
    struct block *next;
    uint32_t space, first, used, at; /* used: a bit for each port; at: where to look next */
    int fd;
};

static struct sw_cm_port *buckets[BUCKETS];
static struct block *blocks;

static struct sw_cm_port **ports_bucket_of(uint32_t port)
{
    return &buckets[port % BUCKETS];
}

static bool is_ipv4(const struct in6_addr *address)
{
    return IN6_IS_ADDR_V4MAPPED(address);
}

static bool ports_is_any(const struct in6_addr *address)
{
    static const struct in6_addr any_v4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    return IN6_IS_ADDR_UNSPECIFIED(address) || IN6_ARE_ADDR_EQUAL(address, &any_v4);
}

/* ---- rules ---- */

/* Whether two IDs may not both have the port, and why. */
static int names_conflict(const struct sw_cm_port_name *one, const struct sw_cm_port_name *other)
{
    if ((one->reuse && other->reuse) ||
        (one->afonly && other->afonly && is_ipv4(&one->address) != is_ipv4(&other->address)))
        return 0;
    if (ports_is_any(&one->address) || ports_is_any(&other->address))
        return -EADDRNOTAVAIL;
    return IN6_ARE_ADDR_EQUAL(&one->address, &other->address) ? -EADDRINUSE : 0;
}

static int conflict_here(const struct sw_cm_port_name *name, const struct sw_cm_port *self)
{
    int rc = 0;
    for (struct sw_cm_port *port = *ports_bucket_of(name->port); port && !rc; port = port->next)
        if (port != self && port->name.port == name->port && port->name.space == name->space)
            rc = names_conflict(name, &port->name);
    return rc;
}

/* ---- names ---- */

#define ADDRESS_DIGITS 32

static void ports_print_address(const struct in6_addr *address, char text[ADDRESS_DIGITS + 1])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", address->s6_addr[i]);
}

static bool parse_address(const char text[ADDRESS_DIGITS], struct in6_addr *address)
{
    for (int i = 0; i < 16; i++) {
        unsigned int byte;
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        if (sscanf(digits, "%2x", &byte) != 1)
            return false;
        address->s6_addr[i] = (uint8_t)byte;
    }
    return true;
}

static int bind_port(const struct sw_cm_port_name *name)
{
    static uint32_t serial;
    char text[ADDRESS_DIGITS + 1], whole[SW_NAME_BYTES];
    ports_print_address(&name->address, text);
    snprintf(whole, sizeof(whole), "sidewire.cm.p%x.%u.%s.%d.%u.%u", name->space, name->port, text,
             (name->afonly ? 1 : 0) | (name->reuse ? 2 : 0), sw_nic.slot, serial++);
    return sw_name_bind(SOCK_DGRAM, whole);
}

void sw_cm_port_service(uint64_t service_id, const struct in6_addr *address,
                        enum sw_cm_port_key key, char out[SW_NAME_BYTES])
{
    char text[ADDRESS_DIGITS + 1] = "any";
    if (key == SW_CM_PORT_EXACT)
        ports_print_address(address, text);
    else if (key == SW_CM_PORT_FAMILY)
        strcpy(text, is_ipv4(address) ? "any4" : "any6");
    snprintf(out, SW_NAME_BYTES, "sidewire.cm.s%llx.%s", (unsigned long long)service_id, text);
}

static enum sw_cm_port_key ports_key_of(const struct sw_cm_port_name *name)
{
    if (!ports_is_any(&name->address))
        return SW_CM_PORT_EXACT;
    return name->afonly ? SW_CM_PORT_FAMILY : SW_CM_PORT_ANY;
}

/* A name that concerns the port; `slot`: the process that has it. */
static bool parse_port(const char *name, struct sw_cm_port_name *out, uint32_t *slot)
{
    unsigned int space, port, flags, owner;
    char address[ADDRESS_DIGITS + 1];
    if (sscanf(name, "sidewire.cm.p%x.%u.%32[0-9a-f].%u.%u.", &space, &port, address, &flags,
               &owner) != 5)
        return false;
    *out = (struct sw_cm_port_name){
        .space = space, .port = (uint16_t)port, .afonly = flags & 1, .reuse = flags & 2};
    *slot = owner;
    return strlen(address) == ADDRESS_DIGITS && parse_address(address, &out->address);
}

static bool parse_block(const char *name, uint32_t *space, uint32_t *block)
{
    return sscanf(name, "sidewire.cm.b%x.%u", space, block) == 2;
}

static bool is_own_block(uint32_t space, uint32_t block)
{
    for (struct block *own = blocks; own; own = own->next)
        if (own->space == space && own->first == EPHEMERAL_FIRST + block * BLOCK_PORTS)
            return true;
    return false;
}

static bool block_has(uint32_t block, uint32_t port)
{
    return port >= EPHEMERAL_FIRST && (port - EPHEMERAL_FIRST) / BLOCK_PORTS == block;
}

struct elsewhere {
    const struct sw_cm_port_name *name;
    int rc;
};

static bool compare_name(void *context, const char *text)
{
    struct elsewhere *elsewhere = context;
    const struct sw_cm_port_name *name = elsewhere->name;
    struct sw_cm_port_name other;
    uint32_t slot, space, block;
    if (parse_port(text, &other, &slot) && slot != sw_nic.slot && other.port == name->port &&
        other.space == name->space)
        elsewhere->rc = names_conflict(name, &other);
    else if (parse_block(text, &space, &block) && space == name->space &&
             block_has(block, name->port) && !is_own_block(space, block))
        elsewhere->rc = -EADDRINUSE;
    return !elsewhere->rc;
}

/* The same against other processes. */
static int conflict_elsewhere(const struct sw_cm_port_name *name)
{
    struct elsewhere elsewhere = {.name = name};
    sw_names_visit("sidewire.cm.", compare_name, &elsewhere);
    return elsewhere.rc;
}

/* ---- the lock of all processes ---- */

/* Returns a descriptor that holds it until it is closed; -1: somebody keeps it for too long, and it
 * is done without. */
static int lock_names(void)
{
    static const char name[] = "sidewire.cm.lock";
    for (int tries = 0; tries < 1000; tries++) {
        int fd = sw_name_bind(SOCK_SEQPACKET, name);
        if (fd >= 0) {
            listen(fd, 1024);
            return fd;
        }
        if (fd != -EADDRINUSE)
            return -1;
        int waits = sw_name_connect(name); /* refused: it may have ended just now */
        struct pollfd end = {.fd = waits, .events = POLLIN};
        int rc = waits >= 0 ? poll(&end, 1, LOCK_WAIT_MS) : 1;
        if (waits >= 0)
            close(waits);
        if (rc == 0)
            break;
    }
    sw_warn("another process keeps the names of RDMA ports locked");
    return -1;
}

static void unlock_names(int lock)
{
    if (lock >= 0)
        close(lock);
}

/* ---- ports that nobody asked for by number ---- */

/* Listeners at iWARP devices use TCP, whose ports other programs have, too. The program has not
 * named one, so it is not its fault. */
static bool is_free_of_tcp(const struct sw_cm_port_name *name)
{
    return name->space != RDMA_PS_TCP || !sw_netdev_has_kind(SW_NETDEV_IWARP) ||
           sw_iwarp_socket_is_free(name->port);
}

static bool is_free(struct block *block, uint32_t bit)
{
    const struct sw_cm_port_name name = {.space = block->space,
                                         .port = (uint16_t)(block->first + bit)};
    return !(block->used >> bit & 1) && !conflict_here(&name, NULL) && is_free_of_tcp(&name);
}

/* A free port of the block; 0: there is none. Lately used ones last. */
static uint32_t take_from(struct block *block)
{
    for (uint32_t i = 0; i < BLOCK_PORTS; i++) {
        uint32_t bit = (block->at + i) % BLOCK_PORTS;
        if (is_free(block, bit)) {
            block->used |= 1u << bit;
            block->at = bit + 1;
            return block->first + bit;
        }
    }
    return 0;
}

struct taken {
    uint32_t space;
    bool blocks[BLOCKS];
};

static bool take_taken(void *context, const char *text)
{
    struct taken *taken = context;
    struct sw_cm_port_name name;
    uint32_t slot, of, block;
    if (parse_port(text, &name, &slot)) {
        if (name.space == taken->space && name.port >= EPHEMERAL_FIRST &&
            name.port < EPHEMERAL_FIRST + EPHEMERAL_PORTS)
            taken->blocks[(name.port - EPHEMERAL_FIRST) / BLOCK_PORTS] = true;
    } else if (parse_block(text, &of, &block) && of == taken->space && block < BLOCKS) {
        taken->blocks[block] = true;
    }
    return true;
}

static struct block *ports_add_block(uint32_t space)
{
    struct taken taken = {.space = space}; /* what others have of it: blocks, and ports in them */
    struct block *block = calloc(1, sizeof(*block));
    int lock = lock_names();
    sw_names_visit("sidewire.cm.", take_taken, &taken);
    uint32_t start = (sw_nic.slot * 2654435761u) >> 8;
    for (uint32_t i = 0; block && !block->first && i < BLOCKS; i++) {
        char name[SW_NAME_BYTES];
        uint32_t number = (start + i) % BLOCKS;
        if (taken.blocks[number])
            continue;
        snprintf(name, sizeof(name), "sidewire.cm.b%x.%u", space, number);
        block->fd = sw_name_bind(SOCK_DGRAM, name);
        if (block->fd >= 0)
            block->first = EPHEMERAL_FIRST + number * BLOCK_PORTS;
        else if (block->fd != -EADDRINUSE)
            break;
    }
    unlock_names(lock);
    if (!block || !block->first) {
        free(block);
        return NULL;
    }
    block->space = space;
    block->next = blocks;
    blocks = block;
    return block;
}

static uint32_t ports_take_any(uint32_t space)
{
    uint32_t port = 0;
    for (struct block *block = blocks; block && !port; block = block->next)
        if (block->space == space && block->used != UINT32_MAX)
            port = take_from(block);
    struct block *fresh = port ? NULL : ports_add_block(space);
    return fresh ? take_from(fresh) : port;
}

static void ports_give_back(const struct sw_cm_port_name *name)
{
    for (struct block *block = blocks; block; block = block->next)
        if (block->space == name->space && name->port - block->first < BLOCK_PORTS)
            block->used &= ~(1u << (name->port - block->first));
}

/* ---- claims ---- */

/* Ports below ip_unprivileged_port_start take a capability: as in the kernel. */
static bool may_have(uint32_t port)
{
    unsigned int first = 1024;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
    if (file) {
        if (fscanf(file, "%u", &first) != 1)
            first = 1024;
        fclose(file);
    }
    if (port >= first)
        return true;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    return syscall(SYS_capget, &header, data) == 0 && data[0].effective >> CAP_NET_BIND_SERVICE & 1;
}

static int claim_named(const struct sw_cm_port_name *name, int *fd)
{
    if (!may_have(name->port))
        return -EACCES;
    int rc = conflict_here(name, NULL);
    if (rc)
        return rc;
    int lock = lock_names();
    rc = conflict_elsewhere(name);
    if (!rc) {
        *fd = bind_port(name);
        rc = *fd < 0 ? *fd : 0;
    }
    unlock_names(lock);
    return rc;
}

int sw_cm_port_claim(struct sw_cm_port_name *name, struct sw_cm_port **out)
{
    sw_rdmacm_assert_locked();
    struct sw_cm_port *port = calloc(1, sizeof(*port));
    if (!port)
        return -ENOMEM;
    port->fd = port->listener = -1;
    int rc = 0;
    if (name->port)
        rc = claim_named(name, &port->fd);
    else if (!(name->port = (uint16_t)ports_take_any(name->space)))
        rc = -EADDRNOTAVAIL;
    if (rc) {
        free(port);
        return rc;
    }
    port->name = *name;
    port->back = ports_bucket_of(name->port);
    port->next = *port->back;
    if (port->next)
        port->next->back = &port->next;
    *port->back = port;
    *out = port;
    return 0;
}

void sw_cm_port_release(struct sw_cm_port *port)
{
    sw_rdmacm_assert_locked();
    if (!port)
        return;
    if (port->listener >= 0)
        sw_local_unserve(port->listener);
    if (port->fd >= 0)
        close(port->fd);
    else
        ports_give_back(&port->name);
    *port->back = port->next;
    if (port->next)
        port->next->back = port->back;
    free(port);
}

/* ---- listening ---- */

/* Whether the ID is alone: REUSEADDR does not count any more. */
static int check_alone(const struct sw_cm_port *port)
{
    struct sw_cm_port_name name = port->name;
    name.reuse = false;
    int rc = conflict_here(&name, port);
    return rc || port->fd < 0 ? rc : conflict_elsewhere(&name);
}

/* A client that is told the port before we listen may ask at once (qperf's do), so the opening of
 * the UDP port, which takes the longest, comes last: meanwhile requests wait for the lock. */
int sw_cm_port_listen(struct sw_cm_port *port, uint64_t service_id)
{
    sw_rdmacm_assert_locked();
    char name[SW_NAME_BYTES];
    if (port->listener >= 0)
        return -EINVAL;
    int rc = check_alone(port);
    if (rc)
        return rc;
    sw_cm_port_service(service_id, &port->name.address, ports_key_of(&port->name), name);
    int fd = sw_name_bind(SOCK_SEQPACKET, name);
    if (fd < 0)
        return fd;
    rc = listen(fd, 4096) ? -errno : sw_link_listen_far(&port->name.address);
    if (rc) {
        close(fd);
        return rc;
    }
    port->listener = fd;
    port->service_id = service_id;
    sw_local_serve(fd);
    return 0;
}

bool sw_cm_port_serves(uint64_t service_id, const struct in6_addr *address)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (const struct sw_cm_port *port = buckets[i]; port; port = port->next)
            if (port->listener >= 0 && port->service_id == service_id &&
                (ports_is_any(&port->name.address)
                     ? !port->name.afonly || is_ipv4(&port->name.address) == is_ipv4(address)
                     : IN6_ARE_ADDR_EQUAL(&port->name.address, address)))
                return true;
    return false;
}

void sw_cm_port_fork_child(void)
{
    for (uint32_t i = 0; i < BUCKETS; i++) {
        for (struct sw_cm_port *port = buckets[i]; port; port = port->next) {
            if (port->fd >= 0)
                close(port->fd);
            if (port->listener >= 0)
                close(port->listener);
        }
        buckets[i] = NULL;
    }
    for (struct block *block = blocks; block; block = block->next)
        close(block->fd);
    blocks = NULL;
}

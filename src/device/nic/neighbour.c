/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/nic/neighbour.h"

#include <assert.h>
#include <errno.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fds.h"
#include "wire/packet.h"

#define ANSWER_BYTES 4096
#define ETHERNET_BYTES 6
#define KNOWN (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT)

union answer {
    struct nlmsghdr head;
    uint8_t room[ANSWER_BYTES];
};

struct question {
    struct nlmsghdr head;
    union {
        struct ndmsg neighbour;
        struct rtmsg route;
    };
    uint8_t attrs[64];
};
static_assert(sizeof(struct ndmsg) == sizeof(struct rtmsg), "attributes begin at one place");

/* A GID that is an IPv4 address has it in its last four bytes. */
static bool neighbour_is_ipv4(const union ibv_gid *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return !memcmp(address->raw, mapped, sizeof(mapped));
}

static bool is_link_local(const union ibv_gid *address)
{
    return address->raw[0] == 0xfe && (address->raw[1] & 0xc0) == 0x80;
}

static void add_attr(struct question *question, unsigned short type, const void *data, size_t len)
{
    struct rtattr *attr =
        (struct rtattr *)((char *)question + NLMSG_ALIGN(question->head.nlmsg_len));
    attr->rta_type = type;
    attr->rta_len = (unsigned short)RTA_LENGTH(len);
    memcpy(RTA_DATA(attr), data, len);
    question->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(question->head.nlmsg_len) + RTA_LENGTH(len));
}

static void neighbour_add(struct question *question, unsigned short type,
                          const union ibv_gid *address)
{
    const size_t len = neighbour_is_ipv4(address) ? 4 : 16;
    add_attr(question, type, address->raw + sizeof(address->raw) - len, len);
}

static struct question question_of(unsigned int ifindex, const union ibv_gid *address)
{
    struct question question = {
        .head = {.nlmsg_type = RTM_GETNEIGH,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_len = NLMSG_LENGTH(sizeof(question.neighbour))},
        .neighbour = {.ndm_family = neighbour_is_ipv4(address) ? AF_INET : AF_INET6,
                      .ndm_ifindex = (int)ifindex},
    };
    neighbour_add(&question, NDA_DST, address);
    return question;
}

static bool ask_kernel(int fd, const struct question *question, union answer *answer)
{
    ssize_t got = send(fd, question, question->head.nlmsg_len, 0);
    while (got >= 0 && (got = recv(fd, answer, sizeof(*answer), 0)) < 0 && errno == EINTR)
        got = 0;
    return got > 0 && NLMSG_OK(&answer->head, (unsigned int)got);
}

static int open_table(void)
{
    return sw_fd_own((int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
}

static bool read_answer(struct nlmsghdr *answer, uint8_t mac[6])
{
    const struct ndmsg *neighbour = NLMSG_DATA(answer);
    if (answer->nlmsg_type != RTM_NEWNEIGH || !(neighbour->ndm_state & KNOWN))
        return false;
    int len = (int)(answer->nlmsg_len - NLMSG_LENGTH(sizeof(*neighbour)));
    struct rtattr *attr = (struct rtattr *)((char *)answer + NLMSG_SPACE(sizeof(struct ndmsg)));
    for (; RTA_OK(attr, len); attr = RTA_NEXT(attr, len)) {
        if (attr->rta_type != NDA_LLADDR || RTA_PAYLOAD(attr) != ETHERNET_BYTES)
            continue;
        memcpy(mac, RTA_DATA(attr), ETHERNET_BYTES);
        return true;
    }
    return false;
}

bool sw_neighbour_find(unsigned int ifindex, const union ibv_gid *address, uint8_t mac[6])
{
    const struct question question = question_of(ifindex, address);
    union answer answer;
    const int fd = open_table();
    if (fd < 0)
        return false;
    const bool has_answer = ask_kernel(fd, &question, &answer);
    close(fd);
    return has_answer && read_answer(&answer.head, mac);
}

/* ---- whether packets can leave ---- */

struct hop {
    unsigned int ifindex;
    union ibv_gid address;
};

static void set_hop_address(struct hop *hop, int family, const void *address)
{
    static const union ibv_gid mapped = {.raw = {[10] = 0xff, [11] = 0xff}};
    const size_t len = family == AF_INET ? 4 : 16;
    hop->address = mapped;
    memcpy(hop->address.raw + sizeof(hop->address.raw) - len, address, len);
}

/* An IPv4 route may lead over an IPv6 hop (RFC 5549). False: the hop is of another family. */
static bool read_via(const struct rtattr *attr, struct hop *hop)
{
    struct rtvia via;
    if (RTA_PAYLOAD(attr) < sizeof(via))
        return false;
    memcpy(&via, RTA_DATA(attr), sizeof(via));
    const size_t address_len = via.rtvia_family == AF_INET    ? 4
                               : via.rtvia_family == AF_INET6 ? 16
                                                              : SIZE_MAX;
    if (RTA_PAYLOAD(attr) - sizeof(via) != address_len)
        return false;
    set_hop_address(hop, via.rtvia_family, (const char *)RTA_DATA(attr) + sizeof(via));
    return true;
}

/* False: the route says more than where its next hop is. */
static bool read_hop(struct nlmsghdr *answer, int family, struct hop *hop)
{
    struct rtmsg *route = NLMSG_DATA(answer);
    int len = (int)RTM_PAYLOAD(answer);
    for (struct rtattr *attr = RTM_RTA(route); RTA_OK(attr, len); attr = RTA_NEXT(attr, len)) {
        if (attr->rta_type == RTA_OIF && RTA_PAYLOAD(attr) == sizeof(hop->ifindex))
            memcpy(&hop->ifindex, RTA_DATA(attr), sizeof(hop->ifindex));
        else if (attr->rta_type == RTA_GATEWAY && RTA_PAYLOAD(attr) == (family == AF_INET ? 4 : 16))
            set_hop_address(hop, family, RTA_DATA(attr));
        else if ((attr->rta_type == RTA_VIA && !read_via(attr, hop)) ||
                 attr->rta_type == RTA_ENCAP || attr->rta_type == RTA_MULTIPATH)
            return false;
    }
    return hop->ifindex;
}

/* False: what the kernel knows needs no neighbour, or it has no answer. */
static bool find_hop(int fd, unsigned int ifindex, const union ibv_gid *source,
                     const union ibv_gid *dest, struct hop *hop)
{
    const uint8_t bits = neighbour_is_ipv4(dest) ? 32 : 128;
    struct question question = {
        .head = {.nlmsg_type = RTM_GETROUTE,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_len = NLMSG_LENGTH(sizeof(question.route))},
        .route = {.rtm_family = neighbour_is_ipv4(dest) ? AF_INET : AF_INET6,
                  .rtm_dst_len = bits,
                  .rtm_src_len = bits},
    };
    union answer answer;
    neighbour_add(&question, RTA_DST, dest);
    neighbour_add(&question, RTA_SRC, source);
    if (is_link_local(dest))
        add_attr(&question, RTA_OIF, &ifindex, sizeof(ifindex));
    if (neighbour_is_ipv4(source) != neighbour_is_ipv4(dest) ||
        !ask_kernel(fd, &question, &answer) || answer.head.nlmsg_type != RTM_NEWROUTE ||
        ((struct rtmsg *)NLMSG_DATA(&answer.head))->rtm_type != RTN_UNICAST)
        return false;
    *hop = (struct hop){.address = *dest};
    return read_hop(&answer.head, question.route.rtm_family, hop);
}

/* Tunnels and the loopback have no neighbours. */
static bool has_neighbours(int fd, unsigned int ifindex)
{
    struct ifreq interface = {.ifr_ifindex = (int)ifindex};
    return !ioctl(fd, SIOCGIFNAME, &interface) && !ioctl(fd, SIOCGIFFLAGS, &interface) &&
           !(interface.ifr_flags & (IFF_NOARP | IFF_LOOPBACK | IFF_POINTOPOINT));
}

static enum sw_neighbour_state look_at_hop(int fd, const struct hop *hop)
{
    const struct question question = question_of(hop->ifindex, &hop->address);
    union answer answer;
    if (!ask_kernel(fd, &question, &answer))
        return SW_NEIGHBOUR_KNOWN;
    if (answer.head.nlmsg_type == NLMSG_ERROR) /* before Linux 5.0 it cannot be asked for one */
        return ((struct nlmsgerr *)NLMSG_DATA(&answer.head))->error == -ENOENT ? SW_NEIGHBOUR_ABSENT
                                                                               : SW_NEIGHBOUR_KNOWN;
    if (answer.head.nlmsg_type != RTM_NEWNEIGH)
        return SW_NEIGHBOUR_KNOWN;
    const struct ndmsg *neighbour = NLMSG_DATA(&answer.head);
    return neighbour->ndm_state & (KNOWN | NUD_NOARP) ? SW_NEIGHBOUR_KNOWN
           : neighbour->ndm_state & NUD_INCOMPLETE    ? SW_NEIGHBOUR_ASKED
                                                      : SW_NEIGHBOUR_ABSENT;
}

enum sw_neighbour_state sw_neighbour_look(unsigned int ifindex, const union ibv_gid *source,
                                          const union ibv_gid *dest)
{
    enum sw_neighbour_state state = SW_NEIGHBOUR_KNOWN;
    struct hop hop;
    const int fd = open_table();
    if (fd < 0)
        return state;
    if (find_hop(fd, ifindex, source, dest, &hop) && has_neighbours(fd, hop.ifindex))
        state = look_at_hop(fd, &hop);
    close(fd);
    return state;
}

static socklen_t neighbour_sockaddr(unsigned int ifindex, const union ibv_gid *gid, uint16_t port,
                                    struct sockaddr_in6 *out)
{
    if (neighbour_is_ipv4(gid)) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&in.sin_addr, gid->raw + 12, sizeof(in.sin_addr));
        memcpy(out, &in, sizeof(in));
        return sizeof(in);
    }
    *out = (struct sockaddr_in6){.sin6_family = AF_INET6,
                                 .sin6_port = htons(port),
                                 .sin6_scope_id = is_link_local(gid) ? ifindex : 0};
    memcpy(&out->sin6_addr, gid->raw, sizeof(out->sin6_addr));
    return sizeof(*out);
}

/* A datagram to QP 1 that ends after its BTH: every receiver knows the opcode, and drops it for its
 * length. An empty datagram can crash the peer's kernel. rdma_rxe of Linux 6.1 looks up the queue
 * pair of a packet only behind the check of its length, but releases it in either case: over IPv6
 * that pointer is a piece of an address. */
enum { QUESTION_BYTES = SW_BTH_BYTES + SW_ICRC_BYTES };

static void make_question(uint8_t out[QUESTION_BYTES])
{
    const struct sw_opcode *opcode = sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, 0);
    const struct sw_packet packet = {
        .opcode = opcode,
        .bth = {.opcode = opcode->number, .pkey = SW_PKEY_DEFAULT, .dest_qpn = 1},
    };
    uint8_t headers[SW_HEADERS_MAX];
    sw_packet_encode_headers(&packet, headers, sizeof(headers));
    memset(out, 0, QUESTION_BYTES);
    memcpy(out, headers, SW_BTH_BYTES);
}

/* System calls, since a library that makes RDMA of sockets may stand before libc's. */
bool sw_neighbour_ask(unsigned int ifindex, const union ibv_gid *source, const union ibv_gid *dest)
{
    struct sockaddr_in6 from, to;
    uint8_t question[QUESTION_BYTES];
    const socklen_t from_len = neighbour_sockaddr(ifindex, source, 0, &from),
                    to_len = neighbour_sockaddr(ifindex, dest, SW_ROCE_PORT, &to);
    const bool is_v4 = neighbour_is_ipv4(dest);
    const int kind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, one = 1;
    const int fd = sw_fd_own((int)syscall(SYS_socket, is_v4 ? AF_INET : AF_INET6, kind, 0));
    if (fd < 0)
        return true; /* it may be had later */
    make_question(question);
    syscall(SYS_setsockopt, fd, is_v4 ? IPPROTO_IP : IPPROTO_IPV6,
            is_v4 ? IP_TTL : IPV6_UNICAST_HOPS, &one, sizeof(one));
    const bool has_left = !syscall(SYS_bind, fd, &from, from_len) &&
                          syscall(SYS_sendto, fd, question, sizeof(question), 0, &to, to_len) > 0;
    const bool is_forbidden = !has_left && (errno == EPERM || errno == EACCES);
    close(fd);
    return !is_forbidden;
}

/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/connections.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#include "cli/report.h"
#include "link/connections.h"

enum { RNR_FOREVER = 7, SHOWN_MOST = 64, ADDRESS_BYTES = INET6_ADDRSTRLEN + 10, NAME_BYTES = 16 };

struct listing {
    struct sw_report *report;
    unsigned int shown, left_out;
};

static void connections_print_address(const struct sockaddr_in6 *from, char out[ADDRESS_BYTES])
{
    char text[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in in;
    uint16_t port = ntohs(from->sin6_port); /* sin_port is at the same place */
    memcpy(&in, from, sizeof(in));
    if (from->sin6_family == AF_INET)
        inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    else if (from->sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&from->sin6_addr))
        inet_ntop(AF_INET, from->sin6_addr.s6_addr + 12, text, sizeof(text));
    else if (from->sin6_family == AF_INET6)
        inet_ntop(AF_INET6, &from->sin6_addr, text, sizeof(text));
    if (port)
        snprintf(out, ADDRESS_BYTES, strchr(text, ':') ? "[%s]:%u" : "%s:%u", text, port);
    else
        snprintf(out, ADDRESS_BYTES, "%s", text);
}

static const char *state_name(uint8_t state)
{
    static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static const char *start_trouble(const struct sw_connection *c, const char **mend)
{
    if (c->stage == SW_CONNECTION_CALLS) {
        *mend = "see that the peer has an iWARP device at this address: sidewire devices, there";
        return c->tcp.rtt_us ? "its request is not answered" : "TCP is not connected yet";
    }
    return c->flags & SW_CONNECTION_HAS_ASKED ? "its program has neither accepted nor rejected it"
                                              : "the peer has connected and not asked";
}

static const char *wait_trouble(const struct sw_connection *c, const char **mend)
{
    static const char *const texts[SW_CONNECTION_WAITS] = {
        [SW_CONNECTION_WAITS_RECEIVE] = "waits for a receive: the peer's program has none posted",
        [SW_CONNECTION_WAITS_PEER] = "waits for the peer, from which nothing comes",
        [SW_CONNECTION_WAITS_PROCESS] =
            "waits for the peer's process: it is stopped, busy, or does not poll",
        [SW_CONNECTION_WAITS_MEETING] =
            "waits for the peer's queue pair: it is not connected yet, or not any more",
        [SW_CONNECTION_WAITS_WINDOW] = "waits for the window of congestion control",
        [SW_CONNECTION_WAITS_FENCE] = "fenced behind READs or atomics that are under way",
        [SW_CONNECTION_WAITS_DEPTH] = "as many READs and atomics are under way as may be",
        [SW_CONNECTION_WAITS_RATE] = "held back by its own rate limit",
    };
    if (c->wait == SW_CONNECTION_WAITS_PEER)
        *mend = "look at the path to the peer: sidewire doctor, there; ping";
    return c->wait < SW_CONNECTION_WAITS ? texts[c->wait] : NULL;
}

/* What the kernel tells. */
static const char *tcp_trouble(const struct sw_connection *c, const char **mend)
{
    if (c->tcp.tries) {
        *mend = "look at the path to the peer: ping, ss -ti";
        return "the network does not carry TCP's segments: one is sent again and again";
    }
    if (c->flags & SW_CONNECTION_IS_BLOCKED && c->tcp.unsent > c->tcp.window)
        return "waits for the peer's window: its program does not poll, or is stopped";
    if (c->flags & SW_CONNECTION_IS_BLOCKED)
        return "TCP's send queue is full: the path is slower than the program";
    return NULL;
}

const char *sw_connection_trouble(const struct sw_connection *c, const char **mend)
{
    *mend = "";
    if (c->stage != SW_CONNECTION_RUNS)
        return start_trouble(c, mend);
    const char *tcp = tcp_trouble(c, mend);
    if (tcp)
        return tcp;
    if (c->link != SW_CONNECTION_IWARP)
        return wait_trouble(c, mend);
    if (c->flags & SW_CONNECTION_IS_HELD && c->sends)
        return "waits for the initiator, which has to speak first";
    if (c->tcp.unread && !(c->flags & SW_CONNECTION_IS_WATCHED))
        return "bytes came that nobody has read yet: the program polls another queue, or is busy";
    if (c->reads)
        return "waits for the peer's answer to a READ";
    return NULL;
}

static void tell_iwarp(struct sw_finding *finding, const struct sw_connection *c)
{
    char own[ADDRESS_BYTES], peer[ADDRESS_BYTES], text[192];
    connections_print_address(&c->own, own);
    connections_print_address(&c->peer, peer);
    sw_finding_detail(finding, "iWARP, %s to %s", own, peer);
    if (c->stage != SW_CONNECTION_RUNS)
        return;
    snprintf(text, sizeof(text),
             "%s, CRC %s, read by %s; TCP: %u bytes queued, %u unread, %u segments sent again, "
             "round trip %u us",
             state_name(c->qp_state), c->flags & SW_CONNECTION_HAS_CRC ? "on" : "off",
             c->flags & SW_CONNECTION_IS_WATCHED ? "the engine" : "the program", c->tcp.queued,
             c->tcp.unread, c->tcp.retransmits, c->tcp.rtt_us);
    sw_finding_append(finding, text);
}

static void tell_other(struct sw_finding *finding, const struct sw_connection *c)
{
    static const char *const links[] = {[SW_CONNECTION_DIRECT] = "direct",
                                        [SW_CONNECTION_ROCE] = "RoCE",
                                        [SW_CONNECTION_TCP] = "RoCE over TCP"};
    const char *link = c->link < sizeof(links) / sizeof(links[0]) ? links[c->link] : NULL;
    char peer[ADDRESS_BYTES];
    connections_print_address(&c->peer, peer);
    sw_finding_detail(finding, "%s, to queue pair 0x%x of %s, %s", link ? link : "?", c->peer_qpn,
                      peer, state_name(c->qp_state));
    if (c->flags & SW_CONNECTION_HAS_MOVED)
        sw_finding_append(finding, "nothing had come by UDP");
}

static void tell_queues(struct sw_finding *finding, const struct sw_connection *c)
{
    char text[96];
    if (c->stage != SW_CONNECTION_RUNS)
        return;
    if (c->flags & SW_CONNECTION_HAS_SRQ)
        snprintf(text, sizeof(text), "%u requests wait, receives are of an SRQ", c->sends);
    else
        snprintf(text, sizeof(text), "%u requests wait, %u receives are posted", c->sends,
                 c->receives);
    sw_finding_append(finding, text);
}

/* For how long, and how much longer. */
static void tell_wait(struct sw_finding *finding, const struct sw_connection *c)
{
    char text[96];
    if (c->wait == SW_CONNECTION_WAITS_RECEIVE && c->tries_most == RNR_FOREVER)
        snprintf(text, sizeof(text), "refused %u times, tries for ever", c->tries);
    else if (c->wait == SW_CONNECTION_WAITS_RECEIVE)
        snprintf(text, sizeof(text), "refused %u times of %u", c->tries, c->tries_most + 1u);
    else if (c->waited_ms && c->end_ms)
        snprintf(text, sizeof(text), "for %u ms, given up after %u", c->waited_ms, c->end_ms);
    else if (c->waited_ms)
        snprintf(text, sizeof(text), "for %u ms", c->waited_ms);
    else
        return;
    sw_finding_append(finding, text);
}

static void read_program(pid_t pid, char out[NAME_BYTES])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/comm", (long)pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(out, NAME_BYTES, file))
        strcpy(out, "?");
    out[strcspn(out, "\n")] = '\0';
    if (file)
        fclose(file);
}

static void add_connection(void *arg, pid_t pid, const struct sw_connection *c)
{
    struct listing *listing = arg;
    char program[NAME_BYTES], name[NAME_BYTES + 32];
    const char *mend, *trouble = sw_connection_trouble(c, &mend);
    if (listing->shown == SHOWN_MOST) {
        listing->left_out++;
        return;
    }
    listing->shown++;
    read_program(pid, program);
    snprintf(name, sizeof(name), "%s %ld 0x%x", program, (long)pid, c->qpn);
    struct sw_finding *finding = sw_report_add(listing->report, SW_GROUP_CONNECTIONS,
                                               trouble ? SW_VERDICT_NO : SW_VERDICT_NOTE, name);
    if (c->link == SW_CONNECTION_IWARP)
        tell_iwarp(finding, c);
    else
        tell_other(finding, c);
    tell_queues(finding, c);
    if (trouble) {
        sw_finding_append(finding, trouble);
        tell_wait(finding, c);
    }
    sw_finding_mend(finding, "%s", mend);
}

void sw_connections_probe(struct sw_report *report)
{
    struct listing listing = {.report = report};
    sw_connections_each(add_connection, &listing);
    if (listing.left_out)
        sw_finding_detail(sw_report_add(report, SW_GROUP_CONNECTIONS, SW_VERDICT_NOTE, "and more"),
                          "%u more connections are not shown", listing.left_out);
}

/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says for each address whether an ID of librdmacm has a device when it is bound to the address,
 * when it listens there, and when it has resolved it: bound ADDRESS... Runs in the guest and here.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

#define RESOLVE_MS 30000

static void read_address(const char *text, struct sockaddr_storage *out)
{
    struct sockaddr_in *in = (struct sockaddr_in *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof(*out));
    out->ss_family = strchr(text, ':') ? AF_INET6 : AF_INET;
    inet_pton(out->ss_family, text,
              out->ss_family == AF_INET6 ? (void *)&in6->sin6_addr : (void *)&in->sin_addr);
}

static void tell(const char *text, const char *what, int rc, const struct rdma_cm_id *id)
{
    printf("%s %s: %s\n", text, what, rc ? "error" : id->verbs ? "a device" : "no device");
}

static void listen_at(struct rdma_event_channel *events, const char *text)
{
    struct sockaddr_storage address;
    struct rdma_cm_id *id;
    read_address(text, &address);
    if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP))
        return;
    tell(text, "bound", rdma_bind_addr(id, (struct sockaddr *)&address), id);
    tell(text, "listening", rdma_listen(id, 1), id);
    rdma_destroy_id(id);
}

static void resolve(struct rdma_event_channel *events, const char *text, int is_bound)
{
    struct sockaddr_storage address;
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    read_address(text, &address);
    if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP))
        return;
    int rc = is_bound ? rdma_bind_addr(id, (struct sockaddr *)&address) : 0;
    if (!rc)
        rc = rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS);
    if (!rc)
        rc = rdma_get_cm_event(events, &event);
    if (!rc) {
        rc = event->status;
        rdma_ack_cm_event(event);
    }
    tell(text, is_bound ? "bound and resolved" : "resolved", rc, id);
    rdma_destroy_id(id);
}

int main(int argc, char **argv)
{
    struct rdma_event_channel *events = rdma_create_event_channel();
    if (!events)
        return 1;
    for (int i = 1; i < argc; i++) {
        listen_at(events, argv[i]);
        resolve(events, argv[i], 0);
        resolve(events, argv[i], 1);
    }
    rdma_destroy_event_channel(events);
    return 0;
}

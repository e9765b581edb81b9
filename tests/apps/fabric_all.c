// SPDX-License-Identifier: BSD-2-Clause
// fabric_all TYPE PROVIDER DOMAIN ADDRESS PORT SIDE: libfabric over our devices. TYPE is msg, srx
// (msg with a shared receive context), rdm or dgram; SIDE is server or client; ADDRESS is the
// server's.
#include "fabric_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 30, NAME_LEN_MAX = 128, QUEUE_LEN = 64 };

bool is_server;
uint64_t checks;
uint64_t remote_data;

static int tcp = -1;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_pep *pep;
static struct fid_mr *mr;

void end_in_failure(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: WRONG: ", is_server ? "server" : "client");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

const char *text_of(long rc)
{
    return fi_strerror((int)-rc);
}

void check_time(const char *what)
{
    static time_t start;
    if (!start)
        start = time(NULL);
    check(time(NULL) - start < PATIENCE_S, "%s takes too long", what);
}

void progress(void)
{
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    const ssize_t rc = cq ? fi_cq_read(cq, &entry, 1) : -FI_EAGAIN;
    if (rc == -FI_EAVAIL) {
        must(fi_cq_readerr(cq, &error, 0));
        check(error.op_context, "an error that belongs to nothing: %d", error.err);
        ((struct op *)error.op_context)->error = error.err;
        ((struct op *)error.op_context)->done = true;
    } else if (rc != -FI_EAGAIN) {
        must(rc);
        if ((entry.flags & FI_RMA) && (entry.flags & FI_REMOTE_CQ_DATA))
            remote_data = entry.data;
        if (entry.op_context) {
            struct op *op = entry.op_context;
            op->len = entry.len;
            op->flags = entry.flags;
            op->data = entry.data;
            op->tag = entry.tag;
            op->done = true;
        }
    }
}

void wait_for(struct op *op)
{
    while (!op->done) {
        progress();
        check_time("an operation");
    }
}

void swap_with_peer(const void *mine, void *other, size_t len)
{
    size_t got = 0;
    check(send(tcp, mine, len, 0) == (ssize_t)len, "the peer is gone");
    while (got < len) {
        const ssize_t rc = recv(tcp, (char *)other + got, len - got, MSG_DONTWAIT);
        check(rc > 0 || (rc < 0 && errno == EAGAIN), "the peer has ended");
        got += rc > 0 ? (size_t)rc : 0;
        progress();
        check_time("the peer");
    }
}

void meet_peer(void)
{
    char other = 0;
    swap_with_peer("x", &other, 1);
}

static void open_tcp(const char *address, const char *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, address, &name.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!is_server) {
        check(connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0, "connect: %s",
              strerror(errno));
        tcp = fd;
        return;
    }
    check(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(fd, 1) == 0,
          "port %s: %s", port, strerror(errno));
    tcp = accept(fd, NULL, NULL);
    check(tcp >= 0, "accept: %s", strerror(errno));
    close(fd);
}

// What is wanted; a server of connections says where it listens, a client whom it wants.
static struct fi_info *find_info(char **argv, enum fi_ep_type type)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_info *info = NULL;
    const bool by_name = type == FI_EP_MSG;
    hints->ep_attr->type = type;
    // No atomics of msg: the verbs provider adds the operand's address in the place of its value.
    hints->caps = FI_MSG | (type == FI_EP_DGRAM ? 0 : FI_RMA);
    hints->caps |= type == FI_EP_RDM ? FI_TAGGED | FI_ATOMIC : 0;
    hints->mode =
        FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA | (type == FI_EP_DGRAM ? FI_MSG_PREFIX : 0);
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(argv[2]);
    hints->domain_attr->name = strdup(argv[3]);
    must(fi_getinfo(FI_VERSION(1, 17), by_name ? argv[4] : NULL, by_name ? argv[5] : NULL,
                    by_name && is_server ? FI_SOURCE : 0, hints, &info));
    check(!strcmp(info->domain_attr->name, argv[3]), "another device: %s", info->domain_attr->name);
    fi_freeinfo(hints);
    return info;
}

static void open_domain(struct fi_info *info, struct side *side)
{
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_DATA, .size = 4 * QUEUE_LEN};
    const uint64_t all = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (info->caps & FI_TAGGED)
        cq_attr.format = FI_CQ_FORMAT_TAGGED; // it begins as the other one
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    must(fi_domain(fabric, info, &domain, NULL));
    must(fi_cq_open(domain, &cq_attr, &cq, NULL));
    must(fi_mr_reg(domain, side->memory, PARTS * PART_LEN,
                   info->caps & FI_RMA ? all : FI_SEND | FI_RECV, 0, 1, 0, &mr, NULL));
    if (info->ep_attr->type != FI_EP_MSG)
        must(fi_av_open(domain, &av_attr, &av, NULL));
    side->info = info;
    side->desc = fi_mr_desc(mr);
    if (info->tx_attr->mode & FI_MSG_PREFIX)
        side->out_prefix_len = info->ep_attr->msg_prefix_size;
    if (info->rx_attr->mode & FI_MSG_PREFIX)
        side->in_prefix_len = info->ep_attr->msg_prefix_size;
}

// Each side says where its memory is.
static void swap_keys(struct side *side)
{
    uint64_t mine[2] = {0, fi_mr_key(mr)};
    uint64_t other[2];
    if (side->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        mine[0] = (uintptr_t)side->memory;
    swap_with_peer(mine, other, sizeof(mine));
    side->peer_memory = other[0];
    side->peer_key = other[1];
}

static void open_endpoint(struct fi_info *info, struct side *side, bool shared)
{
    must(fi_endpoint(domain, info, &side->ep, NULL));
    must(fi_ep_bind(side->ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    if (eq)
        must(fi_ep_bind(side->ep, &eq->fid, 0));
    if (av)
        must(fi_ep_bind(side->ep, &av->fid, 0));
    if (shared && !side->rx)
        must(fi_srx_context(domain, info->rx_attr, &side->rx, NULL));
    if (shared)
        must(fi_ep_bind(side->ep, &side->rx->fid, 0));
    else
        side->rx = side->ep;
    must(fi_enable(side->ep));
}

// The next event of the connection manager and what comes with it; 0: an error, whose number is in
// *error.
static uint32_t next_event(struct fi_eq_cm_entry *entry, unsigned char *data, int *error)
{
    unsigned char room[sizeof(*entry) + 256];
    uint32_t event = 0;
    ssize_t rc;
    while ((rc = fi_eq_read(eq, &event, room, sizeof(room), 0)) == -FI_EAGAIN) {
        check_time("an event");
        progress();
    }
    if (rc == -FI_EAVAIL) {
        struct fi_eq_err_entry fault = {.err_data = data, .err_data_size = CM_DATA_LEN};
        must(fi_eq_readerr(eq, &fault, 0));
        *error = fault.err;
        return 0;
    }
    must(rc);
    check(rc >= (ssize_t)sizeof(*entry), "an event of %zd bytes", rc);
    memcpy(entry, room, sizeof(*entry));
    memcpy(data, room + sizeof(*entry),
           (size_t)rc - sizeof(*entry) < CM_DATA_LEN ? (size_t)rc - sizeof(*entry) : CM_DATA_LEN);
    return event;
}

static void fill_cm(unsigned char *data, unsigned char first)
{
    for (int i = 0; i < CM_DATA_LEN; i++)
        data[i] = (unsigned char)(first + i);
}

static void check_cm(const unsigned char *data, unsigned char first, const char *what)
{
    for (int i = 0; i < CM_DATA_LEN; i++)
        check(data[i] == (unsigned char)(first + i), "%s: byte %d is %d", what, i, data[i]);
}

// The first request is refused, the second one taken; each way some bytes go along.
static void accept_client(struct fi_info *info, struct side *side, bool shared)
{
    struct fi_eq_cm_entry entry;
    unsigned char data[CM_DATA_LEN];
    int error = 0;
    must(fi_passive_ep(fabric, info, &pep, NULL));
    must(fi_pep_bind(pep, &eq->fid, 0));
    must(fi_listen(pep));
    meet_peer();
    check(next_event(&entry, data, &error) == FI_CONNREQ, "no first request: %d", error);
    check_cm(data, 10, "the first request");
    fill_cm(data, 20);
    must(fi_reject(pep, entry.info->handle, data, CM_DATA_LEN));
    fi_freeinfo(entry.info);
    check(next_event(&entry, data, &error) == FI_CONNREQ, "no second request: %d", error);
    check_cm(data, 30, "the second request");
    open_endpoint(entry.info, side, shared);
    fill_cm(data, 40);
    must(fi_accept(side->ep, data, CM_DATA_LEN));
    check(next_event(&entry, data, &error) == FI_CONNECTED, "not connected: %d", error);
}

static void connect_server(struct fi_info *info, struct side *side, bool shared)
{
    struct fi_eq_cm_entry entry;
    unsigned char data[CM_DATA_LEN];
    int error = 0;
    meet_peer();
    open_endpoint(info, side, shared);
    fill_cm(data, 10);
    must(fi_connect(side->ep, info->dest_addr, data, CM_DATA_LEN));
    check(next_event(&entry, data, &error) == 0 && error == FI_ECONNREFUSED, "not refused: %d",
          error);
    check_cm(data, 20, "the refusal");
    must(fi_close(&side->ep->fid));
    open_endpoint(info, side, shared);
    fill_cm(data, 30);
    must(fi_connect(side->ep, info->dest_addr, data, CM_DATA_LEN));
    check(next_event(&entry, data, &error) == FI_CONNECTED, "not connected: %d", error);
    check_cm(data, 40, "the answer");
}

// Endpoints without connection tell each other their names.
static void swap_names(struct side *side)
{
    unsigned char mine[NAME_LEN_MAX] = {0};
    unsigned char other[NAME_LEN_MAX];
    size_t len = sizeof(mine);
    must(fi_getname(&side->ep->fid, mine, &len));
    swap_with_peer(mine, other, sizeof(mine));
    check(fi_av_insert(av, other, 1, &side->to, 0, NULL) == 1, "the peer's name is not taken");
}

static void end_connection(struct side *side)
{
    struct fi_eq_cm_entry entry;
    unsigned char data[CM_DATA_LEN];
    int error = 0;
    meet_peer();
    if (!is_server)
        must(fi_shutdown(side->ep, 0));
    check(next_event(&entry, data, &error) == FI_SHUTDOWN, "the end is not told: %d", error);
}

int main(int argc, char **argv)
{
    struct side side = {.memory = aligned_alloc(4096, PARTS * PART_LEN)};
    check(argc == 7 && side.memory, "usage: %s TYPE PROVIDER DOMAIN ADDRESS PORT SIDE", argv[0]);
    is_server = !strcmp(argv[6], "server");
    const bool connected = strcmp(argv[1], "rdm") && strcmp(argv[1], "dgram");
    const bool shared = !strcmp(argv[1], "srx");
    memset(side.memory, 0, PARTS * PART_LEN);
    open_tcp(argv[4], argv[5]);
    struct fi_info *info = find_info(argv, connected           ? FI_EP_MSG
                                           : argv[1][0] == 'r' ? FI_EP_RDM
                                                               : FI_EP_DGRAM);
    must(fi_fabric(info->fabric_attr, &fabric, NULL));
    if (connected)
        must(fi_eq_open(fabric, &(struct fi_eq_attr){.wait_obj = FI_WAIT_UNSPEC}, &eq, NULL));
    open_domain(info, &side);
    if (connected) {
        (is_server ? accept_client : connect_server)(info, &side, shared);
    } else {
        open_endpoint(info, &side, false);
        swap_names(&side);
    }
    swap_keys(&side);
    run_messages(&side);
    if (info->caps & FI_TAGGED)
        run_tagged(&side);
    if (info->caps & FI_RMA)
        run_rma(&side);
    run_atomics(&side);
    run_cancel(&side);
    if (connected)
        run_bad_key(&side);
    meet_peer();
    if (connected)
        end_connection(&side);
    must(fi_close(&side.ep->fid));
    printf("%s: %" PRIu64 " checks\n", argv[1], checks);
    return 0;
}

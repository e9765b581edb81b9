/* SPDX-License-Identifier: BSD-2-Clause */
#include "port_rig.h"

#include <net/if.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../preload/namespace.h"
#include "base/clock.h"
#include "device/rules/pub.h"
#include "wire/bytes.h"

const uint8_t lo_v4[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};

struct port_seen seen;
bool are_strangers;

/* Payload byte i of packet n is n + i. */
static void keep_one(const uint8_t *bytes, uint32_t len_bytes)
{
    const uint8_t *payload = bytes + SW_BTH_BYTES;
    uint32_t n = sw_be24_load(bytes + 9); /* its PSN */
    uint32_t len = len_bytes - SW_BTH_BYTES - SW_ICRC_BYTES - (bytes[1] >> 4 & 3);
    if (bytes[0] == ACK)
        len = 0;
    for (uint32_t i = 0; i < len; i++)
        seen.damaged |= payload[i] != (uint8_t)(n + i);
    seen.lens[seen.count % KEPT] = len;
    seen.order[seen.count % KEPT] = n;
    seen.count++;
}

bool keep(void *arg, const struct sw_arrival *arrival)
{
    (void)arg;
    for (uint32_t i = 0; i < arrival->count; i++)
        keep_one(arrival->bytes + (size_t)i * arrival->len_bytes, arrival->len_bytes);
    seen.last = *arrival;
    seen.calls++;
    return !are_strangers;
}

void lo_set(short flags, int mtu)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_flags = flags;
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    request.ifr_mtu = mtu;
    assert_int_equal(ioctl(fd, SIOCSIFMTU, &request), 0);
    close(fd);
}

int open_pair(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    memset(&seen, 0, sizeof(seen));
    lo_set(IFF_UP, 65536);
    assert_int_equal(sw_port_open(&pair->one, SW_ROCE_PORT, 5, keep, NULL), 0);
    assert_int_equal(sw_port_open(&pair->two, SW_ROCE_PORT, 6, keep, NULL), 0);
    sw_lock_acquire(&pair->one.rx_lock); /* the test alone receives */
    sw_lock_acquire(&pair->two.rx_lock);
    *state = pair;
    return 0;
}

int close_pair(void **state)
{
    struct pair *pair = *state;
    sw_port_close(&pair->one);
    sw_port_close(&pair->two);
    free(pair);
    return 0;
}

struct sw_roce_path path_to(struct sw_port *port, const uint8_t from[16], const uint8_t to[16])
{
    struct sw_roce_path path = {.sender = 3, .traffic_class = 0x62, .hop_limit = 9};
    assert_int_equal(sw_roce_path_set(&path, from, to, 0), 0);
    assert_int_equal(sw_port_aim(port, &path), 0);
    return path;
}

uint8_t packet_opcode = SEND_ONLY;
uint32_t packet_damage;
uint32_t packet_qp = 7;
uint8_t pattern[KEPT + SW_PACKET_PAYLOAD_MAX];

/* Packet n: to a QP of `slot`, from several pieces. */
void add(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t slot, uint32_t n,
         uint32_t len)
{
    struct sw_packet packet = {
        .bth = {.opcode = packet_opcode,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = sw_qpn_make(slot, packet_qp),
                .psn = n},
        .payload_len = len,
    };
    uint8_t header[SW_HEADERS_MAX];
    struct iovec pieces[3] = {{pattern + n, len / 3},
                              {pattern + n + len / 3, len / 3},
                              {pattern + n + len / 3 * 2, len - len / 3 * 2}};
    struct sw_outgoing out = {
        .path = path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
        .pieces = pieces,
        .piece_count = 3,
        .payload_bytes = len,
        .damage = packet_damage,
    };
    sw_batch_add(batch, &out);
}

void add_ack(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t slot, uint32_t n)
{
    const struct sw_packet packet = {
        .opcode = sw_opcode_of(ACK),
        .bth = {.opcode = ACK,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = sw_qpn_make(slot, packet_qp),
                .psn = n},
    };
    uint8_t header[SW_HEADERS_MAX];
    const struct sw_outgoing out = {
        .path = path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
    };
    sw_batch_add(batch, &out);
}

/* Has both ports receive until there are so many packets. */
void receive(struct pair *pair, uint32_t want)
{
    uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    while (seen.count < want && sw_clock_ns() < limit_ns) {
        struct pollfd wait[2] = {{pair->one.epoll, POLLIN, 0}, {pair->two.epoll, POLLIN, 0}};
        poll(wait, 2, 100);
        sw_port_receive(&pair->one, sw_clock_ns(), true);
        sw_port_receive(&pair->two, sw_clock_ns(), true);
    }
    assert_int_equal(seen.count, want);
    assert_false(seen.damaged);
}

void came_in_order(uint32_t count)
{
    assert_int_equal(seen.count, count);
    assert_false(seen.damaged);
    for (uint32_t n = 0; n < count; n++)
        assert_int_equal(seen.order[n], n);
}
int enter_port_namespace(void)
{
    if (namespace_enter(CLONE_NEWNET)) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (uint8_t)i;
    return 0;
}

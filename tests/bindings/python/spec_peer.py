# SPDX-License-Identifier: BSD-2-Clause
"""A peer of the transfer engine with pyverbs alone, written from docs/transfer.md: "The card", "The
protocol". It uses nothing of ours.

Numbers of the document are written out here once more on purpose: whatever it leaves open shows.
"""
import collections
import ipaddress
import struct

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.qp import QPCap, QPInitAttr

Card = collections.namedtuple('Card', 'instance layout addresses regions')
Region = collections.namedtuple('Region', 'name address bytes keys rights')
READ, WRITE = 1, 2
NOTICE, ACK, END, ENDED = 1, 2, 5, 6
DEPTH, READS, MESSAGE_BYTES = 32, 4, 2048


class Refused(Exception):
    """A rejection: (version, reason)."""


def crc32c(data):
    """Castagnoli's polynomial, bit by bit, reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def parse_card(data):
    """A Card; ValueError where the tables say that these bytes are none."""
    magic, version, count = struct.unpack_from('<IHB', data)
    if magic != 0x43585753:
        raise ValueError('magic')
    if version not in (1, 2):
        raise ValueError('version')
    length, sum_of, instance, layout, regions = struct.unpack_from('<II16sQH', data, 8)
    if length != len(data) or crc32c(data[:12] + bytes(4) + data[16:]) != sum_of:
        raise ValueError('length or sum')
    addresses, at = [], 48
    for _ in range(count):
        family, port, address = struct.unpack_from('<BxH4x16s', data, at)
        addresses.append((str(ipaddress.ip_address(address[:4] if family == 4 else address)), port))
        at += 24
    found = []
    for _ in range(regions):
        name, address, size, key, rights = struct.unpack_from('<32sQQII', data, at)
        others = (
            struct.unpack_from(f'<{count - 1}I', data, at + 56)
            if version == 2
            else (key,) * (count - 1)
        )
        found.append(Region(name[: name.index(0)].decode(), address, size, (key, *others), rights))
        at += 56 + 4 * (count - 1) * (version == 2)
    return Card(instance, layout, addresses, found)


def layout_of(description):
    """FNV-1a of 64 bits, with 1 in place of 0."""
    value = 0xCBF29CE484222325
    for byte in description:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value or 1


class Connection:
    """To the agent of a card. Its first message can be damaged on purpose."""

    def __init__(
        self,
        card,
        instance=bytes(16),
        layout=0,
        session=1,
        called=None,
        damage=lambda data: data,
        lane=0,
        count=0,
    ):
        address, port = card.addresses[lane]
        self.lane = lane
        self.channel = CMEventChannel()
        self.id = CMID(creator=self.channel, port_space=ce.RDMA_PS_TCP)
        self.id.resolve_addr(
            AddrInfo(dst=address, dst_service=str(port), port_space=ce.RDMA_PS_TCP), 2000
        )
        self.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        self.id.resolve_route(2000)
        self.expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        self.id.create_qp(
            QPInitAttr(
                qp_type=e.IBV_QPT_RC,
                cap=QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1),
            )
        )
        self.receive = self.id.reg_msgs(MESSAGE_BYTES)
        self.send = self.id.reg_msgs(MESSAGE_BYTES)
        self.id.post_recv(self.receive, MESSAGE_BYTES)
        hello = damage(
            struct.pack(
                '<IHBB16s16sQQ',
                0x50585753,
                1,
                lane,
                count,
                called or card.instance,
                instance,
                layout,
                session,
            )
        )
        param = ConnParam(resources=READS, depth=READS, retry=7, rnr_retry=7, data_len=len(hello))
        param.set_private_data(hello)
        self.id.connect(param)
        answer = self.expect(ce.RDMA_CM_EVENT_ESTABLISHED)
        magic, version, self.instance, self.notices, self.notice_bytes = struct.unpack_from(
            '<IH2x16sHH', answer
        )
        assert (magic, version) == (0x50585753, 1) and len(answer) >= 32, answer

    def expect(self, kind):
        """The next event's private data."""
        event = CMEvent(self.channel)
        data, found = event.private_data, event.event_type
        event.ack_cm_event()
        if found == ce.RDMA_CM_EVENT_REJECTED and kind != found:
            magic, version, reason = struct.unpack_from('<IHH', data)
            assert magic == 0x50585753, data
            raise Refused(version, reason)
        assert found == kind, (found, kind)
        return data

    def completes(self):
        return self.id.get_send_comp().status

    def write(self, region, offset, data, key=None):
        memory = self.id.reg_msgs(len(data))
        memory.write(data, len(data))
        self.id.post_write(
            memory,
            len(data),
            region.address + offset,
            key or region.keys[self.lane],
            e.IBV_SEND_SIGNALED,
        )
        return self.completes()

    def read(self, region, offset, length):
        """(status, bytes)"""
        memory = self.id.reg_read(length)
        self.id.post_read(
            memory, length, region.address + offset, region.keys[self.lane], e.IBV_SEND_SIGNALED
        )
        return self.completes(), memory.read(length, 0)

    def message(self, data):
        self.send.write(data, len(data))
        self.id.post_send(self.send, e.IBV_SEND_SIGNALED, len(data))
        return self.completes()

    def notice(self, tag, data):
        """Sends one; the tag of the acknowledgement."""
        return self.asked(NOTICE, ACK, tag, data)

    def end(self, tag, lane, count):
        """Asks to end a lane's connections before that of the count; the tag of the answer."""
        return self.asked(END, ENDED, tag, struct.pack('<BB6x', lane, count))

    def asked(self, ask, answer, tag, data):
        assert (
            self.message(struct.pack('<IBBHQ', 0x4D585753, ask, 0, 16 + len(data), tag) + data)
            == e.IBV_WC_SUCCESS
        )
        length = self.id.get_recv_comp().byte_len
        magic, kind, _, said, acked = struct.unpack('<IBBHQ', self.receive.read(16, 0))
        self.id.post_recv(self.receive, MESSAGE_BYTES)
        assert (magic, kind, said, length) == (0x4D585753, answer, 16, 16), (
            magic,
            kind,
            said,
            length,
        )
        return acked

    def close(self):
        self.id.disconnect()
        self.forget()

    def forget(self):
        """Without a word to the other side, which may have ended it."""
        self.id.close()

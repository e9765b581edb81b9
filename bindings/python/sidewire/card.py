# SPDX-License-Identifier: BSD-2-Clause
"""Cards: the bytes that a peer must know (docs/transfer.md)."""
import collections

from . import _engine

Region = collections.namedtuple('Region', 'name bytes may_read may_write')

MAY_READ, MAY_WRITE = 1, 2


class Card(bytes):
    """Card(data): checks the bytes; BadCard or VersionMismatch where they are no card that this
    version knows.

    It is bytes: write it into a file, send it by a socket. Anybody who has it may use its leases.
    """

    def __new__(cls, data):
        card = super().__new__(cls, data)
        card.version, card.instance, card.layout, card.addresses, regions = _engine.read_card(card)
        card.regions = [
            Region(name, size, bool(rights & MAY_READ), bool(rights & MAY_WRITE))
            for name, size, rights in regions
        ]
        return card

    def __repr__(self):
        addresses = ', '.join(self.addresses)
        regions = ', '.join(region.name or '-' for region in self.regions)
        return f'<sidewire.Card of {self.instance.hex()} at {addresses}: {regions}>'

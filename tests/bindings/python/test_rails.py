# SPDX-License-Identifier: BSD-2-Clause
"""Several rails between two network namespaces: both are used, one is lost under traffic and comes
back, peers die and stop."""
import json
import os
import select
import signal
import subprocess
import sys
import time
import unittest

import served

ROOT = os.path.abspath(os.path.join(served.HERE, '../../..'))
sys.path.insert(0, os.path.join(ROOT, 'tests/apps'))
sys.path.insert(0, os.path.join(ROOT, 'tests/tools'))
import abreast  # noqa: E402
import hosts  # noqa: E402
import pair  # noqa: E402

SECOND = ('10.98.0.1', '10.98.0.2')
SIZE, LIMIT_S = 32 << 20, 40

SERVER = '''
import json
address, *rails = sys.argv[2:]
size = int(sys.argv[1])
array = np.full(size + 8192, 0xa5, np.uint8)
agent = sidewire.Agent(address, rails=rails)
lease = agent.memory(array).lease('all', write=True, offset=4096, bytes=size)
print(agent.card(lease).hex(), flush=True)
threading.Thread(target=agent.run, daemon=True).start()
for line in sys.stdin:
    if line == 'canaries\\n':
        print(bool((array[:4096] == 0xa5).all() and (array[-4096:] == 0xa5).all()), flush=True)
    elif line == 'notices\\n':
        found = []
        while (notice := agent.try_notice()) is not None:
            found.append(notice.data.decode())
        print(json.dumps(found), flush=True)
    elif line == 'revoke\\n':
        lease.revoke()
        print('revoked', flush=True)
    elif line == 'window\\n':
        visitor = agent.notice(timeout=20).visitor
        whole = agent.memory(array)
        lease = whole.lease('all', write=True, offset=4096, bytes=size, visitor=visitor)
        print(agent.card(lease).hex() if lease.is_window else 'no window', flush=True)
    else:
        print(bool((array[4096:-4096] == int(line) % 251).all()), flush=True)
os._exit(0)
'''

CLIENT = '''
import json
size, card = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
address, *rails = sys.argv[3:] or [None]
array = np.zeros(size, np.uint8)
agent = sidewire.Agent(address, rails=rails, connect_timeout=2, stall_timeout=3)
peer = agent.connect(card, timeout=20)
block = 1 << 18
local = agent.memory(array).blocks(bytes=block, stride=block, count=size // block)
transfer = peer.write(local, peer.blocks('all', bytes=block, stride=block, count=size // block))
def say(**words):
    print(json.dumps({**words, 'rails': peer.rails, 'state': peer.state}), flush=True)
say()
number = 0
for line in sys.stdin:
    word, count = json.loads(line)
    if word == 'post':
        for _ in range(count):
            number += 1
            array[:] = number % 251
            try:
                transfer.post(f'notice {number}')
                transfer.wait(30)
                say(number=number, why='')
            except sidewire.Error as error:
                say(number=number, why=type(error).__name__, left=transfer.state)
                break
    elif word == 'notify':
        peer.notify('who am I').wait(30)
        say()
    elif word == 'card':
        card = bytes.fromhex(count)
        target = peer.blocks('all', bytes=block, stride=block, count=size // block, card=card)
        transfer = peer.write(local, target)
        say()
    elif word == 'until made':
        until = time.monotonic() + 30
        while time.monotonic() < until:
            made = sum(rail['connections'] for rail in peer.rails)
            if made >= count and all(rail['is_up'] for rail in peer.rails):
                break
            agent.run(0.02)
        say()
    elif word == 'until up':
        until = time.monotonic() + 30
        while sum(rail['is_up'] for rail in peer.rails) < count and time.monotonic() < until:
            agent.run(0.02)
        say()
    elif word == 'idle':
        until = time.monotonic() + count
        while time.monotonic() < until:
            agent.run(0.02)
        say()
os._exit(0)
'''


class Program:
    def __init__(self, test, host, text, *words):
        environment = {**os.environ, 'SIDEWIRE_LINK': 'roce'}
        preload = environment.pop('LD_PRELOAD')
        self.process = subprocess.Popen(
            [
                *test.hosts.wrap[host],
                'env',
                f'LD_PRELOAD={preload}',
                sys.executable,
                '-c',
                served.PROLOGUE + text,
                *words,
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.rest = b''
        test.addCleanup(self.process.communicate)
        test.addCleanup(self.process.kill)

    def line(self, limit_s=LIMIT_S):
        until = time.monotonic() + limit_s
        while b'\n' not in self.rest:
            ready = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[
                0
            ]
            data = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b''
            if not data:
                raise AssertionError('it has ended' if ready else 'it says nothing')
            self.rest += data
        line, self.rest = self.rest.split(b'\n', 1)
        return line.decode()

    def tell(self, text):
        self.process.stdin.write((text + '\n').encode())
        self.process.stdin.flush()

    def ask(self, text):
        self.tell(text)
        return self.line()


class Rails(unittest.TestCase):
    def setUp(self):
        try:
            self.hosts = hosts.Hosts()
        except pair.Skip as why:
            self.skipTest(str(why))
        self.addCleanup(self.hosts.close)
        self.links = self.hosts.add_rail()

    def start(self, server=(hosts.ADDRESSES[0], SECOND[0]), client=(hosts.ADDRESSES[1], SECOND[1])):
        self.server = Program(self, 0, SERVER, str(SIZE), *server)
        self.card = self.server.line()
        self.client = Program(self, 1, CLIENT, str(SIZE), self.card, *client)
        return json.loads(self.client.line())

    def next(self):
        return json.loads(self.client.line())

    def post(self, count=1):
        self.client.tell(json.dumps(['post', count]))
        told = [self.next() for _ in range(count)]
        for one in told:
            self.assertEqual(one['why'], '', one)
        self.assertEqual(self.server.ask(str(told[-1]['number'])), 'True')
        return told[-1]

    def all_up(self, count=2):
        self.client.tell(json.dumps(['until up', count]))
        told = self.next()
        self.assertEqual(sum(rail['is_up'] for rail in told['rails']), count, told)
        return told

    def check_notices(self, count):
        self.assertEqual(
            json.loads(self.server.ask('notices')), [f'notice {i + 1}' for i in range(count)]
        )
        self.assertEqual(self.server.ask('canaries'), 'True')

    def test_rails__both_are_used(self):
        self.start()
        self.all_up()
        told = self.post(3)
        self.assertEqual(sum(rail['bytes'] for rail in told['rails']), 3 * SIZE)
        for rail in told['rails']:
            self.assertGreater(rail['bytes'], SIZE // 10)
        self.check_notices(3)

    def lose_and_mend(self, host, link, lost):
        self.start()
        self.all_up()
        self.post()
        self.client.tell(json.dumps(['post', 12]))
        told = self.next()
        self.hosts.set_link(host, link, 'down')
        for _ in range(11):
            self.assertEqual(told['why'], '', told)
            told = self.next()
        self.assertEqual(told['why'], '', told)
        told = self.post()
        self.assertEqual(
            [rail['is_up'] for rail in told['rails']], [rail != lost for rail in range(2)]
        )
        self.assertEqual(told['state'], 'live')
        before = told['rails'][lost]['bytes']
        self.hosts.set_link(host, link, 'up')
        told = self.all_up()
        self.assertGreaterEqual(told['rails'][lost]['connections'], 2)
        self.assertEqual(told['rails'][1 - lost]['connections'], 1)
        self.assertGreater(self.post(3)['rails'][lost]['bytes'], before)
        self.check_notices(17)

    def test_rails__the_second_is_lost_and_comes_back(self):
        self.lose_and_mend(1, self.links[1], 1)

    def test_rails__the_first_is_lost_at_the_other_end(self):
        self.lose_and_mend(0, self.hosts.names[0], 0)

    def test_rails__peer_is_killed(self):
        self.start()
        self.all_up()
        self.client.tell(json.dumps(['post', 100]))
        self.next()
        self.server.process.kill()
        told = self.next()
        while not told['why']:
            told = self.next()
        self.assertEqual((told['why'], told['state']), ('PeerGone', 'gone'))

    def test_rails__lost_with_a_peer_that_is_stopped(self):
        self.start()
        self.all_up()
        self.post()
        self.server.process.send_signal(signal.SIGSTOP)
        self.client.tell(json.dumps(['post', 1]))
        self.hosts.set_link(1, self.links[1], 'down')
        told = self.next()
        self.assertEqual((told['why'], told['left']), ('PeerGone', 'failed'))
        self.server.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.server.ask('canaries'), 'True')

    def test_rails__agents_with_one_and_with_two(self):
        told = self.start(client=())
        self.assertEqual(len(told['rails']), 2)
        self.all_up()  # routes lead to both
        self.post(2)
        other = Program(self, 1, CLIENT, str(SIZE), self.card, hosts.ADDRESSES[1])
        told = json.loads(other.line())
        self.assertEqual(json.loads(other.ask('["post", 1]'))['why'], '')
        self.start(server=hosts.ADDRESSES[:1])
        told = self.post(2)
        self.assertEqual([rail['bytes'] for rail in told['rails']], [2 * SIZE])

    def test_rails__a_lease_is_revoked_on_all(self):
        self.start()
        self.all_up()
        self.post()
        self.assertEqual(self.server.ask('revoke'), 'revoked')
        self.client.tell('["post", 1]')
        self.assertEqual(self.next()['why'], 'Denied')
        self.assertEqual(self.server.ask('1'), 'True')

    def test_rails__a_window_for_each_is_there_again_with_it(self):
        self.start()
        self.all_up()
        self.client.ask(json.dumps(['notify', 0]))
        card = self.server.ask('window')
        self.client.ask(json.dumps(['card', card]))
        self.post()
        self.hosts.set_link(1, self.links[1], 'down')
        told = self.post(2)
        self.assertEqual([rail['is_up'] for rail in told['rails']], [True, False])
        before = told['rails'][1]['bytes']
        self.hosts.set_link(1, self.links[1], 'up')
        self.all_up()
        self.assertGreater(self.post(2)['rails'][1]['bytes'], before)
        self.assertEqual(self.server.ask('revoke'), 'revoked')
        self.client.tell('["post", 1]')
        self.assertEqual(self.next()['why'], 'Denied')
        self.assertEqual(self.server.ask('5'), 'True')

    def start_with_a_detour(self):
        """The second rail of the server is reached from the client's first, too, where its second
        is away."""
        self.hosts.ip(
            '-n',
            self.hosts.names[1],
            *'route add 10.98.0.0/24 via'.split(),
            hosts.ADDRESSES[0],
            'metric',
            '500',
        )
        self.start()
        self.all_up()
        self.post()

    def sent(self):
        """Bytes by the client's second interface."""
        path = f'/sys/class/net/{self.links[1]}/statistics/tx_bytes'
        return int(
            subprocess.run(
                [*self.hosts.wrap[1], 'cat', path], capture_output=True, check=True
            ).stdout
        )

    def test_rails__made_anew_from_another_comes_home(self):
        self.start_with_a_detour()
        self.hosts.set_link(1, self.links[1], 'down')
        self.post(2)
        self.client.tell(json.dumps(['until made', 3]))  # from the first
        told = self.next()
        self.assertEqual([rail['connections'] for rail in told['rails']], [1, 2])
        told = self.post(2)
        before = told['rails'][1]['bytes']
        self.hosts.set_link(1, self.links[1], 'up')
        self.client.tell(json.dumps(['until made', 4]))
        told = self.next()
        self.assertGreaterEqual(told['rails'][1]['connections'], 3)
        self.assertEqual(told['rails'][0]['connections'], 1)
        sent = self.sent()
        told = self.post(4)
        self.assertGreater(told['rails'][1]['bytes'], before)
        self.assertGreater(self.sent() - sent, told['rails'][1]['bytes'] - before)
        self.check_notices(9)

    def test_rails__one_whose_port_never_returns(self):
        self.start_with_a_detour()
        self.client.tell(json.dumps(['post', 8]))
        self.next()
        away = self.hosts.names[1] + 'z'  # the device vanishes, and its addresses with it
        self.hosts.ip('netns', 'add', away)
        self.addCleanup(self.hosts.ip, 'netns', 'del', away)
        self.hosts.ip('-n', self.hosts.names[1], 'link', 'set', self.links[1], 'netns', away)
        for _ in range(7):
            self.assertEqual((told := self.next())['why'], '', told)
        self.all_up()  # from the first
        self.post(2)
        self.check_notices(11)


if __name__ == '__main__':
    sys.exit(abreast.main(jobs=3))

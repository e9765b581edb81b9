# SPDX-License-Identifier: BSD-2-Clause
"""Histories of blocks, and whether they are linearizable: whether each request can have happened at
one moment between its begin and its end, such that each read returns what was written last.

The search is that of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993), with the
memory of visited states that Lowe added, and a request is placed as late as possible: when its end
must be explained. A state is the value of the block, and which of the requests under way have
happened. Blocks are checked one by one: a history is linearizable if that of each block is.

A request with an unknown outcome may happen at any time after its begin, or never. A write that its
host has sent once more, since its path was lost, may happen several times until its end.
"""
import collections

STATES_MAX = 200_000  # of one block at a time; more are told as undecided

Request = collections.namedtuple(
    'Request', 'who kind block value begin end is_equal is_again', defaults=[True, False]
)


class Undecided(Exception):
    """There are too many states."""


class History:
    """Requests of several hosts. `errors` are results that no host should see."""

    def __init__(self):
        self.requests, self.errors, self.torn, self.unknown, self.again = [], [], 0, 0, 0

    def add_host(self, name, text):
        """Takes the lines of history_host; the last one may be cut off."""
        begun, again = {}, set()
        for line in text.split('\n')[:-1]:
            words = line.split()
            if words[:1] == ['begin']:
                begun[words[1]] = words[2], int(words[3]), int(words[4], 16), int(words[5])
            elif words[:1] == ['end']:
                self.add_ended(name, begun.pop(words[1]), words[1] in again, *words[2:])
            elif words == ['again']:
                again.update(begun)
        for number, (kind, block, value, begin) in begun.items():
            self.add(name, kind, block, value, begin, None, is_again=number in again)

    def add_ended(self, name, begun, is_again, status, value, end):
        kind, block, wanted, begin = begun
        if status == 'not-done':
            return
        if status not in ('ok', 'unequal'):
            self.errors.append(f'{name}: {kind} of block {block}: {status}')
            self.add(name, kind, block, wanted, begin, None, is_again=is_again)
        elif value == 'torn':
            self.torn += 1
            self.add(name, kind, block, 'torn', begin, int(end))
        else:
            self.add(name, kind, block, int(value, 16), begin, int(end), status == 'ok', is_again)

    def add(self, who, kind, block, value, begin, end, is_equal=True, is_again=False):
        is_again = is_again and kind == 'w'
        self.again += is_again
        self.unknown += end is None and kind == 'w'
        if end is not None or kind == 'w':  # other requests without a result explain nothing
            self.requests.append(Request(who, kind, block, value, begin, end, is_equal, is_again))

    def blocks(self):
        found = collections.defaultdict(list)
        for request in self.requests:
            found[request.block].append(request)
        return found

    def fault(self, initial=0):
        """What is wrong, as text; None: it is linearizable."""
        for block, requests in sorted(self.blocks().items()):
            try:
                wrong = unexplained(requests, initial)
            except Undecided:
                return f'block {block}: more than {STATES_MAX} states, undecided'
            if wrong is not None:
                return explain(block, requests, wrong)
        return None


def happens(request, value):
    """The value after the request; None: it cannot happen here."""
    if request.kind == 'w':
        return request.value
    return value if (request.value == value) == request.is_equal else None


class States:
    """A state is the value of the block and the requests that have happened, a bit for each. Where
    two states differ only by requests with an unknown outcome, the one in which fewer have happened
    can do all that the other one can: that one is forgotten."""

    def __init__(self, unsure):
        self.unsure, self.kept, self.count = unsure, {}, 0

    def add(self, value, done):
        """Whether it is new."""
        key, some = (value, done & ~self.unsure), done & self.unsure
        known = self.kept.setdefault(key, [])
        if any(one & some == one for one in known):
            return False
        known[:] = [one for one in known if one & some != some]
        known.append(some)
        self.count += 1
        if self.count > STATES_MAX:
            raise Undecided
        return True

    def __iter__(self):
        for (value, done), known in self.kept.items():
            for some in known:
                yield value, done | some


def place(states, target, pending, requests, unsure):
    """All states that follow from `states` and in which the request `target` has happened, by
    placing requests under way, `target` last. Its bit is forgotten: it has ended."""
    seen, reached, work = States(unsure), States(unsure), collections.deque(states)
    for state in states:
        seen.add(*state)
    while work:
        value, done = work.popleft()
        if done >> target & 1:
            reached.add(value, done & ~(1 << target))
            if not requests[target].is_again:  # else it may happen once more before it ends
                continue
        for i in pending:
            is_over = done >> i & 1 and not requests[i].is_again
            after = None if is_over else happens(requests[i], value)
            if after is None or not seen.add(after, done | 1 << i):
                continue
            if unsure >> i & 1:
                work.append((after, done | 1 << i))
            else:
                work.appendleft((after, done | 1 << i))
    return reached


def unexplained(requests, initial):
    """The first request, by its end, that nothing explains; None: all have happened."""
    requests = sorted(requests, key=lambda request: request.begin)
    events = [(request.begin, 0, i) for i, request in enumerate(requests)]
    events += [(request.end, 1, i) for i, request in enumerate(requests) if request.end is not None]
    unsure = sum(1 << i for i, request in enumerate(requests) if request.end is None)
    states, pending = [(initial, 0)], set()
    for _, is_end, i in sorted(events):
        if not is_end:
            pending.add(i)
            continue
        states = list(place(states, i, pending, requests, unsure))
        pending.discard(i)
        if not states:
            return requests[i]
    return None


def explain(block, requests, wrong):
    """The fault, and the requests around it in the order of their ends."""
    lines = [f'block {block}: nothing explains {told(wrong, wrong.begin)}']
    same = [one for one in requests if one.value == wrong.value and one is not wrong]
    near = [one for one in requests if one.end is None or one.end >= wrong.begin - 200_000_000]
    for one in sorted(set(same + near), key=lambda one: one.begin):
        if one.begin <= wrong.end:
            lines.append(told(one, wrong.begin))
    return '\n    '.join(lines[:60])


def told(request, since):
    value = request.value if request.value == 'torn' else f'{request.value:x}'
    word = {'w': 'write', 'r': 'read', 'c': 'compare'}[request.kind]
    end = 'unknown' if request.end is None else f'{(request.end - since) / 1e6:.3f}'
    unequal = '' if request.is_equal else ' (unequal)'
    unequal += ' (sent again)' if request.is_again else ''
    begin = f'{(request.begin - since) / 1e6:.3f}'
    return f'{request.who}: {word} {value}{unequal}, from {begin} to {end} ms'

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The checker of histories: it takes what can have happened, and finds what cannot, also in random
histories with one result that is changed. Small ones are compared with a search of all orders."""
import itertools
import os
import random
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import history  # noqa: E402
from history import History, Request, happens, unexplained  # noqa: E402

# Requests of one block: kind, value, begin, end (None: unknown), whether it was equal, whether it
# was sent again; then whether that can have happened.
CASES = {
    'nothing': ([], True),
    'a block begins with zeroes': ([('r', 0, 1, 2)], True),
    'a read of what nobody wrote': ([('r', 5, 1, 2)], False),
    'a read after a write': ([('w', 5, 1, 2), ('r', 5, 3, 4)], True),
    'a stale read': ([('w', 5, 1, 2), ('w', 6, 3, 4), ('r', 5, 5, 6)], False),
    'a lost write': ([('w', 5, 1, 2), ('r', 0, 3, 4)], False),
    'a ghost': ([('w', 5, 1, 2), ('w', 6, 3, 4), ('r', 6, 5, 6), ('r', 5, 7, 8)], False),
    'a read beside a write: old': ([('w', 5, 1, 9), ('r', 0, 2, 3)], True),
    'a read beside a write: new': ([('w', 5, 1, 9), ('r', 5, 2, 3)], True),
    'new, then old': ([('w', 5, 1, 9), ('r', 5, 2, 3), ('r', 0, 4, 5)], False),
    'writes at once, seen one after the other': (
        [('w', 5, 1, 9), ('w', 6, 1, 9), ('r', 5, 2, 3), ('r', 6, 4, 5)],
        True,
    ),
    'writes at once, seen to and fro': (
        [('w', 5, 1, 9), ('w', 6, 1, 9), ('r', 5, 2, 3), ('r', 6, 4, 5), ('r', 5, 6, 7)],
        False,
    ),
    'unknown, and done late': (
        [('w', 5, 1, None), ('w', 6, 2, 3), ('r', 6, 4, 5), ('r', 5, 6, 7)],
        True,
    ),
    'unknown, and never done': ([('w', 5, 1, None), ('r', 0, 2, 3)], True),
    'unknown, and done twice': (
        [('w', 5, 1, None), ('r', 5, 2, 3), ('w', 6, 4, 5), ('r', 5, 6, 7)],
        False,
    ),
    'unknown, and seen before its begin': ([('r', 5, 1, 2), ('w', 5, 3, None)], False),
    'equal': ([('w', 5, 1, 2), ('c', 5, 3, 4)], True),
    'unequal': ([('w', 5, 1, 2), ('c', 6, 3, 4, False)], True),
    'equal, and it is not': ([('w', 5, 1, 2), ('c', 6, 3, 4)], False),
    'unequal, and it is equal': ([('w', 5, 1, 2), ('c', 5, 3, 4, False)], False),
    'unequal amid a write': ([('w', 5, 1, 9), ('c', 0, 2, 3, False), ('r', 0, 4, 5)], False),
    'sent again, and done twice before its end': (
        [('w', 5, 1, 9, True, True), ('r', 5, 2, 3), ('w', 6, 4, 8), ('r', 5, 10, 11)],
        True,
    ),
    'sent once, and done twice before its end': (
        [('w', 5, 1, 9), ('r', 5, 2, 3), ('w', 6, 4, 8), ('r', 5, 10, 11)],
        False,
    ),
    'sent again, and done after its end': (
        [('w', 5, 1, 4, True, True), ('w', 6, 5, 6), ('r', 6, 7, 8), ('r', 5, 9, 10)],
        False,
    ),
    'a torn read': ([('w', 5, 1, 9), ('r', 'torn', 2, 3)], False),
}
TEXT = 'ready\nbegin 1 w 7 a 10\nend 1 ok a 20\nbegin 2 r 7 0 30\nend 2 ok a 40\nbegin 3 w 7 b 50\n'


def request(kind, value, begin, end, is_equal=True, is_again=False):
    return Request('h', kind, 0, value, begin, end, is_equal, is_again)


def by_all_orders(requests):
    """Whether one of all orders explains them; of those without a result any number is left out."""
    sure = [one for one in requests if one.end is not None]
    unsure = [one for one in requests if one.end is None]
    for count in range(len(unsure) + 1):
        for some in itertools.combinations(unsure, count):
            if any(fits(order) for order in itertools.permutations([*sure, *some])):
                return True
    return False


def fits(order):
    value, latest = 0, 0
    for one in order:
        if one.end is not None and one.end < latest:
            return False
        latest, value = max(latest, one.begin), happens(one, value)
        if value is None:
            return False
    return True


def random_history(draw, count, width, is_true):
    """A block whose requests happen at a moment between begin and end; or with any results."""
    moments, value, requests = sorted(draw.sample(range(100, 100 * count), count)), 0, []
    for i, moment in enumerate(moments):
        begin, end = moment - draw.randrange(1, width), moment + draw.randrange(1, width)
        kind, written = draw.choice('wwrc'), draw.randrange(1, 4) if count < 10 else i + 1
        if kind == 'w':
            end = None if draw.random() < 0.1 else end
            value = written
            requests.append(request('w', written, begin, end))
        elif kind == 'r':
            shown = value if is_true else draw.randrange(4)
            requests.append(request('r', shown, begin, end))
        else:
            is_equal = written == value if is_true else draw.random() < 0.5
            requests.append(request('c', written, begin, end, is_equal))
    return requests


def check_cases():
    for title, (rows, good) in CASES.items():
        found = unexplained([request(*row) for row in rows], 0)
        assert (found is None) == good, (title, found)


def check_orders():
    """The two searches agree, on histories of both kinds."""
    verdicts = [0, 0]
    for seed in range(200):
        requests = random_history(random.Random(seed), 5, 300, False)
        good = by_all_orders(requests)
        assert (unexplained(requests, 0) is None) == good, (seed, requests)
        verdicts[good] += 1
    assert min(verdicts) > 25, verdicts


def check_planted():
    """A long history is taken; with one read that is stale it is not."""
    for seed in range(20):
        draw = random.Random(seed)
        requests = random_history(draw, 300, 250, True)
        assert unexplained(requests, 0) is None, seed
        late = [i for i, one in enumerate(requests) if one.kind == 'r' and i > 200]
        which = draw.choice(late)
        first = next(one for one in requests if one.kind == 'w' and one.end is not None)
        requests[which] = requests[which]._replace(value=first.value)
        assert unexplained(requests, 0) is not None, seed


def check_text():
    """What a host tells is read: its last write has no end."""
    told = History()
    told.add_host('h', TEXT + 'begin 4 r')
    assert told.unknown == 1 and not told.errors and told.fault() is None, told.requests
    told.add_host('i', 'begin 1 r 7 0 60\nend 1 ok 0 70\n')
    assert 'nothing explains i: read 0' in (told.fault() or ''), told.fault()
    failed = History()
    failed.add_host('h', 'begin 1 r 7 0 60\nend 1 failed-1-0x2 0 70\n')
    assert failed.errors and failed.fault() is None
    torn = History()
    torn.add_host('h', 'begin 1 r 7 0 60\nend 1 ok torn 70\n')
    assert torn.torn == 1 and 'torn' in torn.fault()


def check_again():
    """What is under way when a host says so may happen once more, and nothing else."""
    told = History()
    told.add_host('h', 'begin 1 w 7 a 1\nagain\nbegin 2 w 7 b 2\nend 1 ok a 3\nend 2 ok b 4\n')
    assert [one.is_again for one in told.requests] == [True, False] and told.again == 1


def check_bound():
    """Too many requests at once are told, not searched for ever."""
    kept, history.STATES_MAX = history.STATES_MAX, 1000
    crowd = History()
    for i in range(16):
        crowd.add('h', 'w', 0, i + 1, 1, 100)
    assert 'undecided' in crowd.fault()
    history.STATES_MAX = kept


if __name__ == '__main__':
    for check in check_cases, check_orders, check_planted, check_text, check_again, check_bound:
        check()
        print('ok  ', check.__name__)

# SPDX-License-Identifier: BSD-2-Clause
"""The builds that scripts/test makes, and the lanes in which their tests run."""
import os
from typing import NamedTuple

CI = os.environ.get('CI') == 'true'
WERROR = ['-Dwerror=true'] if CI else []
JOBS = len(os.sched_getaffinity(0))
# Tests at a time. Some make several processes, and what takes time on a busy machine fails there.
TEST_JOBS = JOBS


def without(*suites):
    return [word for suite in suites for word in ('--no-suite', suite)]


class Lane(NamedTuple):
    """Tests of a build that run beside those of its other lanes."""

    log: str
    suites: list  # meson's words
    jobs: int
    is_patient: bool = False  # others have the processors first


class Lanes(NamedTuple):
    """The tests of a build, and in which order they run."""

    whole: list  # meson's words for all of them
    abreast: list  # lanes that run at the same time
    last: list  # and those that come after them


def is_chosen(suites, words):
    """Whether a test of these suites is one of those that meson's words choose."""
    wanted = {word for option, word in zip(words[::2], words[1::2]) if option == '--suite'}
    others = {word for option, word in zip(words[::2], words[1::2]) if option == '--no-suite'}
    return not others.intersection(suites) and (not wanted or bool(wanted.intersection(suites)))


def usual_lanes(*left_out):
    """Tests that keep the processors, and those that wait."""
    suites = without('weekly', *left_out)
    steady = Lane('testlog', suites + without('waits'), TEST_JOBS)
    return Lanes(suites, [steady, Lane('testlog-waits', suites + ['--suite', 'waits'], 1)], [])


def guest_lanes():
    """Tests that wait for a guest, and what runs meanwhile."""
    abreast = [
        Lane('testlog', ['--suite', 'kernel'], TEST_JOBS),
        Lane('testlog-waits', ['--suite', 'long-waits'], JOBS),
        Lane('testlog-patient', ['--suite', 'long'], TEST_JOBS, is_patient=True),
    ]
    alone = Lane('testlog-alone', ['--suite', 'long-alone'], 1)
    whole = [word for lane in [*abreast, alone] for word in lane.suites]
    return Lanes(whole, abreast, [alone])


def weekly_lanes(*left_out):
    """Tests that draw more seeds, for longer."""
    suites = ['--suite', 'weekly', *without(*left_out)]
    return Lanes(suites, [Lane('testlog', suites, TEST_JOBS)], [])


DEBUGGED = ['-Db_lto=false', '-Dbuildtype=debugoptimized', '-Dtorch=disabled']
ASAN = ['-Db_sanitize=address,undefined', *DEBUGGED]
TSAN = ['-Db_sanitize=thread', *DEBUGGED]
# Name, folder, meson options, environment of the build, what runs (None: compile only).
# fmt: off
BUILDS = [
    ('release', 'build', WERROR, {},
     usual_lanes('kernel', 'long', 'long-waits', 'long-alone')),
    ('kernel', 'build', WERROR, {}, guest_lanes()),
    ('asan', 'build-asan', ASAN, {}, usual_lanes('plain-only', 'no-asan', 'style')),
    ('tsan', 'build-tsan', TSAN, {}, usual_lanes('plain-only', 'no-tsan', 'style')),
    ('clang', 'build-clang', ['-Db_lto=false', '-Doptimization=1', '-Dtorch=disabled'] + WERROR,
     {'CC': 'clang', 'CXX': 'clang++'}, None),
]
# More seeds, for longer: `make weekly`, but not continuous integration.
WEEKLY = [
    ('weekly', 'build', WERROR, {}, weekly_lanes()),
    ('weekly-asan', 'build-asan', ASAN, {}, weekly_lanes('plain-only', 'no-asan')),
    ('weekly-tsan', 'build-tsan', TSAN, {}, weekly_lanes('plain-only', 'no-tsan')),
]
# fmt: on
# Before a test of a patient lane: its session, to which autogroups give a share of its own, and it
# itself step back behind the guests, but less than a build does: it may not stand still.
PATIENTLY = "sh -c 'echo 10 2>/dev/null >/proc/self/autogroup; exec nice -n 10 \"$@\"' patiently"
WITH_TIME = ('release', 'kernel')  # builds whose tests leave time
SANITIZE = {'asan': 'address,undefined', 'tsan': 'thread'}
SANITIZE |= {'weekly-' + name: kind for name, kind in SANITIZE.items()}
RUN_ENV = {
    # The library may be preloaded in front of the sanitizer, which sanitized programs load
    # themselves.
    'ASAN_OPTIONS': 'halt_on_error=1:abort_on_error=1:'
    'detect_stack_use_after_return=1:verify_asan_link_order=0',
    'UBSAN_OPTIONS': 'halt_on_error=1:abort_on_error=1:print_stacktrace=1',
    'TSAN_OPTIONS': 'halt_on_error=1:second_deadlock_stack=1:die_after_fork=0',
}

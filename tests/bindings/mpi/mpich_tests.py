# SPDX-License-Identifier: BSD-2-Clause
"""The tests of collectives that come with MPICH, which scripts/mpich-tests has got: built without
their own configure, which wants the whole of MPICH."""
import collections
import concurrent.futures
import os
import re

from programs import HERE
from harness import Skip, expect_status, run

SOURCE = os.environ.get('SIDEWIRE_MPICH_TESTS') or os.path.join(HERE, '../../../build-mpich-tests')
# What configure finds out.
CONFIGURED = """
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_STDLIB_H 1
#define HAVE_STRING_H 1
#define HAVE_STRINGS_H 1
#define HAVE_UNISTD_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_RESOURCE_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_PTHREAD_H 1
#define HAVE_STDARG_H 1
#define HAVE_GETRUSAGE 1
#define HAVE_STRDUP 1
#define HAVE_USLEEP 1
#define HAVE_LONG_LONG 1
#define HAVE_LONG_DOUBLE 1
#define HAVE_FLOAT__COMPLEX 1
#define HAVE_DOUBLE__COMPLEX 1
#define HAVE_LONG_DOUBLE__COMPLEX 1
#define HAVE__BOOL 1
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define SIZEOF_LONG_LONG 8
#define SIZEOF_SHORT 2
#define SIZEOF_VOID_P 8
#define SIZEOF_MPI_OFFSET 8
#define POINTERINT_t long
#define MTEST_STDCALL
#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX
"""
COMMON = ('mtest', 'mtest_common', 'mtest_thread', 'dtypes')

Line = collections.namedtuple('Line', 'name ranks words')


def lines():
    """The lines of its list; those that need more memory than machines have are left out."""
    path = os.path.join(SOURCE, 'coll/testlist.in')
    if not os.path.exists(path):
        raise Skip('scripts/mpich-tests build-mpich-tests has not got the tests of MPICH')
    found = []
    with open(path, encoding='ascii') as listed:
        for words in map(str.split, listed):
            if not words or words[0][0] in '#@' or any(word.startswith('mem=') for word in words):
                continue
            own = [word[len('arg=') :] for word in words[2:] if word.startswith('arg=')]
            found.append(Line(words[0], int(words[1]), own))
    return found


def variants():
    """Programs that are another one with a definition: its source and the definition."""
    with open(os.path.join(SOURCE, 'coll/Makefile.am'), encoding='ascii') as made:
        text = made.read()
    sources = dict(re.findall(r'^(\w+)_SOURCES\s*=\s*(\w+)\.c$', text, re.M))
    flags = dict(re.findall(r'^(\w+)_CPPFLAGS\s*=\s*(-D\w+)', text, re.M))
    return {name: (source, flags.get(name)) for name, source in sources.items()}


def build(kind, folder, names):
    """Compiles those; returns the ones that this MPI compiles."""
    with open(os.path.join(folder, 'mpitestconf.h'), 'w', encoding='ascii') as out:
        out.write(CONFIGURED)
    compiler = [f'mpicc.{kind}', '-w', '-O0', '-I', folder]
    compiler += ['-I', f'{SOURCE}/include', '-I', f'{SOURCE}/dtpools/include']
    objects = [os.path.join(folder, f'{name}.o') for name in COMMON]
    for name, made in zip(COMMON, objects):
        expect_status(run(*compiler, '-c', f'{SOURCE}/util/{name}.c', '-o', made), 0)
    known = variants()

    def compile_one(name):
        source, flag = known.get(name, (name, None))
        words = [*compiler, *([flag] if flag else []), f'{SOURCE}/coll/{source}.c', *objects]
        return run(*words, '-o', os.path.join(folder, name), '-lm', '-lpthread').returncode == 0

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(compile_one, names))
    return [name for name, is_done in zip(names, done) if is_done]


def has_passed(done):
    """None: it did not end in time."""
    return done is not None and done.returncode == 0 and ' No Errors' in done.stdout

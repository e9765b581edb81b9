# SPDX-License-Identifier: BSD-2-Clause
"""What `layers` and `pure` have to find."""
import os
import subprocess
import tempfile

from kit import HERE, check


def check_pure(text, *extra):
    """Runs tests/style/pure over a library of one source."""
    with tempfile.TemporaryDirectory() as root:
        source, made, library = (os.path.join(root, name) for name in ('a.c', 'a.o', 'a.a'))
        with open(source, 'w') as out:
            out.write(text)
        subprocess.run(['cc', '-fPIC', '-c', '-o', made, source], check=True)
        subprocess.run(['ar', 'rcs', library, made], check=True)
        done = subprocess.run(
            [os.path.join(HERE, 'pure'), library, *extra], capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr


def check_calls(files):
    """Runs tests/style/layers over the libraries of a build, {library: {object: source}}, without
    any source in src/."""
    with tempfile.TemporaryDirectory() as root:
        for library, objects in files.items():
            folder = os.path.join(root, 'build/src', os.path.dirname(library))
            os.makedirs(folder)
            for name, text in objects.items():
                subprocess.run(
                    ['cc', '-c', '-x', 'c', '-o', os.path.join(folder, name), '-'],
                    input=text,
                    text=True,
                    check=True,
                )
            subprocess.run(
                ['ar', 'rcs', os.path.basename(library), *objects], cwd=folder, check=True
            )
        done = subprocess.run(
            [os.path.join(HERE, 'layers'), root, os.path.join(root, 'build')],
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr


def rooms(caller, target):
    """A source that includes a header, each in its place."""
    return check(
        'layers',
        {f'src/device/{caller}': f'#include "device/{target}"\n', f'src/device/{target}': ''},
    )


def roce_rooms(caller, target):
    """The same in link/roce/, with what its exceptions are about."""
    lifeline = 'src/link/roce/liveness/lifeline'
    return check(
        'layers',
        {
            f'{lifeline}.c': '#include "link/roce/qp/qp.h"\n',
            f'{lifeline}_mads.c': '#include "link/roce/roce.h"\n',
            'src/link/roce/roce.h': '',
            'src/link/roce/qp/qp.h': '',
            f'src/link/roce/{target}': '',
            f'src/link/roce/{caller}': f'#include "link/roce/{target}"\n',
        },
    )


def links(caller, target):
    """A file of a link that includes another's."""
    files = {f'src/link/{target}': '', f'src/link/{caller}': f'#include "link/{target}"\n'}
    return check('layers', files)


def movers(caller, target):
    return check('layers', {f'movers/{caller}': f'#include "{target}"\n', f'movers/{target}': ''})


def calls(caller, definer, library='device/libdevice.a'):
    return check_calls(
        {
            'base/libbase.a': {'a.c.o': 'void sw_a(void) {}'},
            library: {
                caller: 'void sw_b(void); void sw_c(void) { sw_b(); }',
                definer: 'void sw_b(void) {}',
            },
        }
    )


def cases():
    found = [
        (
            'layers__downwards',
            check('layers', {'src/link/a.c': '#include "base/b.h"\n', 'src/base/b.h': ''}),
            None,
        ),
        (
            'layers__upwards',
            check('layers', {'src/base/a.c': '#include "cli/b.h"\n', 'src/cli/b.h': ''}),
            'is below cli',
        ),
        (
            'layers__relative',
            check('layers', {'src/cli/a.c': '#include "../base/b.h"\n', 'src/base/b.h': ''}),
            'relative',
        ),
        (
            'layers__missing',
            check('layers', {'src/cli/a.c': '#include "base/none.h"\n'}),
            'does not exist',
        ),
        ('layers__no_layer', check('layers', {'src/other/a.c': ''}), 'is in no layer'),
        ('rooms__downwards', rooms('queue/a.c', 'rules/b.h'), None),
        ('rooms__same', rooms('adopt/a.c', 'adopt/b.h'), None),
        ('rooms__upwards', rooms('adopt/a.c', 'serve/b.h'), 'device/adopt/ is below device/serve/'),
        (
            'rooms__header_upwards',
            rooms('rules/a.h', 'adopt/b.h'),
            'device/rules/ is below device/adopt/',
        ),
        (
            'rooms__from_above',
            check(
                'layers',
                {'src/link/a.c': '#include "device/serve/b.h"\n', 'src/device/serve/b.h': ''},
            ),
            None,
        ),
        ('rooms__no_room', check('layers', {'src/device/a.c': ''}), 'is in no room'),
        ('rooms__other_room', check('layers', {'src/device/other/a.c': ''}), 'is in no room'),
        (
            'rooms__exception',
            check(
                'layers',
                {
                    'src/device/memory/mr.c': '#include "device/queue/a.h"\n',
                    'src/device/memory/mw.c': '#include "device/queue/a.h"\n',
                    'src/device/queue/a.h': '',
                },
            ),
            None,
        ),
        (
            'rooms__exception_is_of_one_room',
            check(
                'layers',
                {
                    'src/device/memory/mr.c': '#include "device/queue/a.h"\n'
                    '#include "device/serve/b.h"\n',
                    'src/device/queue/a.h': '',
                    'src/device/memory/mw.c': '#include "device/queue/a.h"\n',
                    'src/device/serve/b.h': '',
                },
            ),
            'is below device/serve/',
        ),
        (
            'rooms__exception_shrinks',
            check(
                'layers',
                {
                    'src/device/memory/mr.c': '',
                    'src/device/memory/mw.c': '#include "device/queue/a.h"\n',
                    'src/device/queue/a.h': '',
                },
            ),
            'take it out of UPWARDS',
        ),
        ('rooms__calls_downwards', calls('queue_a.c.o', 'adopt_b.c.o'), None),
        (
            'rooms__calls_upwards',
            calls('adopt_a_a.c.o', 'queue_b.c.o'),
            'src/device/adopt/a_a.c: calls sw_b, which device/queue/',
        ),
        ('rooms__inner_downwards', roce_rooms('qp/a.c', 'port/b.h'), None),
        (
            'rooms__inner_upwards',
            roce_rooms('port/a.c', 'qp/b.h'),
            'link/roce/port/ is below link/roce/qp/',
        ),
        (
            'rooms__inner_upwards_to_folder',
            roce_rooms('port/a.c', 'b.h'),
            'link/roce/port/ is below link/roce/ itself',
        ),
        ('rooms__inner_side_by_side', roce_rooms('qp/a.c', 'b.h'), None),
        ('rooms__inner_none', roce_rooms('other/a.c', 'b.h'), 'is in no room of link/roce/'),
        (
            'rooms__inner_calls_upwards',
            calls('roce_port_a.c.o', 'roce_qp_b.c.o', 'link/liblink.a'),
            'src/link/roce/port/a.c: calls sw_b, which link/roce/qp/',
        ),
        (
            'rooms__inner_calls_folder',
            calls('roce_liveness_a.c.o', 'roce_b.c.o', 'link/liblink.a'),
            'which link/roce/ itself defines',
        ),
        ('rooms__inner_calls_beside', calls('roce_qp_a.c.o', 'roce_b.c.o', 'link/liblink.a'), None),
        ('rooms__calls_outside', calls('roce_port_a.c.o', 'gather.c.o', 'link/liblink.a'), None),
        ('links__own', links('roce/port/a.c', 'roce/port/b.h'), None),
        ('links__itself', links('roce/port/a.c', 'engine.h'), None),
        ('links__chosen', links('link.c', 'roce/roce.h'), None),
        ('links__beside', links('paired/a.c', 'iwarp/b.h'), None),
        ('links__names', links('roce/port/share.c', 'names/names.h'), None),
        ('links__names_back', links('names/names.c', 'direct/b.h'), "another link's"),
        (
            'links__sideways',
            links('roce/group.c', 'direct/direct.h'),
            "src/link/roce/group.c:1: link/roce/ includes link/direct/direct.h, which is",
        ),
        ('links__back', links('iwarp/a.c', 'paired/b.h'), "another link's"),
        ('movers__common', movers('nvme/host/a.c', 'common/text/b.h'), None),
        ('movers__downwards', movers('pmem/client/a.c', 'pmem/wire/b.h'), None),
        (
            'movers__upwards',
            movers('nvme/wire/a.c', 'nvme/host/b.h'),
            'nvme/wire/ may not include nvme/host/',
        ),
        (
            'movers__machine_of_the_host',
            movers('nvme/host/machine/a.c', 'nvme/host/b.h'),
            'nvme/host/machine/ may not include nvme/host/',
        ),
        (
            'movers__side_by_side',
            movers('nvme/target/model/a.c', 'nvme/host/b.h'),
            'nvme/target/model/ may not include nvme/host/',
        ),
        (
            'movers__inner_downwards',
            movers('nvme/target/server/a.c', 'nvme/target/model/b.h'),
            None,
        ),
        (
            'movers__inner_upwards',
            movers('nvme/target/backend/a.c', 'nvme/target/model/b.h'),
            'nvme/target/backend/ may not include nvme/target/model/',
        ),
        (
            'movers__inner_past_its_door',
            movers('nvme/command/a.c', 'nvme/target/backend/b.h'),
            'nvme/command/ may not include nvme/target/backend/',
        ),
        (
            'movers__inner_no_room',
            movers('nvme/target/a.c', 'nvme/wire/b.h'),
            'movers/nvme/target/a.c: is in no room of movers/',
        ),
        (
            'movers__another',
            movers('pmem/server/a.c', 'nvme/wire/b.h'),
            "movers/pmem/server/a.c:1: pmem/ includes nvme/wire/b.h, which is another mover's",
        ),
        ('movers__floor', movers('common/text/a.c', 'pmem/wire/b.h'), "another mover's"),
        ('movers__floor_downwards', movers('common/rdma/a.c', 'common/time/b.h'), None),
        (
            'movers__floor_upwards',
            movers('common/time/a.c', 'common/rdma/b.h'),
            'common/time/ may not include common/rdma/',
        ),
        (
            'movers__floor_itself',
            movers('common/a.c', 'common/text/b.h'),
            'is in no room of movers/',
        ),
        (
            'movers__programs',
            check('layers', {'movers/pmem/command/a.c': '#include "sidewire/pmem.h"\n'}),
            None,
        ),
        (
            'movers__src',
            check(
                'layers',
                {'movers/pmem/server/a.c': '#include "base/log.h"\n', 'src/base/log.h': ''},
            ),
            'movers see nothing of src/',
        ),
        ('movers__no_room', movers('pmem/other/a.c', 'common/b.h'), 'is in no room of movers/'),
        (
            'movers__no_mover',
            movers('other/a.c', 'common/b.h'),
            '(common, nvme, pmem, collectives, snapshot, transfer)',
        ),
        (
            'bindings__own',
            check(
                'layers',
                {
                    'bindings/a/b.c': '#include "c.h"\n#include "sidewire/pipe.h"\n',
                    'bindings/a/c.h': '',
                },
            ),
            None,
        ),
        (
            'bindings__of_movers',
            check('layers', {'bindings/a/b.c': '#include "common/text/size.h"\n'}),
            'bindings see only',
        ),
        ('layers__pure', check('layers', {'src/wire/a.c': '#include <string.h>\n'}), None),
        (
            'layers__not_pure',
            check('layers', {'src/wire/a.c': '#include <stdlib.h>\n'}),
            'may not call out',
        ),
        (
            'pure__clean',
            check_pure('#include <string.h>\nvoid f(char *a) { memset(a, 0, 9); }\n'),
            None,
        ),
        (
            'pure__calls_out',
            check_pure('#include <time.h>\nlong f(void) { return time(0); }\n'),
            'calls time',
        ),
        (
            'pure__remembers',
            check_pure('int f(void) { static int calls; return ++calls; }\n'),
            'has the variable calls',
        ),
        (
            'pure__has_a_variable',
            check_pure('int calls = 3;\nint f(void) { return calls; }\n'),
            'has the variable calls',
        ),
        (
            'pure__table_of_texts',
            check_pure(
                'const char *f(int a) {\n'
                'static const char *const texts[] = {"a", "b"}; return texts[a & 1]; }\n'
            ),
            None,
        ),
        (
            'pure__may',
            check_pure(
                '#include <stdlib.h>\nvoid *f(void) { return calloc(1, 1); }\n', '--may', 'calloc'
            ),
            None,
        ),
        (
            'pure__may_not',
            check_pure(
                '#include <stdlib.h>\nvoid *f(void) { return malloc(1); }\n', '--may', 'calloc'
            ),
            'calls malloc',
        ),
    ]
    return found

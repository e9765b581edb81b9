# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire devices`, and the parts of the command that all subcommands share."""
import ipaddress
import json
import os
import re
import subprocess
import sys

import harness
from harness import CLI, SOURCE, Skip, expect, expect_status, run


def listed(*before, env=None):
    done = run(*before, CLI, 'devices', '--json', env=env)
    expect_status(done, 0)
    return {item['name']: item for item in json.loads(done.stdout)['devices']}


def devices__loopback():
    lo = listed()['sw_lo']
    expect(
        lo['interface'] == 'lo'
        and lo['state'] == 'active'
        and lo['kind'] == 'sidewire'
        and lo['mtu'] == 65536,
        lo,
    )
    gids = {item['index']: item for item in lo['gids']}
    local = [index for index, item in gids.items() if item['gid'] == '::ffff:127.0.0.1']
    expect(
        len(local) == 2
        and [gids[index]['type'] for index in sorted(local)] == ['RoCE v1', 'RoCE v2'],
        lo,
    )


def devices__one_for_each_interface_that_is_up():
    done = run('ip', '-json', 'address', 'show', 'up')
    if done.returncode:
        raise Skip('no ip(8)')
    found = listed()
    for link in filter(None, json.loads(done.stdout)):
        device = found[f'sw_{link["ifname"]}']
        expect(device['mtu'] == link['mtu'], device, link)
        gids = {item['gid'] for item in device['gids']}
        for address in link['addr_info']:
            text = address['local']
            wanted = (
                f'::ffff:{text}' if address['family'] == 'inet' else str(ipaddress.ip_address(text))
            )
            expect(wanted in gids or len(gids) >= 64, wanted, device)


def devices__limited():
    expect(list(listed(env={'SIDEWIRE_DEVICES': 'lo'})) == ['sw_lo'])
    done = run(CLI, 'devices', env={'SIDEWIRE_DEVICES': 'none0'})
    expect_status(done, 1)
    expect('SIDEWIRE_DEVICES' in done.stderr and not done.stdout, done)


def devices__text():
    done = run(CLI, 'devices')
    expect_status(done, 0)
    expect(re.search(r'^sw_lo +lo +active +65536 +sidewire$', done.stdout, re.M), done.stdout)
    expect(re.search(r'^  GID \d+ +RoCE v2  ::ffff:127\.0\.0\.1$', done.stdout, re.M), done.stdout)


def devices__in_an_empty_network():
    """A new network namespace has a loopback that is down: no device, said so, until it is up."""
    if run('unshare', '--user', '--map-root-user', '--net', 'true').returncode:
        raise Skip('user or network namespaces are not allowed here')
    unshare = ('unshare', '--user', '--map-root-user', '--net')
    done = run(*unshare, CLI, 'devices')
    expect_status(done, 1)
    expect('ip link set lo up' in done.stderr, done)
    done = run(*unshare, '/bin/sh', '-c', 'ip link set lo up && exec "$0" devices', CLI)
    expect_status(done, 0)
    expect('sw_lo' in done.stdout and '127.0.0.1' in done.stdout, done)


def devices__under_run():
    """Our own devices are not taken for hardware when the library shows them in /sys."""
    found = listed(CLI, 'run', '--')
    expect(
        found['sw_lo']['kind'] == 'sidewire'
        and not any(
            item['kind'] == 'hardware' and name.startswith('sw_') for name, item in found.items()
        ),
        found,
    )


def command__version():
    for words in (['--version'], ['run', '--version'], ['doctor', '-V'], ['help', '--version']):
        done = run(CLI, *words)
        expect_status(done, 0)
        expect(re.fullmatch(r'sidewire \d+\.\d+\.\d+\n', done.stdout), done)


def command__help():
    text = run(CLI, '--help').stdout
    for name in ('run', 'doctor', 'devices', 'status', 'help'):
        expect(re.search(rf'^  {name} ', text, re.M), name, text)
        done = run(CLI, 'help', name)
        expect_status(done, 0)
        expect(done.stdout.startswith('Usage: sidewire') and not done.stderr, done)
    expect('Examples:' in text and 'Examples:' in run(CLI, 'help', 'run').stdout)
    expect(run(CLI, 'help').stdout == text == run(CLI, 'help', '--help').stdout)
    expect(run(CLI, 'run', '--help').stdout == run(CLI, 'help', 'run').stdout)


def command__wrong_use():
    for words in (
        [],
        ['zork'],
        ['help', 'zork'],
        ['help', 'run', 'doctor'],
        ['help', '--zork'],
        ['help', '-'],
        ['--zork'],
        ['doctor', 'x'],
        ['devices', '--zork'],
    ):
        done = run(CLI, *words)
        expect_status(done, 2)
        expect(done.stderr or not words, done)


def command__manual_page():
    """The page exists for every subcommand, option and variable, and man finds no fault with it."""
    path = os.path.join(SOURCE, 'docs/man/sidewire.1')
    with open(path, encoding='utf-8') as file:
        page = file.read().replace('\\-', '-')
    options = re.findall(
        r'^ +(?:-., )?(?:-., +)?(--[a-z-]+)', run(CLI, 'run', '--help').stdout, re.M
    )
    expect(len(options) >= 5, options)
    for word in [
        *options,
        *'run doctor devices status nvme SIDEWIRE_DIRECT SIDEWIRE_ADOPT SIDEWIRE_ADOPT_MAX'.split(),
        *'SIDEWIRE_DEVICES SIDEWIRE_LOG SIDEWIRE_LIB SIDEWIRE_ENGINE_CPUS'.split(),
    ]:
        if word not in ('--help', '--usage', '--version'):
            expect(word in page, f'{word} is not in the manual page')
    try:
        done = subprocess.run(
            ['groff', '-man', '-Tutf8', '-ww', '-P-cbou', '-rLL=80n', path],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return
    expect(not done.stderr, done.stderr)
    wide = [line for line in done.stdout.splitlines() if len(line) > 80]
    expect(done.stdout and not wide, wide)


def deny__refuses():
    done = run(harness.DENY, '-e', 'ENOSYS', 'uname', '--', 'uname')
    expect(done.returncode != 0 and 'not implemented' in done.stderr, done)
    expect_status(run(harness.DENY, 'uname', '--', 'true'), 0)
    expect_status(run(harness.DENY, 'uname', '--', '/bin/sh', '-c', 'exit 5'), 5)


def deny__wrong_use():
    for words, status in (
        (['zork', '--', 'true'], 125),
        (['-e', 'EZORK', 'uname', '--', 'true'], 125),
        (['uname'], 125),
        (['uname', '--', '/no/such'], 127),
        (['uname', '--', '/etc/passwd'], 126),
    ):
        expect_status(run(harness.DENY, *words), status)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))

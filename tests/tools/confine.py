#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs a command with those system calls alone that a container's profile allows, as a user without
capabilities. The profile is the JSON of Docker and podman; that of Debian's podman is in
/usr/share/containers/seccomp.json.

usage: confine.py PROFILE|docker:PROFILE USER -- CMD...

With "docker:" what Docker's own list lacks beside podman's is left out, and refused with EPERM.
"""
import ctypes
import json
import os
import pwd
import sys

ALLOW, ERRNO, LOG = 0x7FFF0000, 0x00050000, 0x7FFC0000
ACTIONS = {'SCMP_ACT_ALLOW': ALLOW, 'SCMP_ACT_LOG': LOG}
COMPARISONS = 'NE LT LE EQ GE GT MASKED_EQ'.split()  # of enum scmp_compare, from 1
EPERM, ENOSYS = 1, 38
# Calls that a program without capabilities has by the list of podman, and not by that of Docker.
NOT_IN_DOCKER = {
    *'add_key get_mempolicy io_uring_enter io_uring_register io_uring_setup kcmp keyctl'.split(),
    *'mbind pidfd_getfd process_madvise request_key set_mempolicy userfaultfd'.split(),
    *'clone3 fsconfig fsmount fsopen fspick mount move_mount open_tree setns umount'.split(),
    *'umount2 unshare chroot vhangup'.split(),
}
NEW_NAMESPACES = 0x7E020000  # flags of clone that it refuses


class Comparison(ctypes.Structure):
    _fields_ = [('arg', ctypes.c_uint), ('op', ctypes.c_int)]
    _fields_ += [('a', ctypes.c_uint64), ('b', ctypes.c_uint64)]


def action_of(entry, prefix):
    kind = entry[prefix + 'ction']
    number = entry.get('errnoRet', entry.get('defaultErrnoRet', EPERM))
    return ACTIONS.get(kind, ERRNO | number)


def concerns_us(entry):
    """Without capabilities, on this architecture."""
    wanted, unwanted = entry.get('includes') or {}, entry.get('excludes') or {}
    if wanted.get('caps') or 'amd64' in unwanted.get('arches', ()):
        return False
    return 'amd64' in wanted.get('arches', ['amd64'])


def like_docker(profile):
    for entry in profile['syscalls']:
        entry['names'] = [name for name in entry['names'] if name not in NOT_IN_DOCKER | {'clone'}]
    masked = {'index': 0, 'value': NEW_NAMESPACES, 'valueTwo': 0, 'op': 'SCMP_CMP_MASKED_EQ'}
    profile['syscalls'] += [
        {'names': ['clone'], 'action': 'SCMP_ACT_ALLOW', 'args': [masked]},
        {'names': ['clone3'], 'action': 'SCMP_ACT_ERRNO', 'errnoRet': ENOSYS},
    ]
    return {**profile, 'defaultErrnoRet': EPERM}


def load(profile):
    library = ctypes.CDLL('libseccomp.so.2')
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int]
    library.seccomp_rule_add_array.argtypes += [ctypes.c_uint, ctypes.POINTER(Comparison)]
    usual = action_of(profile, 'defaultA')
    filled = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(usual)))
    for entry in filter(concerns_us, profile['syscalls']):
        action = action_of(entry, 'a')
        compared = [
            Comparison(
                one['index'],
                COMPARISONS.index(one['op'].replace('SCMP_CMP_', '')) + 1,
                one['value'],
                one.get('valueTwo', 0),
            )
            for one in entry.get('args') or ()
        ]
        given = (Comparison * max(1, len(compared)))(*compared)
        for name in entry.get('names', ()):
            number = library.seccomp_syscall_resolve_name(name.encode())
            if action != usual and number >= 0:
                library.seccomp_rule_add_array(filled, action, number, len(compared), given)
    if library.seccomp_load(filled):
        sys.exit('confine: no filter can be loaded')


def main(path, user, _, *command):
    rest = path.removeprefix('docker:')
    with open(rest, encoding='utf-8') as file:
        profile = json.load(file)
    if path != rest:
        profile = like_docker(profile)
    who = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(who.pw_gid)
    os.setuid(who.pw_uid)
    load(profile)  # without new privileges, as libseccomp sets it
    os.execvp(command[0], command)


if __name__ == '__main__':
    main(*sys.argv[1:])

# SPDX-License-Identifier: BSD-2-Clause
"""What a reader must know of the machine that was measured."""

import os
import platform
import re


def cpu_model():
    try:
        with open('/proc/cpuinfo') as lines:
            for line in lines:
                if line.startswith('model name'):
                    model = re.sub(r'\((R|TM)\)|CPU|Processor|@.*', '', line.split(':', 1)[1])
                    return ' '.join(model.split()) or platform.machine()
    except OSError:
        pass
    return platform.machine()


def virtual():
    try:
        with open('/proc/cpuinfo') as text:
            return ' hypervisor' in text.read()
    except OSError:
        return False


made_load = None


def note_load(text):
    """What runs beside all that is measured from now on."""
    global made_load
    made_load = text


def describe():
    cores = len(os.sched_getaffinity(0))
    kind = ', virtual machine' if virtual() else ''
    beside = f', {made_load}' if made_load else ''
    processors = f'{cpu_model()}, {cores} core{"s" if cores > 1 else ""}'
    return f'{processors}{kind}, Linux {platform.release()}{beside}'


def facts():
    return {
        'cpu': cpu_model(),
        'cores': len(os.sched_getaffinity(0)),
        'virtual': virtual(),
        'kernel': platform.release(),
        'load': os.getloadavg()[0],
        'made_load': made_load,
    }

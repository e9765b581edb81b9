# SPDX-License-Identifier: BSD-2-Clause
"""Small trees made with one fault each, for the tests of the checks."""
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LICENCE = 'SPDX-License-Identifier: BSD-2-Clause'
HEAD = f'/* {LICENCE} */\n'


def check(tool, files, *extra):
    """Runs a check over a tree of these files; returns (status, output)."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in {'tests/style/ratchet': '', **files}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w') as out:
                out.write(text)
        done = subprocess.run(
            [os.path.join(HERE, tool), root, *extra], capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr


def expect(name, result, needle):
    status, text = result
    good = status != 0 and needle in text if needle else status == 0
    print(f'{"ok" if good else "NOT OK"}  {name}')
    if not good:
        print(text)
    return good

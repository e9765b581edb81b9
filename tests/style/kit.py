# SPDX-License-Identifier: BSD-2-Clause
"""Small trees made with one fault each, for the tests of the checks."""
import contextlib
import io
import os
import runpy
import sys
import tempfile
from unittest import mock

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
        return run(os.path.join(HERE, tool), root, *extra)


def run(*words):
    """The check in this process: a hundred times Python would take longer than all checks."""
    said = io.StringIO()
    with mock.patch.object(sys, 'argv', list(words)):
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                runpy.run_path(words[0], run_name='__main__')
            except SystemExit as end:
                if isinstance(end.code, str):
                    return 1, said.getvalue() + end.code
                return end.code or 0, said.getvalue()
    return 0, said.getvalue()


def expect(name, result, needle):
    status, text = result
    good = status != 0 and needle in text if needle else status == 0
    print(f'{"ok" if good else "NOT OK"}  {name}')
    if not good:
        print(text)
    return good

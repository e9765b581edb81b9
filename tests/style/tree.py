# SPDX-License-Identifier: BSD-2-Clause
"""The files of a tree, for the checks of this folder."""
import os
import subprocess


def tracked(root):
    """The files of the project: what git knows or would add, or all when there is no git."""
    listed = subprocess.run(
        ['git', '-c', 'safe.directory=*', 'ls-files', '-co', '--exclude-standard', '-z'],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split('\0') if name]
    else:
        names = [
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, files in os.walk(root)
            for name in files
        ]
        names = [name for name in names if not name.startswith(('build', '.git/'))]
    return sorted(name for name in names if os.path.isfile(os.path.join(root, name)))

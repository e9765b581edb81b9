#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The module as an sdist and a wheel: pip builds both where the library is installed, without the
source around, and a virtual environment has them.

usage: test_wheel.py SIDEWIRE BUILD_ROOT SOURCE
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

SIDEWIRE, BUILD, SOURCE = (os.path.abspath(path) for path in sys.argv[1:4])
PYTHON = '/usr/bin/python3'  # whose pip, setuptools and wheel are Debian's
LIMIT_S = 300
PROGRAM = """
import threading, sidewire, sidewire.snapshot
cache, blocks = bytearray(4096), bytes(range(256)) * 2
server, agent = sidewire.Agent('127.0.0.1'), sidewire.Agent()
card = server.card(server.memory(cache).lease('cache', write=True))
threading.Thread(target=server.run, daemon=True).start()
peer = agent.connect(card, timeout=10)
local = agent.memory(blocks).blocks(bytes=512)
peer.write(local, peer.blocks('cache', index=[3], bytes=512)).post().wait()
assert cache[1536:2048] == blocks
print(sidewire.__version__, sidewire.__file__)
"""


def run(*words, folder='/', **env):
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        cwd=folder,
        env={**os.environ, **env},
        check=False,
    )
    if done.returncode:
        raise AssertionError(f'{words}: {done.returncode}\n{done.stdout}')
    return done.stdout


class Wheel(unittest.TestCase):
    def test_wheel__in_a_virtual_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = self.install(folder)
            sdist, version = self.make_sdist(folder)
            env = {
                'PKG_CONFIG_PATH': f'{prefix}/lib/pkgconfig',
                'LD_LIBRARY_PATH': f'{prefix}/lib',
            }
            venv = f'{folder}/venv'
            run(PYTHON, '-m', 'venv', '--without-pip', venv)
            words = 'wheel --no-build-isolation --no-deps --no-index --quiet --wheel-dir'.split()
            run(PYTHON, '-m', 'pip', *words, folder, sdist, **env)
            (wheel,) = glob.glob(f'{folder}/*.whl')
            self.assertRegex(wheel, rf'sidewire-{re.escape(version)}-cp311-abi3-linux_\w+\.whl')
            words = f'--python {venv}/bin/python install --no-index --quiet'.split()
            run(PYTHON, '-m', 'pip', *words, wheel)
            said = run(SIDEWIRE, 'run', '--', f'{venv}/bin/python', '-c', PROGRAM, **env)
            self.assertEqual(said.split()[0], version)
            self.assertTrue(said.split()[1].startswith(venv), said)

    def test_wheel__without_a_network_as_the_page_says(self):
        with open(f'{SOURCE}/docs/python.md', encoding='utf-8') as page:
            blocks = re.findall(r'^```\n(python3 -m venv .*?)^```', page.read(), re.M | re.S)
        (block,) = (text for text in blocks if '--no-build-isolation' in text)
        with tempfile.TemporaryDirectory() as folder:
            prefix = self.install(folder)
            shutil.copytree(f'{SOURCE}/bindings/python', f'{folder}/bindings/python')
            env = {
                'PATH': f'/usr/bin:{os.environ["PATH"]}',
                'PKG_CONFIG_PATH': f'{prefix}/lib/pkgconfig',
                'LD_LIBRARY_PATH': f'{prefix}/lib',
                'PIP_INDEX_URL': 'http://127.0.0.1:9',  # nobody is there
                'PIP_RETRIES': '0',
            }
            run('bash', '-euxc', block, folder=folder, **env)
            said = run(SIDEWIRE, 'run', '--', f'{folder}/env/bin/python', '-c', PROGRAM, **env)
            self.assertTrue(said.split()[1].startswith(f'{folder}/env/'), said)

    def install(self, folder):
        """The libraries, their headers and what pkg-config reads of them."""
        run('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', DESTDIR=f'{folder}/root')
        (found,) = glob.glob(f'{folder}/root/**/pkgconfig/sidewire-transfer.pc', recursive=True)
        library = os.path.dirname(os.path.dirname(found))
        prefix = f'{folder}/prefix'
        shutil.copytree(library, f'{prefix}/lib', symlinks=True)
        include = glob.glob(f'{folder}/root/**/include', recursive=True)[0]
        shutil.copytree(include, f'{prefix}/include')
        for path in glob.glob(f'{prefix}/lib/pkgconfig/*.pc'):
            with open(path, encoding='utf-8') as file:
                text = re.sub(r'^prefix=.*', f'prefix={prefix}', file.read(), flags=re.M)
            text = re.sub(r'^libdir=.*', 'libdir=${prefix}/lib', text, flags=re.M)
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text)
        return prefix

    def make_sdist(self, folder):
        source = f'{folder}/source'
        shutil.copytree(f'{SOURCE}/bindings/python', source)
        run(PYTHON, 'setup.py', '-q', 'sdist', '-d', folder, folder=source)
        (sdist,) = glob.glob(f'{folder}/sidewire-*.tar.gz')
        with tarfile.open(sdist) as archive:
            names = {name.partition('/')[2] for name in archive.getnames()}
        for needed in (
            'pyproject.toml',
            'setup.py',
            'engine/module.h',
            'sidewire/snapshot/values.py',
        ):
            self.assertIn(needed, names)
        return sdist, re.search(r'sidewire-(.*)\.tar\.gz$', sdist)[1]


def missing():
    for module in 'pip', 'setuptools', 'wheel', 'venv', 'ensurepip':
        if subprocess.run(
            [PYTHON, '-c', f'import {module}'], stderr=subprocess.DEVNULL, check=False
        ).returncode:
            return f'{PYTHON} has no {module} (python3-pip, python3-venv)'
    return None


if missing():
    print(f'SKIP: {missing()}')
    sys.exit(77)
unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)

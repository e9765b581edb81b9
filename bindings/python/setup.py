# SPDX-License-Identifier: BSD-2-Clause
"""Builds the extension with what pkg-config says of the installed library."""
import glob
import shlex
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


def installed(what):
    words = ['pkg-config', what, 'sidewire-transfer', 'libibverbs', 'librdmacm']
    try:
        return shlex.split(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    except FileNotFoundError:
        sys.exit('pkg-config is not there: it tells where the library is installed')
    except subprocess.CalledProcessError as error:
        sys.exit(
            f'{error.stderr.strip()}\nSidewire is installed first (`make install`, or the package '
            'sidewire-dev); in another prefix, PKG_CONFIG_PATH names its lib/pkgconfig'
        )


class Build(build_ext):
    """An sdist needs no library, so it is looked for only here."""

    def build_extension(self, ext):
        ext.extra_compile_args += installed('--cflags')
        ext.extra_link_args += installed('--libs')
        super().build_extension(ext)


setup(
    ext_modules=[
        Extension(
            'sidewire._engine',
            sorted(glob.glob('engine/*.c')),
            define_macros=[('Py_LIMITED_API', '0x030B0000'), ('_GNU_SOURCE', None)],
            extra_compile_args=['-std=gnu17'],
            py_limited_api=True,
        )
    ],
    cmdclass={'build_ext': Build},
    options={'bdist_wheel': {'py_limited_api': 'cp311'}},
)

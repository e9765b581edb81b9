# SPDX-License-Identifier: BSD-2-Clause
"""As much of the package expecttest as torch's own tests want to import. No package of Debian has
it, and the tests that run here compare nothing by it."""

import unittest

ACCEPT = False


class TestCase(unittest.TestCase):
    pass

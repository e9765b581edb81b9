# SPDX-License-Identifier: BSD-2-Clause
"""What each medium does, whichever it is. A test of a kind is a subclass that says where it lies:
`text`, and how it is driven: `drive`.
"""
import driven
from driven import BLOCK, MOST, Refused


class Conformance:
    size = 16 << 20

    def another(self, mode='w', **options):
        medium = self.drive()
        self.addCleanup(medium.end)
        return medium.open(self.text, mode, self.size, **options)

    def assert_refused(self, code, *words, mode='w', **options):
        with self.assertRaises(Refused) as caught:
            self.another(mode, **options)
        self.assertEqual(caught.exception.code, code, caught.exception)
        for word in words:
            self.assertIn(word, str(caught.exception))
        return str(caught.exception)

    def assert_fine(self, outcome):
        self.assertEqual(outcome[:3], (0, 0, 0), outcome)

    def test_write__is_read_back_and_lasts(self):
        medium = self.another()
        self.assertTrue(medium.is_new)
        for kind, seed in ('w', 1), ('r', 1), ('f', 0):
            self.assert_fine(medium.do(kind, 2 * BLOCK, 3 * BLOCK, seed))
        self.assert_fine(medium.do('w', medium.bytes - MOST, MOST, 2))
        self.assert_fine(medium.do('w', 0, BLOCK, 3))
        self.assert_fine(medium.do('f'))
        self.assertEqual(medium.do('r', 2 * BLOCK, BLOCK, 9)[1], 1)  # other bytes are seen
        self.assertEqual(medium.close(), (0, 0, 0, 0))
        again = self.another('r')
        self.assertFalse(again.is_new)
        self.assert_fine(again.do('r', 2 * BLOCK, 3 * BLOCK, 1))
        self.assert_fine(again.do('r', again.bytes - MOST, MOST, 2))
        self.assert_fine(again.do('r', 0, BLOCK, 3))

    def test_many__at_once(self):
        medium = self.another()
        for io_bytes in BLOCK, 64 << 10, 1 << 20, MOST:
            size = min(medium.bytes // MOST * MOST, 256 * io_bytes)
            self.assert_fine(medium.storm('w', size, io_bytes, 16, io_bytes)[1])
            self.assert_fine(medium.storm('r', size, io_bytes, 16, io_bytes)[1])
        for _ in range(8):  # reads may overlap
            medium.begin('r', 0, 2 * BLOCK, MOST)
        self.assert_fine(medium.wait())

    def test_odd__is_refused(self):
        medium = self.another()
        last = medium.bytes
        for io, code in (
            (('w', 1, BLOCK), driven.EINVAL),
            (('r', 512, BLOCK), driven.EINVAL),
            (('w', 0, BLOCK + 512), driven.EINVAL),
            (('w', 0, 0), driven.EINVAL),
            (('w', 0, MOST + BLOCK), driven.EINVAL),
            (('w', 0, BLOCK, 512), driven.EINVAL),
            (('w', last, BLOCK), driven.ERANGE),
            (('r', last - BLOCK, 2 * BLOCK), driven.ERANGE),
            (('w', (1 << 64) - BLOCK, 2 * BLOCK), driven.ERANGE),
            (('w', 0, BLOCK, -1), driven.EFAULT),
            (('c', 1, BLOCK), driven.EINVAL),
        ):
            outcome = medium.odd(*io)
            self.assertEqual(outcome[0], code, (io, outcome))
            self.assertEqual(outcome[2], 0, io)
        self.assert_fine(medium.odd('w', 0, BLOCK))

    def test_reader__writes_nothing(self):
        self.another().close()
        reader = self.another('r')
        self.assertEqual(reader.do('w')[0], driven.EROFS)
        self.assertEqual(reader.do('f')[0], driven.EROFS)

    def test_reader__beside_a_writer(self):
        writer = self.another()
        self.assert_fine(writer.do('w', 0, BLOCK, 4))
        reader = self.another('r')
        self.assert_fine(reader.do('r', 0, BLOCK, 4))
        self.assert_fine(writer.do('w', 0, BLOCK, 5))
        self.assert_fine(reader.do('r', 0, BLOCK, 5))
        reader.close()
        self.assert_fine(writer.do('w', 0, BLOCK, 6))

    def test_close__ends_what_is_under_way(self):
        medium = self.another()
        for i in range(4):
            medium.begin('w', i * MOST // 2, MOST // 2, i)
        _, _, _, left = medium.close()
        self.assertEqual(left, 0)
        self.another()

    def test_fork__the_child_has_no_part_in_it(self):
        medium = self.another()
        self.assert_fine(medium.do('w', 0, BLOCK, 4))
        self.assertEqual(medium.ask('fork'), 'forked 42')
        self.assert_fine(medium.do('r', 0, BLOCK, 4))
        self.assert_fine(medium.do('w', 0, BLOCK, 5))
        medium.kill()
        self.assert_fine(self.another().do('r', 0, BLOCK, 5))

    def test_writers__one_at_a_time(self):
        first = self.another()
        self.assert_fine(first.do('w', 0, BLOCK, 1))
        self.assert_refused(driven.EBUSY, *self.names_of(first))
        self.assert_fine(first.do('w', 0, BLOCK, 2))
        first.close()
        self.assert_fine(self.another().do('r', 0, BLOCK, 2))

    def test_take_over__fences_the_older_one(self):
        first = self.another()
        first.begin('w', 0, MOST, 1)
        second = self.another('t')
        self.assert_fine(second.do('w', 0, MOST, 2))
        code, _, ended, why = first.do('w', 0, BLOCK, 3)
        self.assertEqual((code, ended), (driven.ESTALE, driven.ESTALE), why)
        self.assertIn('taken over', why)
        self.assertEqual(first.do('f')[0], driven.ESTALE)
        self.assert_fine(second.do('r', 0, MOST, 2))
        first.close()
        self.assert_fine(second.do('w', 0, MOST, 4))
        third = self.another('t')
        self.assert_fine(third.do('r', 0, MOST, 4))
        self.assertEqual(second.do('w', 0, BLOCK, 3)[0], driven.ESTALE)

    def test_killed__the_next_one_goes_on(self):
        first = self.another()
        self.assert_fine(first.do('w', 0, BLOCK, 7))
        first.kill()
        self.assert_fine(self.another().do('r', 0, BLOCK, 7))

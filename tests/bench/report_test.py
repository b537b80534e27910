"""The verdicts of report.py: a check that cannot fail would hold nothing."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import report

TABLE = """
## Numbers
| row | what | against | target | promise | root | user |
|---|---|---|---|---|---|---|
| `quick` | an exec | runsc | ≤ 0.35 | ≤ 0.5 | | |
| `small` | a read | | ≤ 1 ms | ≤ 1 ms | | |
| `room` | memory | | ≤ 2 MiB | ≤ 3 MiB | | |

## Limits
| `other` | not a number | | ≤ 3 | ≤ 3 | | |
"""


def row(name, ours, theirs=(), kind=None, **more):
    return {'id': name, 'kind': kind or ('ratio' if theirs else 'ours'), 'unit': 'ms',
            'ours': list(ours), 'theirs': list(theirs), **more}


def result(*rows, root=True, build='Release'):
    return {'build': build, 'platform': 'ptrace', 'kernel': '6', 'cpus': 2, 'root': root,
            'rows': list(rows)}


class Promises(unittest.TestCase):
    def test_only_the_table_of_the_section(self):
        found = report.promises(TABLE)
        self.assertEqual(list(found), ['quick', 'small', 'room'])
        self.assertEqual((found['quick']['target'], found['quick']['promise']), (0.35, 0.5))
        self.assertEqual([found[name]['unit'] for name in found], ['', ' ms', ' MiB'])

    def test_no_table_and_bad_bounds_are_errors(self):
        for text in ('', '## Numbers\nnothing\n## Limits\n', TABLE.replace('≤ 0.5', 'soon'),
                     TABLE.replace('≤ 0.5', '≥ 0.5')):
            with self.assertRaises(report.Trouble):
                report.promises(text)

    def test_the_projects_own_table_is_read(self):
        with open(os.path.join(report.ROOT, 'SPECIFICATION.md'), encoding='utf-8') as stream:
            found = report.promises(stream.read())
        self.assertLessEqual({'exec', 'exec_less_spawn', 'read_4k', 'write_4k', 'create', 'memory'}, set(found))
        for name, promise in found.items():
            self.assertGreaterEqual(promise['promise'], promise['target'], name)


class Verdicts(unittest.TestCase):
    promise = {'target': 0.35, 'promise': 0.5}

    def word(self, *blocks):
        return report.verdict(self.promise, row('quick', blocks, [1.0] * len(blocks)))[0]

    def test_words(self):
        self.assertEqual(self.word(0.3, 0.34, 0.36), 'kept')
        self.assertEqual(self.word(0.4, 0.45, 0.49), 'kept, target missed')
        self.assertEqual(self.word(0.6, 0.6, 0.61), 'BROKEN')
        self.assertEqual(self.word(0.2, 0.52, 0.9), 'noise')

    def test_one_wild_block_neither_breaks_nor_saves(self):
        self.assertEqual(self.word(0.3, 0.31, 0.32, 0.31, 90.0), 'kept')
        self.assertEqual(self.word(0.6, 0.61, 0.62, 0.61, 0.001), 'BROKEN')

    def test_blocks_are_compared_each_with_its_own(self):
        # Twice as slow a machine in the second block is no noise of the ratio.
        value, noise, _ = report.value_of(row('quick', [1, 2, 1], [10, 20, 10]))
        self.assertAlmostEqual(value, 0.1)
        self.assertAlmostEqual(noise, 0)
        value, _, _ = report.value_of(row('less', [3, 4, 5], [1, 1, 1], kind='difference'))
        self.assertAlmostEqual(value, 3)


    def test_without_theirs_the_best_block_decides(self):
        promise = {'target': 1, 'promise': 1}
        self.assertEqual(report.verdict(promise, row('small', [1.5, 1.6, 0.9]))[0], 'noise')
        self.assertEqual(report.verdict(promise, row('small', [1.5, 1.6, 1.1]))[0], 'BROKEN')
        for busy, word in (([1, 1, 1], 'BROKEN'), ([1, 1.2, 1], 'BROKEN'), ([1, 1.7, 1], 'noise')):
            measured = row('small', [1.5, 1.6, 1.1], busy=busy)
            self.assertEqual(report.verdict(promise, measured)[0], word)


class Check(unittest.TestCase):
    def check(self, measured):
        """(exit status, stdout, stderr) of --check with these measurements and the table above."""
        with tempfile.TemporaryDirectory() as directory:
            source = os.path.join(directory, 'measured.json')
            with open(source, 'w', encoding='utf-8') as stream:
                json.dump(measured, stream)
            with open(os.path.join(directory, 'SPECIFICATION.md'), 'w', encoding='utf-8') as stream:
                stream.write(TABLE)
            out, err = io.StringIO(), io.StringIO()
            with mock.patch.object(report, 'ROOT', directory), \
                    mock.patch.object(sys, 'argv', ['report.py', '--from', source, '--check']), \
                    contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return report.main(), out.getvalue(), err.getvalue()

    good = (row('quick', [0.3] * 3, [1] * 3), row('small', [0.5] * 3), row('room', [1.5]))

    def test_kept(self):
        status, out, _ = self.check(result(*self.good, row('more', [7], [2], against='bwrap')))
        self.assertEqual(status, 0)
        self.assertIn('| `quick` | an exec | runsc | ≤ 0.35 | ≤ 0.5 | 0.30 ± 0.00 |', out)
        self.assertIn('| `more` | bwrap | 3.50 |', out)

    def test_broken_is_named(self):
        status, out, err = self.check(result(self.good[0], row('small', [1.5] * 3), self.good[2]))
        self.assertEqual(status, 1)
        self.assertIn('BROKEN', out)
        self.assertIn('small', err)
        self.assertNotIn('quick', err)

    def test_a_row_that_is_missing_is_not_kept(self):
        self.assertEqual(self.check(result(self.good[0]))[0], 1)
        self.assertEqual(self.check(result(self.good[0], root=False))[0], 1)

    def test_what_only_root_can_measure(self):
        skipped = row('small', [], skipped='may not read it')
        self.assertEqual(self.check(result(self.good[0], skipped, self.good[2]))[0], 1)
        status, out, _ = self.check(result(self.good[0], skipped, self.good[2], root=False))
        self.assertEqual(status, 0)
        self.assertIn('may not read it', out)

    def test_a_debug_build_is_no_measure(self):
        self.assertEqual(self.check(result(*self.good, build='Debug'))[0], 1)


if __name__ == '__main__':
    unittest.main()

#!/usr/bin/env python3
"""Runs the benchmark program, prints its numbers beside the promises of SPECIFICATION.md, and with
--check fails when a promise is broken by more than the noise of this very run.

A row is measured in blocks; a block gives one value, ours and theirs having been taken in turn within
it. The row's value is the median of its blocks, its noise 1.4826 times their median absolute deviation
(what the standard deviation would be, without the outliers of a busy machine). Where there is nothing to
compare with, other work on the machine only ever adds: the best block decides about a promise, each divided
by how much longer than its own CPU time a computation took in it (1 on a quiet machine).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIGMA = 1.4826
BOUND = re.compile(r'≤ ([\d.]+)( ms| MiB)?$')


class Trouble(Exception):
    """What a person can mend."""


def promises(text):
    """The rows of the table below "## Numbers": id -> what, against, target and promise as bounds."""
    section = re.search(r'^## Numbers$(.*?)^## ', text, re.S | re.M)
    rows = {}
    for line in (section.group(1) if section else '').split('\n'):
        cells = [cell.strip() for cell in line.strip().strip('|').split('|')]
        match = re.fullmatch(r'`(\w+)`', cells[0])
        if not match:
            continue
        if len(cells) < 5:
            raise Trouble(f'SPECIFICATION.md, "Numbers": {match.group(1)} has too few cells')
        bounds = [BOUND.match(cell) for cell in cells[3:5]]
        if None in bounds:
            raise Trouble(f'SPECIFICATION.md, "Numbers": {match.group(1)}: a bound is "≤ 0.5", "≤ 1 ms" or "≤ 2 MiB"')
        rows[match.group(1)] = {'what': cells[1], 'against': cells[2],
                                'target': float(bounds[0].group(1)),
                                'promise': float(bounds[1].group(1)),
                                'unit': bounds[1].group(2) or ''}
    if not rows:
        raise Trouble('SPECIFICATION.md has no table of promises below "## Numbers"')
    return rows


def value_of(row):
    """(value, noise, what is held against the promise) of a measured row."""
    if row['kind'] == 'ratio':
        blocks = [a / b for a, b in zip(row['ours'], row['theirs'])]
    elif row['kind'] == 'difference':
        blocks = [a - b for a, b in zip(row['ours'], row['theirs'])]
    else:
        blocks = row['ours']
    value = statistics.median(blocks)
    noise = SIGMA * statistics.median(abs(block - value) for block in blocks)
    if row['theirs']:
        return value, noise, value - noise
    busy = row.get('busy') or [1] * len(blocks)
    return value, noise, min(block / factor for block, factor in zip(blocks, busy))


def verdict(promise, row):
    """(word, value, noise): kept; noise: over the promise, but not by more than the noise; BROKEN."""
    value, noise, least = value_of(row)
    if value <= promise['promise']:
        return ('kept' if value <= promise['target'] else 'kept, target missed'), value, noise
    return ('noise' if least <= promise['promise'] else 'BROKEN'), value, noise


def number(value, unit=''):
    digits = 2 if abs(value) < 10 else 1
    return f'{value:.{digits}f}{unit}'


def both(row):
    """The absolute numbers behind a ratio, for people."""
    unit = ' ' + row['unit']
    ours = number(statistics.median(row['ours']), unit)
    if not row['theirs']:
        return ours
    return f'{ours} : {number(statistics.median(row["theirs"]), unit)}'


def report(promised, result):
    """The table of this run as lines, and the ids whose promise is broken or could not be checked."""
    who = 'root' if result['root'] else 'an ordinary user'
    lines = [f'{result["platform"]}, as {who}, {result["cpus"]} CPUs, Linux {result["kernel"]}, '
             f'{result["build"]} build', '',
             '| row | what | against | target | promise | measured | ours : theirs | |',
             '|---|---|---|---|---|---|---|---|']
    broken = []
    measured = {row['id']: row for row in result['rows']}
    for name, promise in promised.items():
        head = f'| `{name}` | {promise["what"]} | {promise["against"]} ' \
               f'| ≤ {promise["target"]:g}{promise["unit"]} | ≤ {promise["promise"]:g}{promise["unit"]} '
        row = measured.get(name)
        if row is None or row.get('skipped'):
            why = row['skipped'] if row else 'not measured'
            lines.append(f'{head}| | | {why} |')
            # What only root can measure is checked by the run as root.
            if row is None or result['root']:
                broken.append(name)
            continue
        word, value, noise = verdict(promise, row)
        lines.append(f'{head}| {number(value, promise["unit"])} ± {number(noise)} | {both(row)} | {word} |')
        if word == 'BROKEN':
            broken.append(name)
    rest = [row for row in result['rows'] if row['id'] not in promised]
    if rest:
        lines += ['', 'Beside it, without a promise:', '', '| row | against | ratio | ours : theirs |',
                  '|---|---|---|---|']
    for row in rest:
        if row.get('skipped'):
            lines.append(f'| `{row["id"]}` | {row.get("against", "")} | | {row["skipped"]} |')
            continue
        ratio = number(value_of(row)[0]) if row['kind'] == 'ratio' else ''
        lines.append(f'| `{row["id"]}` | {row.get("against", "")} | {ratio} | {both(row)} |')
    return lines, broken


def measure(options):
    command = [options.program]
    for name in ('platform', 'blocks', 'only'):
        if getattr(options, name):
            command += [f'--{name}', str(getattr(options, name))]
    # Its own words go to our stderr.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f'{options.program} failed')
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description='Numbers of temenos beside their promises.')
    parser.add_argument('--program', help='temenos_bench of a release build')
    parser.add_argument('--from', dest='source', metavar='FILE', help='read what --json wrote, measure nothing')
    parser.add_argument('--json', metavar='FILE', help='write what was measured, too')
    parser.add_argument('--check', action='store_true', help='fail when a promise is broken')
    parser.add_argument('--platform', help='systrap, ptrace or kvm (default: what temenos chooses)')
    parser.add_argument('--blocks', type=int, help='more blocks take longer and are less noisy')
    parser.add_argument('--only', metavar='PREFIX', help='only groups with a row of such a name')
    options = parser.parse_args()
    if bool(options.program) == bool(options.source) or (options.check and options.only):
        parser.error('give one of --program and --from; --check is for all rows')
    try:
        with open(os.path.join(ROOT, 'SPECIFICATION.md'), encoding='utf-8') as stream:
            promised = promises(stream.read())
        if options.source:
            with open(options.source, encoding='utf-8') as stream:
                text = stream.read()
        else:
            text = measure(options)
        if options.json:
            with open(options.json, 'w', encoding='utf-8') as stream:
                stream.write(text)
        result = json.loads(text)
        lines, broken = report(promised, result)
        print('\n'.join(lines))
        if not options.check:
            return 0
        if result['build'] != 'Release':
            raise Trouble(f'promises are about a release build, and this is {result["build"]}')
        if broken:
            raise Trouble(f'worse than promised by more than the noise of this run: {", ".join(broken)}; '
                          'docs/benchmarks.md says how to find out why')
    except (Trouble, OSError, ValueError) as error:
        print(f'report.py: {error}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())

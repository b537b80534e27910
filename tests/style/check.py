#!/usr/bin/env python3
"""Holds the sources to the rules of CONTRIBUTING.md.

check.py ROOT RULE          the project at ROOT, one rule
check.py --self-test RULE   samples/RULE, a small tree: the rule must object to exactly the places
                            that its file `expected` lists, so no rule can go blind unnoticed
"""

import os
import sys

import rules

SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'samples')


def self_test(name):
    root = os.path.join(SAMPLES, name)
    with open(os.path.join(root, 'expected'), encoding='utf-8') as stream:
        expected = sorted(stream.read().split())
    found = {f'{path}:{line}': what for path, line, what in rules.RULES[name](rules.Tree(root))}
    for place in sorted(set(expected) - found.keys()):
        print(f'{place}: the rule {name} does not see this')
    for place in sorted(found.keys() - set(expected)):
        print(f'{place}: the rule {name} objects wrongly: {found[place]}')
    return bool(expected) and sorted(found) == expected


def check(root, name):
    found = sorted(rules.RULES[name](rules.Tree(root)))
    for path, line, what in found:
        print(f'{path}:{line}: {what}')
    return not found


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in rules.RULES:
        sys.exit(f'{__doc__}\nrules: {" ".join(rules.RULES)}')
    where, name = sys.argv[1:]
    if not (self_test(name) if where == '--self-test' else check(os.path.abspath(where), name)):
        sys.exit(1)


if __name__ == '__main__':
    main()

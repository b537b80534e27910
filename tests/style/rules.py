"""The rules of CONTRIBUTING.md as functions: each yields (path, line, what is wrong)."""

import os
import re
import shutil
import subprocess

import cpp

SKIPPED_DIRS = {'.git', '.deps', 'build', 'samples', 'corpus', 'node_modules', '__pycache__'}
TOGETHER = ('sys', 'netns', 'jail')

# One place for each outside library: prefix of the include -> where it may stand.
LIBRARIES = {
    # Never in what reads the bytes of a box: session, init, keeper.
    'boost/json': ('src/codec/', 'src/policy/', 'src/gvisor/', 'src/box/', 'src/cli/'),
    'boost/uuid/': ('src/box/box_record.cc',),
    'toml++/': ('src/codec/',),
    'CLI/': ('src/cli/',),
    'seccomp.h': ('src/jail/',),
    'cap-ng.h': ('src/jail/',),
    'systemd/': ('src/scope_main/',),
    'libmnl/': ('src/netns/netlink.cc',),
    'nftables/': ('src/netns/ruleset.cc',),
    'idn2.h': ('src/policy/',),
    'ares.h': ('src/egress/resolver.cc',),
    'ldns/': ('src/wire/dns_message_ldns_test.cc',),
    'openssl/': ('src/wire/tls_hello_openssl_test.cc',),
    'tl/expected.hpp': ('include/temenos/error.h',),
    'gtest/': ('_test.cc', 'tests/', 'testing/'),
    'gmock/': ('_test.cc', 'tests/', 'testing/'),
}
SYSTEM = re.compile(
    r'(sys|linux|netinet|arpa|net|asm|netpacket)/\w+\.h$|[a-z_0-9]+$|'
    r'(assert|ctype|dirent|dlfcn|elf|errno|fcntl|fnmatch|getopt|glob|grp|ifaddrs|inttypes|limits|'
    r'locale|math|mntent|netdb|poll|pthread|pty|pwd|sched|semaphore|signal|spawn|stdarg|stdbool|'
    r'stddef|stdint|stdio|stdlib|string|strings|syscall|termios|time|ucontext|unistd|utmp|wait)\.h$')

# call -> how many arguments the system's function of that name takes.
RAW_CALLS = {
    'mount': (5,), 'umount': (1,), 'umount2': (2,), 'setns': (2,), 'clone': (4, 5, 6, 7),
    'clone3': (2,), 'openat2': (4,), 'pivot_root': (2,), 'open_tree': (3,), 'move_mount': (5,),
    'mount_setattr': (5,), 'fsopen': (2,), 'fsmount': (3,), 'fsconfig': (5,), 'ioctl': (2, 3),
}
# init runs inside a box, is linked with nothing of ours and is not trusted.
RAW_CALLS_ALSO = ('src/init/',)

# call -> as above, and the flag that the arguments must show; None: there is none, so another
# function must be used.
CLOEXEC = {
    'open': ((2, 3), 'O_CLOEXEC'), 'openat': ((3, 4), 'O_CLOEXEC'), 'socket': ((3,), 'SOCK_CLOEXEC'),
    'socketpair': ((4,), 'SOCK_CLOEXEC'), 'accept4': ((4,), 'SOCK_CLOEXEC'),
    'pipe2': ((2,), 'O_CLOEXEC'), 'memfd_create': ((2,), 'MFD_CLOEXEC'),
    'epoll_create1': ((1,), 'EPOLL_CLOEXEC'), 'eventfd': ((2,), 'EFD_CLOEXEC'),
    'signalfd': ((3,), 'SFD_CLOEXEC'), 'timerfd_create': ((2,), 'TFD_CLOEXEC'),
    'inotify_init1': ((1,), 'IN_CLOEXEC'), 'mkostemp': ((2,), 'O_CLOEXEC'),
    'recvmsg': ((3,), 'MSG_CMSG_CLOEXEC'), 'dup3': ((3,), 'O_CLOEXEC'),
    'pipe': ((1,), None), 'accept': ((3,), None), 'dup': ((1,), None), 'creat': ((2,), None),
    'epoll_create': ((1,), None), 'inotify_init': ((0,), None), 'mkstemp': ((1,), None),
}

PLACES = (r'/Users/\w+/', r'/home/(?:runner|ubuntu|vagrant)/')
PLACES_IN = ('.cc', '.h', '.py', '.sh', '.cmake', '.md', '.txt', '.json', '.toml', '.lock')


class Tree:
    """The project's files below `root`, read once."""

    def __init__(self, root):
        self.root = root
        self.files = []
        for folder, names, files in os.walk(root):
            names[:] = sorted(n for n in names if n not in SKIPPED_DIRS)
            for name in sorted(files):
                self.files.append(os.path.relpath(os.path.join(folder, name), root))
        self._texts = {}

    def text(self, path):
        if path not in self._texts:
            full = os.path.join(self.root, path)
            with open(full, encoding='utf-8', errors='replace') as stream:
                self._texts[path] = stream.read()
        return self._texts[path]

    def sources(self, *places):
        return [f for f in self.files
                if f.endswith(('.cc', '.h')) and (not places or f.startswith(places))]

    def includes(self, path):
        text = cpp.blank(self.text(path), keep_strings=True)
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.M):
            yield cpp.line_of(text, match.start()), match.group(1), match.group(2)

    def layers(self):
        """module -> number of its layer: a line of the list in src/CMakeLists.txt is a layer."""
        text = self.text('src/CMakeLists.txt')
        block = re.search(r'set\(\w*modules\n(.*?)\)\s*(#[^\n]*)?$', text,
                          re.S | re.M | re.I).group(1)
        return {module: number for number, line in enumerate(block.split('\n'))
                for module in line.split('#')[0].split()}

    def limits(self):
        """name -> lines, of tests/style/limits; each must stay under that."""
        fields = (line.split() for line in self.text('tests/style/limits').split('\n'))
        return {f[0]: int(f[1]) for f in fields if f and f[0] != '#'}

    def cmake(self, module):
        path = f'src/{module}/CMakeLists.txt'
        return re.sub(r'#[^\n]*', '', self.text(path)) if path in self.files else ''

    def deps(self, module, keyword='DEPS'):
        found = set()
        for match in re.finditer(rf'\b{keyword}\s+([a-z_0-9\s]+)', self.cmake(module)):
            found.update(match.group(1).split())
        return found

    def reachable(self, modules):
        """The modules and all that they are linked with."""
        seen, todo = set(), list(modules)
        while todo:
            module = todo.pop()
            if module not in seen:
                seen.add(module)
                todo.extend(self.deps(module))
        return seen


def modules(tree):
    """A module includes lower layers that it is linked with and, in its own, what DEPS lists."""
    layers = tree.layers()
    for path in tree.sources('src/'):
        module = path.split('/')[1]
        if module not in layers:
            yield path, 1, f'{module} is not in TEMENOS_MODULES of src/CMakeLists.txt'
            continue
        direct = tree.deps(module)
        if path.endswith('_test.cc'):
            direct = direct | tree.deps(module, 'TEST_DEPS')
        linked = tree.reachable(direct)
        for line, quote, name in tree.includes(path):
            other = name.split('/')[0]
            if quote == '<' or other == module:
                continue
            if other not in layers:
                if not name.startswith(('temenos/', 'testing/')):
                    yield path, line, f'"{name}" names no module: write "module/file.h"'
            elif layers[other] > layers[module]:
                yield path, line, f'{module} must not know {other}: it is in a higher layer'
            elif layers[other] == layers[module] and other not in direct:
                yield path, line, f'{other} is in the same layer and not in the DEPS of {module}'
            elif other not in linked:
                yield path, line, f'{other} is not in the DEPS of {module}'
    for path in tree.sources('include/'):
        for line, quote, name in tree.includes(path):
            if quote == '"' and not name.startswith('temenos/'):
                yield path, line, f'a public header includes "{name}"'


def listed(tree):
    """A source that no CMakeLists.txt names is neither built nor tested."""
    for path in tree.sources('src/'):
        folder, name = os.path.split(path)
        if name.endswith('.cc') and not re.search(rf'(?<![\w.]){re.escape(name)}\b',
                                                  tree.cmake(path.split('/')[1])):
            yield path, 1, f'{folder}/CMakeLists.txt does not name it'


def libraries(tree):
    """Outside headers only where LIBRARIES says."""
    for path in tree.sources('src/', 'include/', 'tests/', 'testing/'):
        for line, quote, name in tree.includes(path):
            if quote == '"' or SYSTEM.match(name) or name.startswith('temenos/'):
                continue
            places = next((p for prefix, p in LIBRARIES.items() if name.startswith(prefix)), None)
            if places is None:
                yield path, line, f'<{name}> is no known library: give it one place in rules.py'
            elif not any(path.startswith(p) or path.endswith(p) for p in places):
                yield path, line, f'<{name}> may only stand in {", ".join(places)}'


def sizes(tree):
    """Files and functions short enough to be read."""
    limits = tree.limits()
    total = 0
    for path in tree.sources('src/', 'include/', 'tests/', 'testing/'):
        text = tree.text(path)
        lines = text.count('\n')
        most = limits['header' if path.endswith('.h') else 'source']
        if lines >= most:
            yield path, lines, f'{lines} lines: must be under {most}'
        if path.split('/')[1] in TOGETHER and not path.endswith(('_test.cc', '_fuzz.cc')):
            total += lines
        for first, last in cpp.bodies(cpp.blank(text)):
            length = last - first + 1
            if length >= limits['function']:
                yield path, first, f'a function of {length} lines: must be under ' \
                                   f'{limits["function"]}'
    if total >= limits['together']:
        yield 'src', 1, f'{" ".join(TOGETHER)} have {total} lines: must be under ' \
                        f'{limits["together"]}'


def syscalls(tree):
    """The calls that make or enter namespaces and mounts are all in one place."""
    for path in tree.sources('src/', 'include/'):
        if (path.startswith('src/sys/') and path.endswith(('_sys.cc', '_test.cc'))) or \
                path.startswith(RAW_CALLS_ALSO):
            continue
        code = cpp.blank(tree.text(path))
        for offset, name, arguments in cpp.calls(code, RAW_CALLS):
            if cpp.argument_count(arguments) in RAW_CALLS[name]:
                yield path, cpp.line_of(code, offset), f'{name}() belongs in src/sys/*_sys.cc'
        if path.startswith('src/jail/'):
            continue  # its filters name system calls as data
        for match in re.finditer(r'\b(?:SYS|__NR)_(' + '|'.join(RAW_CALLS) + r')\b', code):
            yield path, cpp.line_of(code, match.start()), \
                f'{match.group()} belongs in src/sys/*_sys.cc'


def cloexec(tree):
    """A descriptor that is not close-on-exec from its first moment leaks into a child."""
    for path in tree.sources('src/', 'include/'):
        if path.endswith(('_test.cc', '_fuzz.cc')):
            continue
        code = cpp.blank(tree.text(path))
        for offset, name, arguments in cpp.calls(code, CLOEXEC):
            counts, flag = CLOEXEC[name]
            if cpp.argument_count(arguments) not in counts:
                continue  # a function of ours with a name of the system's
            if flag is None:
                yield path, cpp.line_of(code, offset), f'{name}() cannot set close-on-exec at once'
            elif flag not in arguments:
                yield path, cpp.line_of(code, offset), f'{name}() without {flag}'
        for match in re.finditer(r'\b(?:i|o)?fstream\b(?![>"])', code):
            yield path, cpp.line_of(code, match.start()), f'{match.group()} is not close-on-exec'
        with_strings = cpp.blank(tree.text(path), keep_strings=True)
        for offset, name, _ in cpp.calls(code, ('fopen', 'popen')):
            end = cpp.closing(code, code.index('(', offset))
            if not re.search(r'"[rwa+b]*e[rwa+b]*"\s*\)$', with_strings[offset:end]):
                yield path, cpp.line_of(code, offset), f'{name}() without the mode letter e'


def coroutines(tree):
    """g++ 12 destroys such temporaries twice (CONTRIBUTING.md); clang is right, habits stay."""
    for path in tree.sources():
        code = cpp.blank(tree.text(path))
        for match in re.finditer(r'\bco_await\b', code):
            expression = code[match.end():code.find(';', match.end())]
            if re.search(r'[{]|\[[^\]\w]*[&=\w][^\]]*\]\s*[({]', expression):
                yield path, cpp.line_of(code, match.start()), \
                    'co_await with a lambda or braces: bind it to a name first'


def pragma(tree):
    """Every header is included once."""
    for path in tree.sources():
        if path.endswith('.h') and not re.search(r'^#pragma once$', tree.text(path), re.M):
            yield path, 1, 'no #pragma once'


def places(tree):
    """No path of the machine where a file was written: the checkout's own, or of an account as machines have them."""
    patterns = [*PLACES, re.escape(os.path.abspath(tree.root)) + '/']
    for path in tree.files:
        named = path.endswith(PLACES_IN) or path.startswith(('scripts/', '.ci/'))
        if not named or path.startswith('tests/style/'):
            continue
        text = tree.text(path)
        for match in re.finditer('|'.join(patterns), text):
            yield path, cpp.line_of(text, match.start()), f'{match.group()} is a place of one machine'


def packages(tree):
    """The installed packages are the documented ones."""
    listing, page = 'scripts/packages.txt', 'docs/dependencies.md'
    wanted = {}
    for number, line in enumerate(tree.text(listing).split('\n'), 1):
        if line and not line.startswith('#'):
            fields = line.split(None, 2)
            if len(fields) != 3 or fields[0] not in ('build', 'run', 'test', 'serve', 'vm', 'guest'):
                yield listing, number, 'not GROUP PACKAGE REASON'
            else:
                wanted[fields[1]] = number
    documented = {}
    for number, line in enumerate(tree.text(page).split('\n'), 1):
        match = re.match(r'\| `([^`]+)` \|', line)
        if match:
            documented[match.group(1)] = number
    for name in sorted(wanted.keys() - documented.keys()):
        yield listing, wanted[name], f'{name} is not in {page}'
    for name in sorted(documented.keys() - wanted.keys() - {'runsc'}):
        yield page, documented[name], f'{name} is not in {listing}'


def _tool(name, *arguments, root):
    if not shutil.which(name):
        raise FileNotFoundError(f'{name} is missing: run ./scripts/test, which installs it')
    return subprocess.run([name, *arguments], cwd=root, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout


def formatted(tree):
    """clang-format has nothing to change."""
    files = tree.sources('src/', 'include/', 'tests/', 'testing/')
    output = _tool('clang-format-19', '--style=file', '--dry-run', *files, root=tree.root)
    seen = set()
    for path, line in re.findall(r'^(\S+?):(\d+):\d+: warning: code should be', output, re.M):
        if path not in seen:
            seen.add(path)
            yield path, int(line), f'run clang-format-19 -i {path}'


def shell(tree):
    """shellcheck has nothing to say about the scripts."""
    files = [f for f in tree.files if f.startswith(('scripts/', '.ci/')) and
             (f.endswith('.sh') or tree.text(f).startswith(('#!/bin/bash', '#!/bin/sh')))]
    output = _tool('shellcheck', '-x', '--format=gcc', *files, root=tree.root)
    for path, line, text in re.findall(r'^(\S+?):(\d+):\d+: (.*)$', output, re.M):
        yield path, int(line), text


RULES = {rule.__name__: rule for rule in (
    modules, listed, libraries, sizes, syscalls, cloexec, coroutines, pragma, places, packages,
    formatted, shell)}

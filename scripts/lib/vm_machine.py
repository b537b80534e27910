"""The test machine: one QEMU with a supervisor, reached by ssh. scripts/vm and ctest call it.

up    boots a machine whose state is in --dir, and returns when its services run
run   runs a command in it, with output and exit status
down  ends it

QEMU never outlives its supervisor (parent-death signal), nor the supervisor its guard (a process
whose end it sees by a pidfd) or its minutes. Every wait has a limit; what fails shows the end of the
console.
"""
import argparse
import ctypes
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

CONSOLE_LINES = 40


class Failed(Exception):
    """What went wrong, for a person."""


def console_tail(directory):
    try:
        with open(os.path.join(directory, 'console.log'), 'rb') as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 16384))
            lines = log.read().decode('utf-8', 'replace').replace('\r', '').split('\n')
    except OSError:
        return ''
    return '\n'.join('  | ' + line for line in lines[-CONSOLE_LINES:] if line.strip())


def die(directory, message):
    tail = console_tail(directory)
    print(f'temenos-vm: {message}', file=sys.stderr)
    if tail:
        print(f'  the end of {directory}/console.log:\n{tail}', file=sys.stderr)
    sys.exit(1)


# ---- the supervisor ----------------------------------------------------------------------------

def die_with(parent):
    """In the child: ends when its parent does, also when that was a moment ago."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


class Qmp:
    """QEMU's control socket."""

    def __init__(self, sock):
        sock.settimeout(60)
        self.file = sock.makefile('rw', encoding='utf-8')
        self.command('qmp_capabilities')

    def command(self, name, **arguments):
        self.file.write(json.dumps({'execute': name, 'arguments': arguments}) + '\n')
        self.file.flush()
        while True:
            line = self.file.readline()
            if not line:
                raise Failed('QEMU closed its control socket')
            answer = json.loads(line)
            if 'return' in answer:
                return answer['return']
            if 'error' in answer:
                raise Failed(f'QEMU refused {name}: {answer["error"]["desc"]}')


def qemu_command(options, qmp, ready):
    image = options.image
    # no_timer_check: on a busy host the timer seems not to tick, and the kernel panics.
    append = f'console=ttyS0 mitigations=off no_timer_check quiet panic=-1 {options.append}'
    return ['qemu-system-x86_64', '-nodefaults', '-no-user-config', '-no-reboot', '-display', 'none',
            '-machine', 'pc', '-accel', 'tcg,thread=multi,tb-size=512', '-cpu', options.cpu,
            '-smp', str(options.cpus), '-m', options.memory,
            '-kernel', f'{image}/vmlinuz-{options.kernel}',
            '-initrd', f'{image}/initrd-{options.kernel}', '-append', append,
            # A run writes to a file that QEMU has removed already, never to the image.
            '-drive', f'file={image}/root.img,format=raw,if=none,id=root,snapshot=on,cache=unsafe',
            '-device', 'virtio-blk-pci,drive=root',
            '-drive', f'file={options.stage},format=raw,if=none,id=stage,readonly=on',
            '-device', 'virtio-blk-pci,drive=stage',
            '-device', 'virtio-rng-pci',
            # Nothing leads out of the machine but the answers to ssh. Port 0: a free one.
            '-netdev', 'user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22',
            '-device', 'virtio-net-pci,netdev=net,romfile=',
            '-chardev', f'file,id=console,path={options.dir}/console.log',
            '-serial', 'chardev:console',
            '-chardev', f'socket,id=ready,fd={ready}', '-serial', 'chardev:ready',
            '-chardev', f'socket,id=qmp,fd={qmp}', '-mon', 'chardev=qmp,mode=control']


def forwarded_port(qmp):
    """Of the line "TCP[HOST_FORWARD] fd address port …" of QEMU's table."""
    table = qmp.command('human-monitor-command', **{'command-line': 'info usernet'})
    for line in table.split('\n'):
        fields = line.split()
        if fields and fields[0] == 'TCP[HOST_FORWARD]':
            return int(fields[3])
    raise Failed(f'QEMU forwards no port:\n{table}')


class Supervisor:
    def __init__(self, options, run, guard, report):
        self.options, self.run, self.guard, self.report = options, run, guard, report
        self.qemu = self.pidfd = None

    def tell(self, text):
        """To `up`, which waits for one line."""
        if self.report is not None:
            os.write(self.report, (text + '\n').encode())
            os.close(self.report)
            self.report = None

    def start(self):
        ours, theirs = zip(socket.socketpair(), socket.socketpair())
        me = os.getpid()
        self.qemu = subprocess.Popen(
            qemu_command(self.options, *(s.fileno() for s in theirs)), stdin=subprocess.DEVNULL,
            pass_fds=[s.fileno() for s in theirs], preexec_fn=lambda: die_with(me))
        self.pidfd = os.pidfd_open(self.qemu.pid)
        for end in theirs:
            end.close()
        port = forwarded_port(Qmp(ours[0]))
        with open(os.path.join(self.run, 'port'), 'w', encoding='ascii') as file:
            file.write(str(port))
        return ours

    def wait_ready(self, ready):
        """For the machine's line on its second serial port."""
        deadline = time.monotonic() + self.options.limit
        said = b''
        while b'\n' not in said:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed(f'the machine was not up after {self.options.limit} s')
            seen, _, _ = select.select([ready, self.pidfd, *self.guards()], [], [], left)
            if self.guard in seen:
                raise Failed('who wanted the machine has ended')
            if ready in seen:
                got = ready.recv(4096)
                if not got:
                    raise Failed('the machine ended while it booted')
                said += got
            elif self.pidfd in seen:
                raise Failed('the machine ended while it booted')
        line = said.decode('utf-8', 'replace').strip()
        if line != 'ready':
            raise Failed(f'the machine says: {line}')

    def guards(self):
        return [] if self.guard is None else [self.guard]

    def watch(self, control):
        """Until somebody says "down", or there is no reason to go on."""
        left = None if self.options.minutes is None else self.options.minutes * 60
        seen, _, _ = select.select([control, self.pidfd, *self.guards()], [], [], left)
        return control.accept()[0] if control in seen else None

    def main(self):
        control = socket.socket(socket.AF_UNIX)
        control.bind(os.path.join(self.run, 'control'))
        control.listen(1)
        caller = None
        try:
            _qmp, ready = self.start()
            self.wait_ready(ready)
            open_connections(self.options.dir, self.options.keys)
            self.tell('up')
            caller = self.watch(control)
        except (Failed, OSError) as error:
            self.tell(f'failed: {error}')
        finally:
            if self.qemu is not None:
                self.qemu.kill()
                self.qemu.wait()
            shutil.rmtree(self.run, ignore_errors=True)
        # The end of this connection is what `down` waits for.
        del caller


# ---- ssh ---------------------------------------------------------------------------------------

USERS = ('root', 'user')


def run_directory(directory):
    """Short, since a socket's name has room for 100 characters."""
    try:
        return os.readlink(os.path.join(directory, 'run'))
    except OSError as error:
        raise Failed(f'no machine is up in {directory}') from error


def ssh_command(directory, keys, user, *options):
    run = run_directory(directory)
    try:
        with open(os.path.join(run, 'port'), encoding='ascii') as file:
            port = file.read()
    except OSError as error:
        raise Failed(f'the machine of {directory} is not up any more') from error
    return ['ssh', '-F', 'none', '-p', port, '-i', f'{keys}/client', '-l', user,
            '-o', f'ControlPath={run}/{user}', '-o', f'UserKnownHostsFile={keys}/known_hosts',
            '-o', 'HostKeyAlias=temenos-vm', '-o', 'StrictHostKeyChecking=yes',
            '-o', 'IdentitiesOnly=yes', '-o', 'BatchMode=yes', '-o', 'LogLevel=ERROR',
            '-o', 'ConnectTimeout=60', *options, '127.0.0.1']


def open_connections(directory, keys):
    """One for each user, which all commands share: a key exchange takes an emulated machine seconds."""
    for user in USERS:
        done = subprocess.run(ssh_command(directory, keys, user, '-M', '-N', '-f'), timeout=120, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Failed(f'ssh as {user} failed with status {done.returncode}')


# ---- commands ----------------------------------------------------------------------------------

def up(options):
    os.makedirs(options.dir, exist_ok=True)
    lock = os.open(os.path.join(options.dir, 'lock'), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failed(f'a machine is up in {options.dir} already') from None
    guard = None
    if options.with_parent:
        parent = os.getppid()
        guard = os.pidfd_open(parent)
        if os.getppid() != parent:
            raise Failed('who wanted the machine has ended')
    run = tempfile.mkdtemp(prefix='temenos-vm.')
    link = os.path.join(options.dir, 'run')
    if os.path.islink(link):
        os.unlink(link)
    os.symlink(run, link)
    open(os.path.join(options.dir, 'console.log'), 'w', encoding='ascii').close()
    report, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(report)
        log = os.open(os.path.join(options.dir, 'supervisor.log'),
                      os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        Supervisor(options, run, guard, theirs).main()
        os._exit(0)
    os.close(theirs)
    with os.fdopen(report, encoding='utf-8') as file:
        said = file.read().strip()
    if said != 'up':
        with open(os.path.join(options.dir, 'supervisor.log'), encoding='utf-8', errors='replace') as log:
            raise Failed(f'{said or "the supervisor died"}\n{log.read()}'.strip())


def run(options):
    command = shlex.join(options.command)
    if options.limit is not None:
        command = f'timeout -v -k 10 {options.limit} {command}'
    done = subprocess.Popen(ssh_command(options.dir, options.keys, options.user, '-tt' if options.tty else '-T') +
                            ([command] if options.command else []))
    # The machine's own clock ends the command; this one is for a machine that does not answer.
    try:
        status = done.wait(None if options.limit is None else options.limit + 60)
    except subprocess.TimeoutExpired:
        done.kill()
        done.wait()
        raise Failed(f'the machine did not end this within {options.limit} s, nor answer: {command}') from None
    if status == 255:
        raise Failed(f'the connection broke, or the command ended with status 255: {command}')
    if status in (124, 137) and options.limit is not None:
        die(options.dir, f'not done within {options.limit} s: {command}')
    return status


def down(options):
    try:
        control = socket.socket(socket.AF_UNIX)
        control.settimeout(60)
        control.connect(os.path.join(run_directory(options.dir), 'control'))
        if control.recv(1):
            raise Failed('the supervisor said something')
    except (Failed, FileNotFoundError, ConnectionError):
        pass  # It has ended by itself.
    except TimeoutError:
        raise Failed('the supervisor did not end the machine within 60 s') from None
    return 0


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest='what', required=True)
    for what in (up, run, down):
        command = commands.add_parser(what.__name__)
        command.set_defaults(what=what)
        command.add_argument('--dir', required=True)
        command.add_argument('--keys', required=what != down)
        if what is up:
            command.add_argument('--image', required=True)
            command.add_argument('--stage', required=True)
            command.add_argument('--kernel', required=True)
            command.add_argument('--append', default='')
            command.add_argument('--cpu', default='Nehalem')
            command.add_argument('--cpus', type=int, default=2)
            command.add_argument('--memory', default='3G')
            command.add_argument('--limit', type=int, default=300, help='seconds to boot')
            command.add_argument('--minutes', type=int, help='after which it ends by itself')
            command.add_argument('--with-parent', action='store_true', help='it ends with who called')
        if what is run:
            command.add_argument('--user', choices=USERS, required=True)
            command.add_argument('--limit', type=int, help='seconds')
            command.add_argument('--tty', action='store_true')
            command.add_argument('command', nargs='*')
    options = parser.parse_args()
    options.dir = os.path.abspath(options.dir)
    try:
        sys.exit(options.what(options))
    except Failed as error:
        die(options.dir, error)


if __name__ == '__main__':
    main()

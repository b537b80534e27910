// What ordinary users expect to work in the default base: each test is one box in which one kind of
// tool does real work. What does not work is listed, with the reason, in docs/in-a-box.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/integration/program.h"

namespace temenos::testing {
namespace {

// Every command of the script must succeed, and the one that does not is named. `is A B`: they are
// the same.
constexpr const char* kBegin = R"(set -Eeuo pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
is() { [[ $1 == "$2" ]] || { echo "'$1' is not '$2'" >&2; return 1; }; }
cd ~
)";

class ToolsTest : public IntegrationTest {
 protected:
  // In a box, by bash, started in its HOME; $1 is a directory of the host that it may write.
  // $2 is `word`; when that is a path, the box may write there too.
  void check(const std::string& script, const std::string& word = "") {
    const std::string shared = host_.dir("shared");
    std::vector<std::string> args{"run", "--no-net", "--timeout", "200", "--write", shared};
    if (word.starts_with('/')) args.insert(args.end(), {"--write", word});
    args.insert(args.end(), {"--", "/bin/bash", "-c", kBegin + script + "\necho 'to the end'\n",
                             "bash", shared, word});
    const auto result = host_.temenos(args);
    EXPECT_EQ(result.status, 0) << result.err << result.out;
    EXPECT_TRUE(result.out.ends_with("to the end\n")) << result.err << result.out;
  }
  // False, and said, when the host has no such program for boxes to see.
  static bool have(std::initializer_list<const char*> programs) {
    for (const std::string name : programs) {
      if (access(("/usr/bin/" + name).c_str(), X_OK) == 0) continue;
      const char* must = getenv("TEMENOS_MUST_WORK");
      EXPECT_TRUE(must == nullptr || std::string(must) != "1") << name << " is not installed";
      return false;
    }
    return true;
  }
};

#define NEEDS(...) \
  if (!have({__VA_ARGS__})) GTEST_SKIP() << "not installed: one of " #__VA_ARGS__

TEST_F(ToolsTest, PythonWithProcessesAndSharedMemory) {
  check(R"sh(cat >m.py <<'END'
import multiprocessing as mp, os
from multiprocessing import shared_memory
def square(x): return x * x
def add(lock, value):
    for _ in range(100):
        with lock: value.value += 1
if __name__ == '__main__':
    for how in ('fork', 'spawn', 'forkserver'):
        with mp.get_context(how).Pool(3) as pool:
            assert pool.map(square, range(50)) == [x * x for x in range(50)], how
    lock, value = mp.Lock(), mp.Value('i', 0, lock=False)
    workers = [mp.Process(target=add, args=(lock, value)) for _ in range(4)]
    for w in workers: w.start()
    for w in workers: w.join()
    assert value.value == 400, value.value
    one = shared_memory.SharedMemory(create=True, size=100)
    assert os.path.exists('/dev/shm/' + one.name)
    two = shared_memory.SharedMemory(name=one.name)
    two.buf[7] = 9
    assert one.buf[7] == 9
    two.close(); one.close(); one.unlink()
    queue = mp.Queue()
    mp.Process(target=queue.put, args=('sent',)).start()
    assert queue.get(timeout=30) == 'sent'
END
python3 m.py
)sh");
}

TEST_F(ToolsTest, PythonsEnvironmentsAndDatabase) {
  check(R"sh(python3 -m venv v
is "$(v/bin/python -c 'import sys; print(sys.prefix, sys.prefix != sys.base_prefix)')" '/root/v True'
v/bin/pip --version >/dev/null
mkdir -p pkg/hello; echo 'WORD = "hi"' >pkg/hello/__init__.py
is "$(PYTHONPATH=pkg v/bin/python -c 'import hello; print(hello.WORD)')" hi
python3 - <<'END'
import sqlite3, sys, locale, tempfile, ssl
c = sqlite3.connect('x.db')
assert c.execute('pragma journal_mode=wal').fetchone() == ('wal',)
c.execute('create table t(a)'); c.execute('insert into t values(6*7)'); c.commit()
assert sqlite3.connect('x.db').execute('select a from t').fetchall() == [(42,)]
assert sys.getfilesystemencoding() == 'utf-8' and locale.getpreferredencoding() == 'UTF-8'
assert tempfile.gettempdir() == '/tmp'
ssl.create_default_context()
END
)sh");
}

TEST_F(ToolsTest, Node) {
  NEEDS("node");
  check(R"sh(cat >n.js <<'END'
const fs = require('fs'), assert = require('assert'), http = require('http');
const { Worker } = require('worker_threads'), { execFile, fork } = require('child_process');
const once = (emitter, event) => new Promise(done => emitter.once(event, done));
(async () => {
  fs.writeFileSync('f', 'text');
  assert.equal(await fs.promises.readFile('f', 'utf8'), 'text');
  fs.copyFileSync('f', 'g'); fs.cpSync('f', 'h'); fs.renameSync('g', 'i'); fs.rmSync('h');
  const worker = new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", {eval: true});
  assert.equal(await once(worker, 'message'), 42);
  fs.writeFileSync('child.js', "process.on('message', m => { process.send(m + 1); process.exit() })");
  const child = fork('./child.js'); child.send(41);
  assert.equal(await once(child, 'message'), 42);
  assert.equal(await new Promise(done => execFile('cat', ['f'], (e, out) => done(out))), 'text');
  for (const [host, name] of [['127.0.0.1', '127.0.0.1'], ['::1', '[::1]'], ['localhost', 'localhost']]) {
    const server = http.createServer((q, r) => r.end('served ' + q.url)).listen(0, host);
    await once(server, 'listening');
    const answer = await fetch(`http://${name}:${server.address().port}/x`);
    assert.equal(await answer.text(), 'served /x');
    server.close(); server.closeAllConnections();
  }
  fs.mkdirSync('watched');
  const watcher = fs.watch('watched');
  const seen = once(watcher, 'change');
  fs.writeFileSync('watched/w', '');
  await seen; watcher.close();
})().catch(e => { console.error(e); process.exit(1) });
END
node n.js
)sh");
}

TEST_F(ToolsTest, Java) {
  NEEDS("java", "javac");
  check(R"sh(cat >H.java <<'END'
import java.nio.charset.*; import java.nio.file.*; import java.net.*; import java.util.concurrent.*;
public class H {
  public static void main(String[] args) throws Exception {
    ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
    ExecutorService pool = Executors.newFixedThreadPool(4);
    Future<Socket> accepted = pool.submit(server::accept);
    new Socket(server.getInetAddress(), server.getLocalPort()).getOutputStream().write(42);
    Files.writeString(Path.of("j.txt"), "\u00e4");
    System.out.println(accepted.get().getInputStream().read() + " " + Charset.defaultCharset() + " "
        + System.getProperty("user.home") + " " + System.getProperty("java.io.tmpdir"));
    pool.shutdown();
  }
}
END
is "$(java -XX:TieredStopAtLevel=1 H.java)" '42 UTF-8 /root /tmp'
is "$(cat j.txt)" ä
)sh");
}

TEST_F(ToolsTest, CompilerAndMake) {
  NEEDS("gcc", "make");
  check(R"sh(mkdir src; cd src
for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" >f$i.c; done
cat >main.c <<'END'
#include <pthread.h>
#include <stdio.h>
int f1(void), f2(void), f3(void), f4(void);
static void *run(void *p) { *(int *)p = f1() + f2() + f3() + f4(); return p; }
int main(void) {
  int sum = 0; pthread_t t;
  pthread_create(&t, NULL, run, &sum); pthread_join(t, NULL);
  printf("%d\n", sum);
}
END
printf 'prog: main.o f1.o f2.o f3.o f4.o\n\t$(CC) -pthread -o $@ $^\n' >Makefile
make -s -j2
is "$(./prog)" 10
touch f1.c; is "$(make -n | wc -l)" 2; make -s; is "$(make)" "make: 'prog' is up to date."
gcc -g -fsanitize=address,undefined -pthread -o checked main.c f?.c
is "$(./checked)" 10
echo 'int main(int n, char **v) { int a[2]; a[n] = 1; return a[n + 5]; }' >bad.c
gcc -g -fsanitize=address -o bad bad.c
./bad 2>said && exit 1
grep -q stack-buffer-overflow said
)sh");
}

TEST_F(ToolsTest, GitInTheProject) {
  NEEDS("git");
  const std::string repo = host_.dir("repo");
  ASSERT_EQ(host_shell("cd " + repo +
                       " && git init -q -b main . 2>&1 && git config user.name n && "
                       "git config user.email e@x"),
            "");
  check(R"sh(cd "$2"
echo one >f; git add f; git commit -qm one
git switch -qc side; echo two >g; git add g; git commit -qm two
git switch -q main; echo more >>f; git commit -qam more
git merge -q --no-edit side
echo changed >f; git stash -q; is "$(cat f)" $'one\nmore'; git stash pop -q; is "$(cat f)" changed
git checkout -q f; is "$(git status --short)" ''
git worktree add -q /tmp/tree side; is "$(git -C /tmp/tree log --format=%s -1)" two
git worktree remove /tmp/tree
git switch -qc topic HEAD~1; echo t >t; git add t; git commit -qm topic; git rebase -q main
git tag v1; git gc -q; git fsck --strict 2>&1 | grep -v dangling && exit 1
git clone -q . ~/clone; is "$(git -C ~/clone rev-parse HEAD)" "$(git rev-parse HEAD)"
git clone -q --bare . ~/bare.git; git commit -q --allow-empty -m last; git push -q ~/bare.git topic
is "$(git -C ~/bare.git log --format=%s -1 topic)" last
)sh",
        repo);
  EXPECT_EQ(host_shell("git -C " + repo + " log --format=%s -2 topic 2>&1"), "last\ntopic\n");
  EXPECT_EQ(host_shell("git -C " + repo + " fsck 2>&1 | grep -v dangling"), "");
}

TEST_F(ToolsTest, SqliteWithConcurrentWriters) {
  NEEDS("sqlite3");
  check(R"sh(for dir in ~ "$1" /tmp; do
  cd "$dir"
  is "$(sqlite3 x.db 'pragma journal_mode=wal; create table t(a);')" wal
  for i in 1 2 3; do
    (for j in {1..8}; do sqlite3 -cmd '.timeout 30000' x.db "insert into t values($j)"; done) &
  done
  wait
  is "$(sqlite3 x.db 'select count(*), sum(a) from t; pragma integrity_check')" $'24|108\nok'
done
)sh");
}

TEST_F(ToolsTest, BashAndZsh) {
  NEEDS("zsh");
  check(R"sh(is "$(diff <(echo a) <(echo b) || true)" $'1c1\n< a\n---\n> b'
is "$(tee >(cat >copy) <<<x; while [[ ! -s copy ]]; do :; done; cat copy)" $'x\nx'
is "$(cat <<END
here $((6 * 7))
END
)" 'here 42'
coproc CAT { cat; }; echo through >&"${CAT[1]}"; read -r line <&"${CAT[0]}"; is "$line" through
cat_pid=$CAT_PID; eval "exec ${CAT[1]}>&-"; wait "$cat_pid"
# Not "exit 3" at once: wait -n forgets jobs that were reaped before it is called.
(sleep 1; exit 3) & sleep 1000 & other=$!
status=0; wait -n || status=$?; is $status 3
kill $other; status=0; wait $other || status=$?; is $status 143
is "$(bash -c 'set -m; sleep 1000 & kill -STOP %1; until jobs %1 | grep -q Stopped; do :; done
  kill -CONT %1; kill %1; wait %1; echo $?' 2>/dev/null)" 143
is "$(bash -c 'trap "echo got" USR1; kill -USR1 $$; echo after')" $'got\nafter'
is "$(timeout 0.2 sleep 1000 || echo $?)" 124
is "$(seq 6 | xargs -P3 -n2 echo | wc -l)" 3
is "$(echo in | cat /dev/stdin; echo out >/dev/stdout; echo fd | cat /dev/fd/0)" $'in\nout\nfd'
is "$(cat /proc/self/comm) $(readlink /proc/self/cwd)" 'cat /root'
is "$(zsh -fc 'diff <(echo a) =(echo a) && cat <<END
$TMPPREFIX $(echo =(:) | grep -c ^/tmp/zsh)
END')" '/tmp/zsh 1'
is "$(zsh -fc 'a=(3 1 2); print ${(o)a}; touch q.x; print *.x(.)')" $'1 2 3\nq.x'
)sh");
}

TEST_F(ToolsTest, PerlAndArchives) {
  NEEDS("perl", "rsync", "xz", "gpg", "ssh-keygen");
  check(
      R"sh(is "$(perl -MPOSIX -MFile::Temp=tempfile -e 'my ($f, $n) = tempfile(); print $f "x"; close $f;
  print -s $n, " ", ($n =~ m{^/tmp/}), " ", `echo child`')" '1 1 child'
mkdir -p t/a; echo x >t/a/f; ln -s f t/a/l; ln t/a/f t/a/h; chmod 750 t/a/f; touch -d 2001-02-03 t/a/f
for how in --gzip --xz; do
  tar -c $how -f t.tar t; mkdir u; tar -xpf t.tar -C u
  is "$(stat -c '%a %h %Y' u/t/a/f)" "750 2 $(date -d 2001-02-03 +%s)"; is "$(readlink u/t/a/l)" f
  rm -r u
done
cp -a t c; diff -r t c; rsync -aHAX t/ r/; diff -r t r; is "$(stat -c %h r/a/f)" 2
rsync -a t/ "$1/r/"; diff -r t "$1/r"
# An agent with a socket in HOME, and locks that count links.
mkdir -m 700 .gnupg
gpg --batch --quiet --passphrase '' --quick-gen-key me@example.org ed25519 sign 2>/dev/null
echo signed | gpg --batch --quiet --clearsign | gpg --batch --verify 2>&1 | grep -q 'Good signature'
gpgconf --kill gpg-agent
ssh-keygen -q -t ed25519 -N '' -f key; eval "$(ssh-agent)" >/dev/null; ssh-add -q key
is "$(ssh-add -l | wc -l)" 1; kill "$SSH_AGENT_PID"
)sh");
}

TEST_F(ToolsTest, LoopbackAndSockets) {
  NEEDS("curl");
  check(R"sh(echo served >page
python3 -u -m http.server --bind :: 8123 >log 2>&1 &
until grep -q Serving log; do :; done
for name in 127.0.0.1 '[::1]' localhost "$(hostname)"; do
  is "$(curl -sS --max-time 20 "http://$name:8123/page")" served
done
kill %1
status=0; curl -sS --max-time 20 http://127.0.0.1:8123/ 2>/dev/null || status=$?; is $status 7
python3 - "$1" <<'END'
import os, socket, sys
for address in ('\0abstract', os.path.expanduser('~/s'), '/tmp/s', sys.argv[1] + '/s'):
    server = socket.socket(socket.AF_UNIX); server.bind(address); server.listen()
    client = socket.socket(socket.AF_UNIX); client.connect(address)
    there, _ = server.accept(); client.sendall(b'hi'); assert there.recv(2) == b'hi', address
    if address[0] != '\0': os.unlink(address)
a, b = socket.socketpair()
read_end, write_end = os.pipe()
socket.send_fds(a, [b'fd'], [write_end])
_, fds, _, _ = socket.recv_fds(b, 10, 1)
os.write(fds[0], b'passed'); assert os.read(read_end, 10) == b'passed'
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); udp.bind(('::1', 0))
udp.sendto(b'u', udp.getsockname()); assert udp.recv(1) == b'u'
END
# No network: names and addresses fail at once, and not after a time-out.
SECONDS=0
status=0; getent hosts example.com || status=$?; is $status 2
python3 -c 'import socket
try: socket.getaddrinfo("example.com", 80); raise SystemExit("resolved")
except socket.gaierror: pass
try: socket.create_connection(("192.0.2.1", 80)); raise SystemExit("connected")
except OSError: pass'
status=0; curl -sS http://example.com/ 2>/dev/null || status=$?; is $status 6
((SECONDS < 5))
)sh");
}

TEST_F(ToolsTest, TheBoxIsAPlaceOfItsOwn) {
  NEEDS("pgrep", "ps", "top");
  const std::string zone = host_shell("date +%Z%z | tr -d '\\n'");
  check(R"sh(is "$(date +%Z%z)" "$2"; is "$(TZ=Europe/Berlin date -d 2024-07-01 +%Z)" CEST
is "$(id -un) $(id -u) $(whoami) $(hostname)" 'root 0 root temenos'
is "$(getent passwd 1000)" user:x:1000:1000:user:/home/user:/bin/bash
is "$(getent group 0) $(getent services ssh | tr -s ' ')" 'root:x:0: ssh 22/tcp'
is "$(locale charmap) $LANG" 'UTF-8 C.UTF-8'
touch 'ä ö'; is "$(ls)" 'ä ö'; is "$(printf 'ä' | wc -m)" 1
is "$(printf '%s\n' b ä a B | sort | tr -d '\n')" Babä
is "$(ps -e -o comm= | sort -u | grep -vx -e bash -e ps -e sort -e grep)" init
is "$(pgrep -x init)" 1; pgrep temenos && exit 1; top -bn1 | grep -q init
is "$(ulimit -n) $(ulimit -s)" '65536 8192'; test "$(ulimit -u)" -ge 256; is "$(ulimit -n 50; ulimit -n)" 50
is "$(mktemp -u | cut -c1-9) $TMPDIR $(stat -c %a /tmp /dev/shm /var/tmp | xargs)" \
  '/tmp/tmp. /tmp 1777 1777 1777'
unshare -r true; is "$(unshare -Urpf --mount-proc ps -e -o pid= | tr -d ' ')" 1
ls -l / /usr/bin >/dev/null
if ! grep -q ' 1$' /proc/self/uid_map; then
  is "$(su user -c 'id -un; cd; pwd; touch f; stat -c %U f' | xargs)" 'user /home/user user'
  is "$(su user -c 'su -c id' 2>&1 | tail -1)" 'su: Authentication failure'
fi
)sh",
        zone);
}

TEST_F(ToolsTest, FilesDoWhatFilesDo) {
  check(R"sh(cat >files.py <<'END'
import ctypes, errno, fcntl, mmap, os, subprocess, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def put(name, text): open(name, 'w').write(text)
def child(code): return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout.strip()

put('a', '1'); os.link('a', 'b'); open('b', 'a').write('2')
assert open('a').read() == '12' and os.stat('a').st_size == 2 and os.stat('a').st_nlink == 2
os.unlink('b'); assert os.stat('a').st_nlink == 1
os.symlink('a', 'l'); assert os.readlink('l') == 'a' and os.path.samefile('a', 'l')
put('c', 'c'); os.rename('c', 'a'); assert open('a').read() == 'c'
os.makedirs('d/e'); os.rename('d', 'g'); assert os.listdir('g') == ['e']
f = open('sparse', 'wb'); f.seek(1 << 32); f.write(b'x'); f.close()
assert os.stat('sparse').st_size == (1 << 32) + 1
f = open('full', 'wb'); os.posix_fallocate(f.fileno(), 0, 100000); assert os.stat('full').st_size == 100000
f = open('full', 'r+b'); os.truncate('full', 5); assert os.fstat(f.fileno()).st_size == 5
f = open('gone', 'w+'); os.unlink('gone'); f.write('kept'); f.seek(0); assert f.read() == 'kept'
assert tempfile.TemporaryFile(dir='.').write(b'x') == 1

lock = open('lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)
assert subprocess.run(['flock', '-n', 'lock', 'true']).returncode == 1
fcntl.flock(lock, fcntl.LOCK_UN); assert subprocess.run(['flock', '-n', 'lock', 'true']).returncode == 0
fcntl.lockf(lock, fcntl.LOCK_EX)
held = 'import fcntl\ntry: fcntl.lockf(open("lock", "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError: print("held")'
assert child(held) == 'held'; fcntl.lockf(lock, fcntl.LOCK_UN); assert child(held) == ''

put('map', '\0' * 8192); f = open('map', 'r+b'); m = mmap.mmap(f.fileno(), 0)
assert child('import mmap; f = open("map", "r+b"); mmap.mmap(f.fileno(), 0)[5000:5003] = b"abc"') == ''
assert m[5000:5003] == b'abc'; f.seek(5000); assert f.read(3) == b'abc'

watch = libc.inotify_init1(os.O_NONBLOCK); assert libc.inotify_add_watch(watch, b'.', 0xfff) == 1
put('seen', ''); os.rename('seen', 'moved'); os.unlink('moved')
events = os.read(watch, 65536); assert b'seen' in events and b'moved' in events

os.mkfifo('fifo'); p = subprocess.Popen(['sh', '-c', 'echo through >fifo']); assert open('fifo').read() == 'through\n'; p.wait()
os.chmod('a', 0o751); assert os.stat('a').st_mode & 0o7777 == 0o751
os.utime('a', ns=(5, 987654321012345678)); assert os.stat('a').st_mtime_ns == 987654321012345678
put('n' * 255, ''); assert 'n' * 255 in os.listdir('.')
put('\udcff', ''); assert b'\xff' in os.listdir(b'.')
jobs = [subprocess.Popen(['sh', '-c', 'for i in $(seq 50); do echo line >>log; done']) for _ in range(3)]
assert not any(j.wait() for j in jobs) and open('log').read() == 'line\n' * 150
r, w = os.pipe(); assert os.sendfile(w, os.open('a', os.O_RDONLY), 0, 10) == 1
END
for dir in ~/work "$1/work" /tmp/work /dev/shm/work; do
  mkdir "$dir"; cd "$dir"; python3 ~/files.py || { echo "in $dir" >&2; exit 1; }
done
cd ~
python3 - <<'END'
import errno, os
os.symlink('nowhere', 'l')
for name in ('files.py', 'l', '/bin', '/usr/bin/python3'):
    try: os.getxattr(name, 'security.selinux', follow_symlinks=False)
    except OSError as e: assert e.errno == errno.ENOTSUP, (name, e)
END
)sh");
}

}  // namespace
}  // namespace temenos::testing

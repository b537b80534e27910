#!/usr/bin/python3
"""The servers of the tests' internet, in one process: testing/internet.h starts it.

    world.py internet DIR     in the namespace that plays the internet, where every address is its own
    world.py host DIR         servers on the host itself: what a box must not reach

DIR holds zone (names), cert.pem and key.pem, www/HOST/ (static files), git/ (repositories).
Prints "ready" when all listen; ends when its stdin does.

A server that is reached says "reached ADDRESS:PORT" in its first line, whatever was sent.
"""

import asyncio
import base64
import hashlib
import os
import socket
import ssl
import struct
import sys
import urllib.parse

# Speak first, and then say back what they hear.
BANNERS = (21, 23, 25, 110, 143, 853, 1080, 2525, 3000, 3128, 3306, 5900, 9000, 9418, 11211, 27017)
HTTP = (80, 8080)
HTTPS = (443, 8443)
POSTGRES = 5432
# What a host may have on its loopback, or on all its addresses.
HOST_BANNERS = (22, 25, 631, 3000, 5432, 6379, 9999)
HOST_HTTP = (80, 8080, 8081)
# The server of HTTP/2, by node, to which TLS connections that agreed on h2 go.
H2_PORT = 18082


def where(writer):
    address, port = writer.get_extra_info('sockname')[:2]
    if address.startswith('::ffff:'):
        address = address[7:]
    return f'[{address}]:{port}' if ':' in address else f'{address}:{port}'


async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def closing(task, writer):
    """Runs `task`; a peer that is gone is no error."""
    try:
        await task
    except (OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


def handler(serve):
    async def run(reader, writer):
        await closing(serve(reader, writer), writer)
    return run


async def banner(reader, writer):
    writer.write(f'reached {where(writer)}\r\n'.encode())
    await copy(reader, writer)


# PostgreSQL's protocol 3, so far that psql can ask something: the real server is 200 MB with what it needs.
async def postgres(reader, writer):
    def message(kind, body):
        return kind + struct.pack('>i', len(body) + 4) + body
    while True:
        size, code = struct.unpack('>ii', await reader.readexactly(8))
        if code in (80877103, 80877104):  # may we have TLS, or GSS: no
            writer.write(b'N')
            continue
        await reader.readexactly(size - 8)
        break
    ready = message(b'Z', b'I')
    writer.write(message(b'R', b'\0\0\0\0') + message(b'S', b'server_version\x0015.0\0') +
                 message(b'S', b'client_encoding\0UTF8\0') + ready)
    while True:
        kind = await reader.readexactly(1)
        size, = struct.unpack('>i', await reader.readexactly(4))
        await reader.readexactly(size - 4)
        if kind == b'X':
            return
        if kind != b'Q':
            writer.write(message(b'E', b'SERROR\0C0A000\0Monly simple questions\0\0') + ready)
            continue
        value = f'reached {where(writer)}'.encode()
        row = b'answer\0' + struct.pack('>ihihih', 0, 0, 25, -1, -1, 0)
        writer.write(message(b'T', struct.pack('>h', 1) + row) +
                     message(b'D', struct.pack('>hi', 1, len(value)) + value) +
                     message(b'C', b'SELECT 1\0') + ready)


class Http:
    """HTTP/1.1: echo, and a path for each thing that proxies get wrong."""

    def __init__(self, directory):
        self.directory = directory

    async def serve(self, reader, writer):
        tls = writer.get_extra_info('ssl_object')
        if tls is not None and tls.selected_alpn_protocol() == 'h2':
            await self.to_h2(reader, writer)
            return
        first = True
        while True:
            head = await reader.readuntil(b'\r\n\r\n')
            lines = head.decode('latin-1').split('\r\n')
            words = lines[0].split(' ')
            headers = {}
            for line in lines[1:-2]:
                name, _, value = line.partition(':')
                headers[name.strip().lower()] = value.strip()
            method, target = words[0], words[1] if len(words) > 1 else ''
            if headers.get('expect') == '100-continue':
                writer.write(b'HTTP/1.1 100 Continue\r\n\r\n')
            body = await self.body(reader, headers)
            again = await self.answer(reader, writer, method, target, headers, body, first)
            await writer.drain()
            first = False
            if not again or headers.get('connection', '').lower() == 'close':
                return

    async def body(self, reader, headers):
        if 'chunked' in headers.get('transfer-encoding', ''):
            body = b''
            while True:
                size = int((await reader.readuntil(b'\r\n')).split(b';')[0], 16)
                body += (await reader.readexactly(size + 2))[:-2]
                if size == 0:
                    return body
        return await reader.readexactly(int(headers.get('content-length', 0)))

    async def to_h2(self, reader, writer):
        inner_reader, inner_writer = await asyncio.open_connection('127.0.0.1', H2_PORT)
        up = asyncio.ensure_future(closing(copy(reader, inner_writer), inner_writer))
        await copy(inner_reader, writer)
        up.cancel()

    @staticmethod
    def plain(writer, status, body, more=''):
        writer.write(f'HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n'.encode() + body)

    async def answer(self, reader, writer, method, target, headers, body, first):
        url = urllib.parse.urlsplit(target)
        path = urllib.parse.unquote(url.path)
        host = headers.get('host', '')
        name = host.rsplit(':', 1)[0]
        static = os.path.join(self.directory, 'www', name)
        if path.startswith('/git/'):
            await self.git(writer, method, url, headers, body)
        elif name and '/' not in name and os.path.isdir(static):
            await self.file(writer, method, static, path)
        elif path == '/ws':
            await self.web_socket(reader, writer, headers)
            return False
        elif path == '/sse':
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: first\n\n')
            await writer.drain()
            # The client says when it has seen that: anything, or its end of the connection.
            await reader.read(1)
            writer.write(b'data: second\n\n')
            return False
        elif path.startswith('/bytes/'):
            size = int(path[7:])
            writer.write(f'HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n'.encode())
            while size > 0:
                writer.write(b'\xa5' * min(size, 1 << 20))
                size -= 1 << 20
                await writer.drain()
        elif path.startswith('/drip/'):
            count = int(path[6:])
            writer.write(f'HTTP/1.1 200 OK\r\nContent-Length: {count}\r\n\r\n'.encode())
            for _ in range(count):
                writer.write(b'.')
                await writer.drain()
                await asyncio.sleep(0.1)
        else:
            text = (f'reached {where(writer)} {method} {target}\nfirst: {first}\nbody: {len(body)} '
                    f'{hashlib.sha256(body).hexdigest()}\n')
            text += ''.join(f'{name}: {value}\n' for name, value in headers.items())
            if path == '/chunked':
                writer.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
                for line in text.encode().splitlines(keepends=True):
                    writer.write(b'%x\r\n%s\r\n' % (len(line), line))
                    await writer.drain()
                writer.write(b'0\r\n\r\n')
            else:
                self.plain(writer, '200 OK', b'' if method == 'HEAD' else text.encode())
        return True

    async def file(self, writer, method, root, path):
        full = os.path.realpath(os.path.join(root, path.lstrip('/')))
        kind = 'application/octet-stream'
        if os.path.isdir(full):
            full = os.path.join(full, 'index.html')
        if full.endswith('.html'):
            kind = 'text/html'
        elif full.endswith('.json'):
            kind = 'application/json'
        if not full.startswith(os.path.realpath(root)) or not os.path.isfile(full):
            self.plain(writer, '404 Not Found', b'')
            return
        with open(full, 'rb') as stream:
            data = stream.read()
        self.plain(writer, '200 OK', data if method != 'HEAD' else b'', f'Content-Type: {kind}\r\n')

    async def git(self, writer, method, url, headers, body):
        env = {'GIT_PROJECT_ROOT': os.path.join(self.directory, 'git'), 'GIT_HTTP_EXPORT_ALL': '1',
               'PATH_INFO': url.path[4:], 'QUERY_STRING': url.query, 'REQUEST_METHOD': method,
               'CONTENT_TYPE': headers.get('content-type', ''), 'CONTENT_LENGTH': str(len(body)),
               'GIT_PROTOCOL': headers.get('git-protocol', ''), 'REMOTE_USER': 'test',
               'HTTP_CONTENT_ENCODING': headers.get('content-encoding', ''),
               'PATH': os.environ['PATH'], 'HOME': self.directory, 'GIT_CONFIG_COUNT': '2',
               'GIT_CONFIG_KEY_0': 'safe.directory', 'GIT_CONFIG_VALUE_0': '*',
               'GIT_CONFIG_KEY_1': 'http.receivepack', 'GIT_CONFIG_VALUE_1': 'true'}
        process = await asyncio.create_subprocess_exec(
            'git', 'http-backend', env=env, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate(body)
        head, _, data = out.partition(b'\r\n\r\n')
        status, more = '200 OK', ''
        for line in head.decode().split('\r\n'):
            if line.lower().startswith('status:'):
                status = line[7:].strip()
            else:
                more += line + '\r\n'
        self.plain(writer, status, data, more)

    async def web_socket(self, reader, writer, headers):
        key = headers.get('sec-websocket-key', '') + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        writer.write(('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
                      f'Sec-WebSocket-Accept: {accept}\r\n\r\n').encode())

        def frame(kind, data):
            size = bytes([len(data)]) if len(data) < 126 else b'\x7e' + struct.pack('>H', len(data))
            return bytes([0x80 | kind]) + size + data
        writer.write(frame(1, f'reached {where(writer)}'.encode()))
        while True:
            head = await reader.readexactly(2)
            size = head[1] & 0x7f
            if size == 126:
                size, = struct.unpack('>H', await reader.readexactly(2))
            mask = await reader.readexactly(4)
            data = bytes(b ^ mask[n % 4] for n, b in enumerate(await reader.readexactly(size)))
            kind = head[0] & 15
            if kind == 8:
                writer.write(frame(8, data))
                return
            writer.write(frame(10 if kind == 9 else kind, data))


class Dns:
    """Answers by DIR/zone, read anew for each question. A line: NAME LOOK [| LOOK …], the n-th question
    of a name and type gets the n-th look, and the last one again and again. A look is a list of
    addresses, cname=NAME, ttl=N, delay=SECONDS, dead (no answer), servfail, truncate (over UDP)."""

    A, CNAME, AAAA = 1, 5, 28

    def __init__(self, directory):
        self.path = os.path.join(directory, 'zone')
        self.asked = {}

    def look(self, name, kind):
        with open(self.path, encoding='utf-8') as stream:
            for line in stream:
                words = line.split()
                if words and words[0] == name:
                    looks = ' '.join(words[1:]).split('|')
                    count = self.asked.get((name, kind), 0)
                    self.asked[name, kind] = count + 1
                    return looks[min(count, len(looks) - 1)].split()
        return None

    @staticmethod
    def wire(name):
        return b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\0'

    async def answer(self, question, udp):
        """The whole answer, or None for silence."""
        at, labels = 12, []
        while question[at] != 0:
            labels.append(question[at + 1:at + 1 + question[at]].decode('latin-1').lower())
            at += 1 + question[at]
        kind, _ = struct.unpack('>HH', question[at + 1:at + 5])
        asked = question[12:at + 5]
        name, records, code, flags = '.'.join(labels), [], 0, 0x8180
        for depth in range(20):
            look = self.look(name, kind)
            if look is None:
                code = 3
                break
            ttl, cname = 60, None
            for word in look:
                key, _, value = word.partition('=')
                if key == 'ttl':
                    ttl = int(value)
                elif key == 'delay':
                    await asyncio.sleep(float(value))
                elif key == 'dead':
                    return None
                elif key == 'servfail':
                    code = 2
                elif key == 'truncate' and udp:
                    flags |= 0x200
                elif key == 'cname':
                    cname = value
            owner = self.wire(name)
            if cname:
                target = self.wire(cname)
                records.append(owner + struct.pack('>HHIH', self.CNAME, 1, ttl, len(target)) + target)
                name = cname
                continue
            for word in look:
                v6 = ':' in word
                if '=' in word or not (v6 or word[0].isdigit()) or kind != (self.AAAA if v6 else self.A):
                    continue
                data = socket.inet_pton(socket.AF_INET6 if v6 else socket.AF_INET, word)
                records.append(owner + struct.pack('>HHIH', kind, 1, ttl, len(data)) + data)
            break
        if flags & 0x200:
            records = []
        return (question[:2] + struct.pack('>HHHHH', flags | code, 1, len(records), 0, 0) + asked +
                b''.join(records))

    async def tcp(self, reader, writer):
        while True:
            size, = struct.unpack('>H', await reader.readexactly(2))
            answer = await self.answer(await reader.readexactly(size), False)
            if answer is not None:
                writer.write(struct.pack('>H', len(answer)) + answer)

    def udp(self):
        dns = self

        class Protocol(asyncio.DatagramProtocol):
            def connection_made(self, transport):
                self.transport = transport

            def datagram_received(self, data, address):
                asyncio.ensure_future(self.reply(data, address))

            async def reply(self, data, address):
                try:
                    answer = await dns.answer(data, True)
                except (IndexError, struct.error):
                    return  # no question
                if answer is not None:
                    self.transport.sendto(answer, address)
        return Protocol


async def listen(serve, port, tls=None, address=None):
    for family, everywhere in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')):
        if address is not None and (':' in address) != (family == socket.AF_INET6):
            continue
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address or everywhere, port))
        sock.listen(4096)
        await asyncio.start_server(handler(serve), sock=sock, ssl=tls, limit=1 << 20)


async def internet(directory, resolvers):
    http, dns = Http(directory), Dns(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(directory, 'cert.pem'), os.path.join(directory, 'key.pem'))
    h2 = None
    node = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'world_h2.js')
    try:
        h2 = await asyncio.create_subprocess_exec('node', node, str(H2_PORT), stdin=asyncio.subprocess.PIPE,
                                                  stdout=asyncio.subprocess.PIPE)
        await h2.stdout.readline()
        context.set_alpn_protocols(['h2', 'http/1.1'])
    except FileNotFoundError:
        context.set_alpn_protocols(['http/1.1'])
    for port in BANNERS:
        await listen(banner, port)
    for port in HTTP:
        await listen(http.serve, port)
    for port in HTTPS:
        await listen(http.serve, port, context)
    await listen(postgres, POSTGRES)
    loop = asyncio.get_running_loop()
    for address in resolvers:
        await loop.create_datagram_endpoint(dns.udp(), local_addr=(address, 53))
        await listen(dns.tcp, 53, None, address)
    return h2


async def host(directory):
    http = Http(directory)
    for port in HOST_BANNERS:
        await listen(banner, port)
    for port in HOST_HTTP:
        await listen(http.serve, port)


async def main():
    role, directory = sys.argv[1:3]
    if role == 'internet':
        await internet(directory, sys.argv[3:])
    else:
        await host(directory)
    print('ready', flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


if __name__ == '__main__':
    asyncio.run(main())

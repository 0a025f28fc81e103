#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Conformance driver for servers that speak the torch c10d TCPStore protocol.

Plain sockets and the standard library; torch is neither used nor needed.  The bytes are
those of runtime/src/store/PROTOCOL.md.

    python3 tcpstore_conformance.py HOST PORT [options]

One line a case, 'PASS|FAIL|SKIP level name', then 'N passed, N failed'.  Exit status 1
if any case failed, 2 if the server could not be reached at all.

Each case has a level, which says what is known of the real servers:
  wire   every torch server does this (seen: 1.13's and 2.6's legacy one; read: libuv)
  libuv  the libuv backend (the default since torch 2.4) should, as its source reads; the
         single-threaded legacy backend and 1.13's server do not
  hard   asked of a robust server; no torch server is expected to pass all of these
--level wire|libuv|hard runs the cases up to that level; hard, so all, is the default.

Dialects: 2x (VALIDATE and PING, torch 2.5 and on; the default), 2.2 (VALIDATE, no PING),
2.1 (no handshake) and 1.13 (no handshake, other opcodes, no append/multi/cancel).
The 2.1 and 1.13 tables are here so that the same cases can be run on an older server.

The server must be otherwise idle: the key counts are compared before and after.
"""
import argparse
import fnmatch
import os
import random
import select
import socket
import struct
import sys
import threading
import time
import traceback

MAGIC = 0x3C85F7CE
STOP_WAITING, WAIT_CANCELED = 0, 1
READY, NOT_READY = 0, 1

_BASE = "SET COMPARE_SET GET ADD CHECK WAIT GETNUMKEYS".split()
_NEW = "DELETE_KEY APPEND MULTI_GET MULTI_SET CANCEL_WAIT".split()
_LATE = "PING QUEUE_PUSH QUEUE_POP QUEUE_LEN LIST_KEYS BARRIER".split()
DIALECTS = {
    "2x": ["VALIDATE"] + _BASE + _NEW + _LATE,
    "2.2": ["VALIDATE"] + _BASE + _NEW,
    "2.1": _BASE + _NEW,
    "1.13": _BASE + ["WATCH_KEY", "DELETE_KEY"],
}
LEVELS = ["wire", "libuv", "hard"]
MIB = 1 << 20


class Closed(Exception):
    """The server ended the connection."""


class Late(Exception):
    """No answer in time."""


class Skip(Exception):
    pass


class Fail(Exception):
    pass


def need(cond, msg, *args):
    if not cond:
        raise Fail(msg % args if args else msg)


def short(b):
    b = bytes(b)
    return repr(b) if len(b) <= 40 else "%r...(%d bytes)" % (b[:24], len(b))


def same(got, want, what):
    need(got == want, "%s: got %s, want %s", what,
         short(got) if isinstance(got, (bytes, bytearray)) else repr(got),
         short(want) if isinstance(want, (bytes, bytearray)) else repr(want))


def u64(n):
    return struct.pack("<Q", n)


def i64(n):
    return struct.pack("<q", n)


def blob(b):
    return u64(len(b)) + bytes(b)


class Conn:
    """One client connection; methods are named after the operations."""

    def __init__(self, h, handshake=True):
        self.h = h
        try:
            self.s = socket.create_connection((h.host, h.port), timeout=h.timeout)
        except OSError as e:
            raise Fail("cannot connect: %s" % e)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = bytearray()
        h.track(self)
        if handshake:
            self.send(self.hello())
            if self.has("PING"):
                self.ping(random.getrandbits(32))

    def has(self, op):
        return op in self.h.ops

    def hello(self):
        if not self.has("VALIDATE"):
            return b""
        return self.code("VALIDATE") + struct.pack("<I", MAGIC)

    def code(self, op):
        if op not in self.h.ops:
            raise Skip("dialect %s has no %s" % (self.h.dialect, op))
        return bytes([self.h.ops[op]])

    def close(self):
        try:
            self.s.close()
        except OSError:
            pass

    def send(self, data, timeout=None):
        self.s.settimeout(timeout or self.h.timeout)
        try:
            self.s.sendall(data)
        except (BrokenPipeError, ConnectionError) as e:
            raise Closed(str(e))
        except socket.timeout:
            raise Late("the server stopped reading")

    def recv(self, n, timeout=None):
        end = time.monotonic() + (timeout or self.h.timeout)
        while len(self.buf) < n:
            left = end - time.monotonic()
            if left <= 0:
                raise Late("got %d of %d bytes" % (len(self.buf), n))
            self.s.settimeout(left)
            try:
                d = self.s.recv(min(MIB, max(4096, n - len(self.buf))))
            except socket.timeout:
                continue
            except ConnectionError as e:
                raise Closed(str(e))
            if not d:
                raise Closed("end of stream after %d of %d bytes" % (len(self.buf), n))
            self.buf += d
        out = bytes(self.buf[:n])
        del self.buf[:n]
        return out

    def byte(self, timeout=None):
        return self.recv(1, timeout)[0]

    def num(self):
        return struct.unpack("<q", self.recv(8))[0]

    def vec(self):
        n = struct.unpack("<Q", self.recv(8))[0]
        need(n <= 1 << 30, "a reply claims %d bytes", n)
        return self.recv(n, max(self.h.timeout, n / MIB))

    def silent(self, secs, what="the connection"):
        """No byte and no end of stream for that long."""
        if self.buf:
            raise Fail("%s: unasked bytes %s" % (what, short(self.buf)))
        r, _, _ = select.select([self.s], [], [], secs)
        if r:
            try:
                d = self.s.recv(64)
            except ConnectionError:
                d = b""
            raise Fail("%s: %s" % (what, "closed" if not d else "unasked bytes " + short(d)))

    def ends(self, secs):
        """True if the server closes within secs, False if it stays open and silent.
        Bytes from the server are a failure."""
        need(not self.buf, "unasked bytes %s", short(self.buf))
        self.s.settimeout(secs)
        try:
            d = self.s.recv(64)
        except socket.timeout:
            return False
        except ConnectionError:
            return True
        need(not d, "the server answered %s", short(d))
        return True

    # requests, as bytes
    def q_set(self, k, v):
        return self.code("SET") + blob(k) + blob(v)

    def q_get(self, k):
        return self.code("GET") + blob(k)

    def q_add(self, k, d):
        return self.code("ADD") + blob(k) + i64(d)

    def q_many(self, op, keys):
        return self.code(op) + u64(len(keys)) + b"".join(map(blob, keys))

    # whole operations
    def ping(self, nonce):
        self.send(self.code("PING") + struct.pack("<I", nonce))
        same(struct.unpack("<I", self.recv(4))[0], nonce, "ping nonce")

    def set(self, k, v):
        self.send(self.q_set(k, v))

    def raw_get(self, k):
        self.send(self.q_get(k))
        return self.vec()

    def get(self, k):
        """As the torch client does it: WAIT first, then GET."""
        self.wait([k])
        return self.raw_get(k)

    def add(self, k, d):
        self.send(self.q_add(k, d))
        return self.num()

    def compare_set(self, k, want, new):
        self.send(self.code("COMPARE_SET") + blob(k) + blob(want) + blob(new))
        return self.vec()

    def check(self, keys):
        self.send(self.q_many("CHECK", keys))
        b = self.byte()
        need(b in (READY, NOT_READY), "check answered %d", b)
        return b == READY

    def wait_start(self, keys):
        self.send(self.q_many("WAIT", keys))

    def released(self, timeout=None):
        same(self.byte(timeout), STOP_WAITING, "answer to WAIT")

    def wait(self, keys, timeout=None):
        self.wait_start(keys)
        self.released(timeout)

    def cancel_start(self):
        self.send(self.code("CANCEL_WAIT"))

    def cancel(self):
        self.cancel_start()
        same(self.byte(), WAIT_CANCELED, "answer to CANCEL_WAIT")

    def num_keys(self):
        self.send(self.code("GETNUMKEYS"))
        return self.num()

    def delete(self, k):
        self.send(self.code("DELETE_KEY") + blob(k))
        return self.num()

    def append(self, k, v):
        self.send(self.code("APPEND") + blob(k) + blob(v))

    def multi_get(self, keys):
        self.send(self.q_many("MULTI_GET", keys))
        return [self.vec() for _ in keys]

    def multi_set(self, pairs):
        self.send(self.code("MULTI_SET") + u64(len(pairs))
                  + b"".join(blob(k) + blob(v) for k, v in pairs))

    def queue_push(self, k, v):
        self.send(self.code("QUEUE_PUSH") + blob(k) + blob(v))

    def queue_pop(self, k):
        self.send(self.code("QUEUE_POP") + blob(k))
        n = self.num()
        return n, (self.vec() if n > 0 else None)

    def queue_len(self, k):
        self.send(self.code("QUEUE_LEN") + blob(k))
        return self.num()

    def list_keys(self):
        self.send(self.code("LIST_KEYS"))
        return [self.vec() for _ in range(self.num())]

    def barrier_start(self, k, world):
        self.send(self.code("BARRIER") + blob(k) + i64(world))

    def watch_key(self, k):
        self.send(self.code("WATCH_KEY") + blob(k))
        same(self.byte(), 3, "answer to WATCH_KEY")

    def update(self):
        return self.byte(), self.vec(), self.vec(), self.vec()


class Harness:
    def __init__(self, a):
        self.host, self.port, self.timeout = a.host, a.port, a.timeout
        self.dialect = a.dialect
        self.ops = {name: i for i, name in enumerate(DIALECTS[a.dialect])}
        self.require = set(a.require or [])
        self.quick, self.danger = a.quick, a.danger
        self.run = b"/conf/%d-%x/" % (os.getpid(), random.getrandbits(40))
        self.open, self.n, self.lock = [], 0, threading.Lock()

    def track(self, c):
        with self.lock:
            self.open.append(c)

    def conn(self, **kw):
        return Conn(self, **kw)

    def key(self, name="k"):
        with self.lock:
            self.n += 1
            return self.run + b"%d-%s" % (self.n, name.encode())

    def done(self):
        for c in self.open:
            c.close()
        self.open = []

    def alive(self, why="", secs=5.0):
        """A new client gets a full round trip within secs."""
        t = time.monotonic()
        try:
            c = Conn(self)
            k = self.key("alive")
            c.set(k, b"yes")
            same(c.raw_get(k), b"yes", "new client after " + why)
        except (Late, Closed) as e:
            raise Fail("a new client is not served %s: %s" % (why, e))
        took = time.monotonic() - t
        need(took <= secs, "a new client took %.1f s %s", took, why)
        c.close()

    def feature(self, name, op, send):
        """Skip, or fail where --require asks for it, if the server does not know op."""
        if op not in self.ops:
            raise Skip("dialect %s has no %s" % (self.dialect, op))
        c = self.conn()
        try:
            send(c)
            if op != "LIST_KEYS":
                c.recv(8)
        except Closed:
            if name in self.require or "all" in self.require:
                raise Fail("the server does not know %s" % op)
            raise Skip("the server closed the connection on %s: no %s support" % (op, name))
        c.close()


CASES = []


def case(level):
    def put(f):
        CASES.append((level, f.__name__, f))
        return f
    return put


# ---------------------------------------------------------------- handshake

@case("wire")
def handshake_and_ping(h):
    c = h.conn()
    for nonce in (0, 1, 0x01020304, 0xFFFFFFFF):
        c.ping(nonce)


@case("wire")
def handshake_pipelined(h):
    c = h.conn(handshake=False)
    k = h.key()
    extra = c.code("PING") + struct.pack("<I", 7) if c.has("PING") else b""
    c.send(c.hello() + extra + c.q_set(k, b"v") + c.q_get(k))
    if extra:
        same(c.recv(4), struct.pack("<I", 7), "ping")
    same(c.vec(), b"v", "get")


@case("hard")
def handshake_in_single_bytes(h):
    c = h.conn(handshake=False)
    if not c.hello():
        raise Skip("this dialect has no handshake")
    for b in c.hello():
        c.send(bytes([b]))
        time.sleep(0.03)
    k = h.key()
    c.set(k, b"v")
    same(c.raw_get(k), b"v", "get after a handshake in five segments")


@case("wire")
def handshake_wrong_magic_not_served(h):
    c = h.conn(handshake=False)
    if not c.hello():
        raise Skip("this dialect has no handshake")
    try:
        c.send(c.code("VALIDATE") + struct.pack("<I", MAGIC ^ 0x01000000))
        c.send(c.code("GETNUMKEYS"))
    except Closed:
        pass
    c.ends(1.0)
    h.alive("after a wrong magic number")


@case("hard")
def handshake_wrong_magic_closes(h):
    c = h.conn(handshake=False)
    if not c.hello():
        raise Skip("this dialect has no handshake")
    c.send(c.code("VALIDATE") + struct.pack("<I", MAGIC ^ 0x01000000))
    try:
        c.send(b"\0" * 16)
    except Closed:
        return
    need(c.ends(3), "still open 3 s after a wrong magic number")


# ---------------------------------------------------------------- set and get

@case("wire")
def set_then_get(h):
    c, k = h.conn(), h.key()
    c.set(k, b"value")
    same(c.get(k), b"value", "get")
    c.set(k, b"other, longer value")
    same(c.get(k), b"other, longer value", "get after a second set")


@case("wire")
def set_seen_by_other_client(h):
    a, b, k = h.conn(), h.conn(), h.key()
    a.set(k, b"1")
    same(b.get(k), b"1", "get by another client")


@case("wire")
def data_outlives_its_client(h):
    a, k = h.conn(), h.key()
    a.set(k, b"kept")
    a.check([k])
    a.close()
    same(h.conn().get(k), b"kept", "get after the setter left")


@case("wire")
def empty_value(h):
    c, k = h.conn(), h.key()
    c.set(k, b"")
    need(c.check([k]), "a key with an empty value is not there")
    same(c.get(k), b"", "get of an empty value")


@case("wire")
def empty_key(h):
    c = h.conn()
    c.set(b"", b"nameless")
    same(c.get(b""), b"nameless", "get of the empty key")
    c.delete(b"")


@case("wire")
def binary_keys_and_values(h):
    c = h.conn()
    every = bytes(range(256))
    keys = [h.key() + t for t in (b"\0", b"\0\0", b"\0a", b"\n\r\t ", b"\xff\xfe\x80", every,
                                  "clé-鍵".encode())]
    for i, k in enumerate(keys):
        c.set(k, every + bytes([i]) + b"\0")
    for i, k in enumerate(keys):
        same(c.get(k), every + bytes([i]) + b"\0", "value of key %s" % short(k))


@case("wire")
def keys_are_exact(h):
    c, k = h.conn(), h.key()
    names = [k, k + b"/", b"/" + k, k + b" ", k.upper(), k + b"\0"]
    for i, n in enumerate(names):
        c.set(n, b"%d" % i)
    for i, n in enumerate(names):
        same(c.get(n), b"%d" % i, "value of %s" % short(n))


@case("wire")
def key_of_8192_bytes(h):
    c = h.conn()
    k = h.key().ljust(8192, b"k")
    c.set(k, b"long")
    same(c.get(k), b"long", "get")


def big(n):
    return (os.urandom(65521) * (n // 65521 + 1))[:n]


def roundtrip(h, n):
    v, k = big(n), h.key()
    a, b = h.conn(), h.conn()
    a.send(a.q_set(k, v), timeout=max(h.timeout, 60))
    need(b.wait([k], timeout=60) is None and b.raw_get(k) == v, "the value came back changed")
    b.delete(k)


@case("wire")
def value_1_mib(h):
    roundtrip(h, MIB)


@case("wire")
def value_8_mib(h):
    roundtrip(h, 8 * MIB)


@case("hard")
def value_64_mib(h):
    if h.quick:
        raise Skip("--quick")
    roundtrip(h, 64 * MIB)


@case("wire")
def get_of_missing_key_does_not_hang(h):
    """GET without WAIT: libuv answers an empty value, the legacy servers close."""
    c = h.conn()
    c.send(c.q_get(h.key("missing")))
    try:
        same(c.vec(), b"", "bare GET of a missing key")
    except Closed:
        pass
    h.alive("after a bare GET of a missing key")


@case("wire")
def many_requests_in_one_send(h):
    c, k = h.conn(), h.key()
    ks = [k + b"%d" % i for i in range(500)]
    c.send(b"".join(c.q_set(n, b"v" + n) + c.q_add(k, 1) for n in ks)
           + b"".join(c.q_get(n) for n in ks))
    for i in range(len(ks)):
        same(c.num(), i + 1, "add %d" % i)
    for n in ks:
        same(c.vec(), b"v" + n, "get")


@case("wire")
def request_in_single_bytes(h):
    c, k = h.conn(), h.key()
    for b in c.q_set(k, b"dripped") + c.q_get(k):
        c.send(bytes([b]))
    same(c.vec(), b"dripped", "get")


# ---------------------------------------------------------------- compareSet

@case("wire")
def compare_set_missing_key_empty_expected(h):
    c, k = h.conn(), h.key()
    same(c.compare_set(k, b"", b"new"), b"new", "answer")
    same(c.get(k), b"new", "stored value")


@case("wire")
def compare_set_missing_key_other_expected(h):
    c, k = h.conn(), h.key()
    same(c.compare_set(k, b"guess", b"new"), b"guess", "answer (the guess comes back)")
    need(not c.check([k]), "the key was created")


@case("wire")
def compare_set_match(h):
    c, k = h.conn(), h.key()
    c.set(k, b"old")
    same(c.compare_set(k, b"old", b"new"), b"new", "answer")
    same(c.get(k), b"new", "stored value")
    c.set(k, b"")
    same(c.compare_set(k, b"", b"filled"), b"filled", "answer for an empty stored value")


@case("wire")
def compare_set_mismatch(h):
    c, k = h.conn(), h.key()
    c.set(k, b"old")
    for want in (b"guess", b"", b"ol", b"old "):
        same(c.compare_set(k, want, b"new"), b"old", "answer with expected %r" % want)
    same(c.get(k), b"old", "stored value")


@case("wire")
def compare_set_one_winner(h):
    k, res = h.key(), [None] * 8
    conns = [h.conn() for _ in res]

    def go(i):
        res[i] = conns[i].compare_set(k, b"", b"w%d" % i)
    threads(go, len(res))
    need(len(set(res)) == 1 and res[0] is not None, "different winners: %r", res)
    same(h.conn().get(k), res[0], "stored value")


@case("libuv")
def compare_set_releases_waiters(h):
    a, b, k = h.conn(), h.conn(), h.key()
    a.wait_start([k])
    a.silent(0.2, "a waiting client")
    b.compare_set(k, b"", b"x")
    a.released(3)


# ---------------------------------------------------------------- add

@case("wire")
def add_new_and_existing(h):
    c, k = h.conn(), h.key()
    for d, want in ((5, 5), (-7, -2), (0, -2), (2 ** 40, 2 ** 40 - 2)):
        same(c.add(k, d), want, "add %d" % d)
    same(c.get(k), b"%d" % (2 ** 40 - 2), "stored text")


@case("wire")
def add_to_decimal_text(h):
    c, k = h.conn(), h.key()
    c.set(k, b"41")
    same(c.add(k, 1), 42, "add")
    same(c.get(k), b"42", "stored text")


@case("wire")
def add_int64_bounds(h):
    c, k = h.conn(), h.key()
    same(c.add(k, 2 ** 63 - 1), 2 ** 63 - 1, "largest")
    same(c.get(k), b"9223372036854775807", "stored text")
    same(c.add(k, -(2 ** 63 - 1)), 0, "back to nought")
    same(c.add(k, -2 ** 63), -2 ** 63, "smallest")


@case("wire")
def add_zero_creates_key(h):
    c, k = h.conn(), h.key()
    same(c.add(k, 0), 0, "add 0")
    same(c.get(k), b"0", "stored text")


def non_numeric_add(h, text):
    a, b, k = h.conn(), h.conn(), h.key()
    a.set(k, text)
    a.check([k])
    a.send(a.q_add(k, 1))
    try:
        got = a.recv(8, 3)
    except Closed:
        got = None
    except Late:
        raise Fail("neither an answer nor an end of the connection")
    need(got is None, "add to %r was answered: %r", text, got)
    same(b.get(k), text, "value after a refused add")
    h.alive("after a refused add")


@case("wire")
def add_to_non_number_closes_and_changes_nothing(h):
    non_numeric_add(h, b"abc")


@case("wire")
def add_to_empty_value_closes_and_changes_nothing(h):
    non_numeric_add(h, b"")


@case("wire")
def add_beyond_int64_text_closes(h):
    non_numeric_add(h, b"99999999999999999999999")


def threads(go, n):
    errs = []

    def safe(i):
        try:
            go(i)
        except Exception as e:      # noqa: BLE001 - reported below
            errs.append(e)
    ts = [threading.Thread(target=safe, args=(i,)) for i in range(n)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    if errs:
        raise errs[0]


@case("wire")
def add_from_8_threads(h):
    each, k = 500, h.key()
    conns, seen = [h.conn() for _ in range(8)], [[] for _ in range(8)]

    def go(i):
        for _ in range(each):
            seen[i].append(conns[i].add(k, 1))
    threads(go, 8)
    total = 8 * each
    same(h.conn().add(k, 0), total, "final sum")
    need(sorted(sum(seen, [])) == list(range(1, total + 1)), "some sums were answered twice")
    need(all(s == sorted(s) for s in seen), "a client's sums went backwards")


@case("wire")
def add_from_8_threads_pipelined(h):
    each, k = 500, h.key()
    conns = [h.conn() for _ in range(8)]

    def go(i):
        conns[i].send(conns[i].q_add(k, i + 1) * each)
        for _ in range(each):
            conns[i].num()
    threads(go, 8)
    same(h.conn().add(k, 0), each * sum(range(1, 9)), "final sum")


# ---------------------------------------------------------------- check and wait

@case("wire")
def check_keys(h):
    c, a, b = h.conn(), h.key("a"), h.key("b")
    need(not c.check([a]), "ready before the set")
    c.set(a, b"1")
    need(c.check([a]), "not ready after the set")
    need(not c.check([a, b]) and not c.check([b, a]), "ready although one is missing")
    c.set(b, b"1")
    need(c.check([a, b, a]), "not ready although all are there")


@case("wire")
def check_and_wait_for_no_keys(h):
    c = h.conn()
    need(c.check([]), "check of no keys")
    c.wait([])


@case("wire")
def wait_for_present_key(h):
    c, k = h.conn(), h.key()
    c.set(k, b"1")
    c.wait([k])
    c.wait([k, k])


def blocked(h, release, keys=None):
    a, b, k = h.conn(), h.conn(), h.key()
    a.wait_start([k])
    a.silent(0.25, "a waiting client")
    release(b, k)
    a.released(3)
    a.silent(0.1, "a released client")
    return a, b, k


@case("wire")
def blocked_get_released_by_other_set(h):
    a, b, k = blocked(h, lambda b, k: b.set(k, b"late"))
    same(a.raw_get(k), b"late", "get after the release")


@case("wire")
def blocked_get_in_a_thread(h):
    """A whole client get (WAIT, then GET) blocked in one thread, the set in another."""
    a, b, k, out = h.conn(), h.conn(), h.key(), []
    t = threading.Thread(target=lambda: out.append(a.get(k)), daemon=True)
    t.start()
    time.sleep(0.3)
    need(not out, "the get did not block")
    b.set(k, b"now")
    t.join(5)
    same(out, [b"now"], "what the blocked get returned")


@case("wire")
def blocked_wait_released_by_add(h):
    blocked(h, lambda b, k: b.add(k, 1))


@case("wire")
def blocked_wait_released_by_append(h):
    blocked(h, lambda b, k: b.append(k, b"x"))


@case("wire")
def blocked_wait_released_by_multi_set(h):
    blocked(h, lambda b, k: b.multi_set([(k + b"0", b""), (k, b"x")]))


@case("wire")
def wait_for_several_keys(h):
    a, b = h.conn(), h.conn()
    ks = [h.key() for _ in range(4)]
    b.set(ks[0], b"")
    need(b.check([ks[0]]), "first key")
    a.wait_start(ks)
    for k in ks[1:]:
        a.silent(0.15, "waiting for all of several keys")
        b.set(k, b"")
    a.released(3)
    a.silent(0.1, "after the release")


@case("wire")
def wait_with_the_same_key_twice(h):
    a, b, k = h.conn(), h.conn(), h.key()
    a.wait_start([k, k])
    a.silent(0.15)
    b.set(k, b"")
    a.released(3)
    a.silent(0.15, "a released client")


@case("wire")
def wait_many_clients_one_key(h):
    k, n = h.key(), 64
    conns = [h.conn() for _ in range(n)]
    for c in conns:
        c.wait_start([k])
    conns[0].silent(0.2)
    h.conn().set(k, b"go")
    for c in conns:
        c.released(5)
    for c in conns:
        same(c.raw_get(k), b"go", "get")


@case("wire")
def wait_after_delete_blocks_again(h):
    a, b, k = h.conn(), h.conn(), h.key()
    b.set(k, b"1")
    same(b.delete(k), 1, "delete")
    a.wait_start([k])
    a.silent(0.2, "waiting for a deleted key")
    b.set(k, b"2")
    a.released(3)


@case("wire")
def delete_does_not_release_waiters(h):
    a, b, k, other = h.conn(), h.conn(), h.key(), h.key()
    b.set(other, b"")
    a.wait_start([k])
    a.silent(0.1)
    same(b.delete(k), 0, "delete of the awaited key")
    b.delete(other)
    a.silent(0.2, "waiting after a delete")
    b.set(k, b"")
    a.released(3)


@case("wire")
def wait_timeout_then_cancel(h):
    a, b, k = h.conn(), h.conn(), h.key()
    a.wait_start([k])
    a.silent(0.3, "a waiting client")       # the client's own time-out
    a.cancel()
    b.set(k, b"too late")
    need(b.check([k]), "set")
    a.silent(0.2, "a client that cancelled its wait")
    same(a.get(k), b"too late", "the same connection afterwards")
    a.wait_start([h.key("second")])
    a.silent(0.1)
    a.cancel()
    same(a.add(h.key(), 3), 3, "add after a second cancel")


@case("wire")
def cancel_crossing_the_release(h):
    """The key is set just before CANCEL_WAIT arrives: STOP_WAITING, then WAIT_CANCELED."""
    a, b, k = h.conn(), h.conn(), h.key()
    a.wait_start([k])
    a.silent(0.1)
    b.set(k, b"1")
    need(b.check([k]), "set")
    a.cancel_start()
    same(a.byte(), STOP_WAITING, "first byte")
    same(a.byte(), WAIT_CANCELED, "second byte")
    same(a.get(k), b"1", "get afterwards")


@case("wire")
def cancel_with_nothing_to_cancel(h):
    c, k = h.conn(), h.key()
    c.cancel()
    c.set(k, b"1")
    same(c.get(k), b"1", "get afterwards")


@case("wire")
def cancel_affects_only_its_client(h):
    a, b, c, k = h.conn(), h.conn(), h.conn(), h.key()
    a.wait_start([k])
    b.wait_start([k])
    a.silent(0.1)
    a.cancel()
    b.silent(0.1, "the other waiting client")
    c.set(k, b"")
    b.released(3)
    a.silent(0.1, "the client that cancelled")


@case("hard")
def abandoned_wait_of_an_old_client(h):
    """A 1.13 client has no CANCEL_WAIT: after its own time-out it sends its next request.
    A wait left behind by it must not put a stray byte before later answers."""
    if h.dialect != "1.13":
        raise Skip("only clients of dialect 1.13 do this")
    a, b, k, other = h.conn(), h.conn(), h.key(), h.key()
    b.set(other, b"answer")
    a.wait_start([k])
    a.silent(0.2)
    a.wait([other])
    b.set(k, b"late")
    need(b.check([k]), "set")
    a.send(a.q_get(other))
    same(a.vec(), b"answer", "the answer after an abandoned wait")


# ---------------------------------------------------------------- counts, deletion

@case("wire")
def num_keys_counts(h):
    c, k = h.conn(), h.key()
    base = c.num_keys()
    for i in range(5):
        c.set(k + b"%d" % i, b"")
    same(c.num_keys(), base + 5, "after five sets")
    c.set(k + b"0", b"again")
    c.add(k + b"add", 1)
    c.compare_set(k + b"cas", b"", b"1")
    c.compare_set(k + b"no", b"x", b"1")
    same(c.num_keys(), base + 7, "after an add and two compareSets")
    c.wait_start([k + b"awaited"])
    d = h.conn()
    same(d.num_keys(), base + 7, "while a key is awaited")
    d.delete(k + b"0")
    same(d.num_keys(), base + 6, "after a delete")


@case("wire")
def delete_key(h):
    c, k = h.conn(), h.key()
    same(c.delete(k), 0, "delete of a missing key")
    c.set(k, b"1")
    same(c.delete(k), 1, "delete")
    same(c.delete(k), 0, "second delete")
    need(not c.check([k]), "still there")
    same(c.add(k, 1), 1, "add after a delete starts from nothing")


@case("wire")
def append_values(h):
    c, d, k = h.conn(), h.conn(), h.key()
    c.append(k, b"one")
    same(c.get(k), b"one", "append to a missing key")
    c.append(k, b"")
    c.append(k, b"\0two")
    same(c.get(k), b"one\0two", "after more appends")
    c.set(k, b"new")
    c.append(k, b"+")
    same(d.get(k), b"new+", "append after a set")


@case("wire")
def append_from_8_threads(h):
    k, conns = h.key(), [h.conn() for _ in range(8)]
    h.conn().code("APPEND")

    def go(i):
        for _ in range(200):
            conns[i].append(k, b"%d" % i)
        conns[i].check([k])
    threads(go, 8)
    got = h.conn().get(k)
    same(sorted(got), sorted(b"".join(b"%d" % i for i in range(8) for _ in range(200))), "bytes")


# ---------------------------------------------------------------- multiSet, multiGet

@case("wire")
def multi_set_and_multi_get(h):
    c, d = h.conn(), h.conn()
    pairs = [(h.key(), b"v%d" % i) for i in range(5)] + [(h.key(), b""), (h.key() + b"\0", b"\0")]
    c.multi_set(pairs)
    need(c.check([k for k, _ in pairs]), "not all there")
    same(d.multi_get([k for k, _ in pairs]), [v for _, v in pairs], "multi_get")
    back = list(reversed(pairs))
    same(d.multi_get([k for k, _ in back]), [v for _, v in back], "multi_get in another order")
    same(d.multi_get([pairs[0][0]] * 3), [b"v0"] * 3, "the same key three times")


@case("wire")
def multi_set_last_of_a_repeated_key_wins(h):
    c, k = h.conn(), h.key()
    c.multi_set([(k, b"first"), (k, b"last")])
    same(c.get(k), b"last", "get")


@case("wire")
def multi_of_1000_keys(h):
    c, k = h.conn(), h.key()
    pairs = [(k + b"%d" % i, os.urandom(i % 97)) for i in range(1000)]
    c.multi_set(pairs)
    same(c.multi_get([a for a, _ in pairs]) == [b for _, b in pairs], True, "values equal")


@case("wire")
def multi_of_no_keys(h):
    c = h.conn()
    c.multi_set([])
    c.multi_get([])
    need(c.check([]), "the connection afterwards")


# ---------------------------------------------------------------- newer operations

@case("libuv")
def queue_operations(h):
    h.feature("queue", "QUEUE_LEN", lambda c: c.send(c.code("QUEUE_LEN") + blob(h.key())))
    c, d, k = h.conn(), h.conn(), h.key()
    base = c.num_keys()
    same(c.queue_len(k), 0, "length of an unknown queue")
    same(c.queue_pop(k), (0, None), "pop of an unknown queue")
    for v in (b"one", b"", b"three\0"):
        c.queue_push(k, v)
    same(c.queue_len(k), 3, "length")
    need(d.check([k]), "check of a queue that holds something")
    same(d.num_keys(), base, "queues do not count as keys")
    same(d.queue_pop(k), (3, b"one"), "first pop (the count is the one before it)")
    same(d.queue_pop(k), (2, b""), "second pop")
    same(c.queue_pop(k), (1, b"three\0"), "third pop")
    same(c.queue_pop(k), (0, None), "pop of an emptied queue")
    need(not d.check([k]), "check of an emptied queue")


@case("libuv")
def queue_push_releases_one_waiter(h):
    h.feature("queue", "QUEUE_LEN", lambda c: c.send(c.code("QUEUE_LEN") + blob(h.key())))
    k, p = h.key(), h.conn()
    ws = [h.conn(), h.conn()]
    for w in ws:
        w.wait_start([k])
    ws[0].silent(0.2, "a client waiting for a queue")
    p.queue_push(k, b"a")
    r, _, _ = select.select([w.s for w in ws], [], [], 3)
    time.sleep(0.2)
    r, _, _ = select.select([w.s for w in ws], [], [], 0)
    same(len(r), 1, "clients released by one push")
    first = ws[0] if ws[0].s in r else ws[1]
    second = ws[1] if first is ws[0] else ws[0]
    first.released()
    same(first.queue_pop(k), (1, b"a"), "pop")
    second.silent(0.1, "the other waiting client")
    p.queue_push(k, b"b")
    second.released(3)


@case("wire")
def list_keys(h):
    h.feature("list", "LIST_KEYS", lambda c: c.list_keys())
    c, k = h.conn(), h.key()
    mine = {k + t for t in (b"a", b"b\0", b"c/d")}
    for n in mine:
        c.set(n, b"")
    got = c.list_keys()
    same(len(got), c.num_keys(), "count")
    same({n for n in got if n.startswith(k)}, mine, "keys")


@case("wire")
def barrier(h):
    def send(c):
        c.barrier_start(h.key(), 1)
        same(c.byte(), STOP_WAITING, "barrier of one")
        c.send(c.code("GETNUMKEYS"))
    h.feature("barrier", "BARRIER", send)
    k, conns = h.key(), [h.conn() for _ in range(3)]
    for c in conns[:2]:
        c.barrier_start(k, 3)
        c.silent(0.15, "a client at the barrier")
    conns[2].barrier_start(k, 3)
    for c in conns:
        c.released(3)
    same(conns[0].raw_get(k), b"3", "the barrier's key holds the count")
    c, k = conns[0], h.key()
    c.barrier_start(k, 2)
    c.silent(0.15)
    c.cancel()
    same(c.add(h.key(), 1), 1, "after a cancelled barrier")


@case("wire")
def watch_key(h):
    if "WATCH_KEY" not in h.ops:
        raise Skip("dialect %s has no WATCH_KEY" % h.dialect)
    w, c, k = h.conn(), h.conn(), h.key()
    w.watch_key(k)
    c.set(k, b"1")
    same(w.update(), (1, k, b"", b"1"), "created")
    c.set(k, b"2")
    same(w.update(), (0, k, b"1", b"2"), "updated")
    c.add(k, 1)
    same(w.update(), (0, k, b"2", b"3"), "added to")
    c.delete(k)
    same(w.update(), (2, k, b"3", b""), "deleted")


# ---------------------------------------------------------------- rude clients

def cuts(c, k):
    """Requests that stop half way, after a good handshake."""
    yield "opcode only", c.code("SET")
    yield "half a length", c.code("SET") + b"\x05\0\0"
    yield "half a key", c.code("SET") + u64(len(k)) + k[:3]
    yield "no value", c.code("SET") + blob(k)
    yield "half a value", c.code("SET") + blob(k) + u64(100) + b"x" * 50
    yield "half an increment", c.code("ADD") + blob(k) + b"\1\0\0"
    yield "one key of three", c.code("WAIT") + u64(3) + blob(k)
    yield "half a compareSet", c.code("COMPARE_SET") + blob(k) + blob(b"")


@case("wire")
def disconnect_mid_request(h):
    k = h.key("torn")
    n = len(list(cuts(h.conn(), k)))
    for i in range(n):
        c = h.conn()
        what, part = list(cuts(c, k))[i]
        c.send(part)
        time.sleep(0.02)
        c.close()
        h.alive("after a client left with %s" % what)
    need(not h.conn().check([k]), "a torn request was applied")


@case("wire")
def reset_mid_request(h):
    for part in (b"", None):
        c = h.conn(handshake=part is None)
        if part is None:
            c.send(c.code("SET") + b"\x05\0\0")
        c.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        h.alive("after a connection reset")


@case("wire")
def disconnect_while_waiting(h):
    k, ws = h.key(), [h.conn() for _ in range(5)]
    for w in ws:
        w.wait_start([k])
    ws[-1].silent(0.1)
    for w in ws[:-1]:
        w.close()
    time.sleep(0.1)
    h.conn().set(k, b"1")
    ws[-1].released(3)
    h.alive("after waiting clients left")


@case("wire")
def disconnect_before_reading_the_answer(h):
    k = h.key()
    s = h.conn()
    s.set(k, big(MIB))
    s.wait([k])
    for _ in range(5):
        c = h.conn()
        c.send(c.q_get(k) * 4)
        c.close()
    h.alive("after clients left without reading")


@case("wire")
def half_open_clients(h):
    for _ in range(20):
        h.conn(handshake=False)
    time.sleep(0.1)
    h.alive("beside 20 silent clients", 3)


@case("libuv")
def half_sent_requests_held_open(h):
    c = h.conn()
    n = len(list(cuts(c, b"kkkkkk")))
    for i in range(n):
        c = h.conn()
        c.send(list(cuts(c, b"kkkkkk"))[i][1])
    time.sleep(0.1)
    h.alive("beside clients in the middle of a request", 3)


@case("libuv")
def half_sent_handshake_held_open(h):
    c = h.conn(handshake=False)
    hello = c.hello()
    if not hello:
        raise Skip("this dialect has no handshake")
    c.send(hello[:1])
    h.conn(handshake=False).send(hello[:3])
    time.sleep(0.1)
    h.alive("beside clients in the middle of the handshake", 3)


@case("libuv")
def client_that_never_reads(h):
    k, s = h.key(), h.conn()
    s.set(k, big(MIB))
    s.wait([k])
    c = h.conn()
    c.send(c.q_get(k) * 32)
    time.sleep(0.3)
    h.alive("beside a client that reads none of its 32 MiB", 3)
    same(len(c.vec()), MIB, "its first answer, read at last")


GARBAGE = [b"\xff", b"\xff" * 64, b"\x47", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
           bytes.fromhex("16030102000100 01fc0303".replace(" ", "")) + b"\xaa" * 64,
           b"\x80" + bytes(range(200))]


@case("wire")
def garbage_first_byte(h):
    for g in GARBAGE:
        c = h.conn(handshake=False)
        try:
            c.send(g)
        except Closed:
            pass
        c.ends(0.3)
        h.alive("after first bytes %s" % short(g), 3)


@case("hard")
def garbage_first_byte_closes(h):
    for g in GARBAGE:
        c = h.conn(handshake=False)
        try:
            c.send(g)
        except Closed:
            continue
        need(c.ends(3), "still open 3 s after first bytes %s", short(g))


@case("wire")
def unknown_opcode_closes(h):
    for op in (0x40, 0xFE):
        c = h.conn()
        c.send(bytes([op]))
        need(c.ends(3), "still open after opcode %#x", op)
    h.alive("after unknown opcodes")


def absurd(c, n):
    yield "key of SET", c.code("SET") + u64(n) + b"x"
    yield "value of SET", c.code("SET") + blob(b"k") + u64(n) + b"x"
    yield "key of GET", c.code("GET") + u64(n) + b"x"
    yield "key of ADD", c.code("ADD") + u64(n) + b"x"
    yield "expected value of COMPARE_SET", c.code("COMPARE_SET") + blob(b"k") + u64(n) + b"x"
    yield "key count of WAIT", c.code("WAIT") + u64(n) + blob(b"x")
    yield "key count of CHECK", c.code("CHECK") + u64(n) + blob(b"x")
    yield "key of DELETE_KEY", c.code("DELETE_KEY") + u64(n) + b"x"
    if c.has("APPEND"):
        yield "value of APPEND", c.code("APPEND") + blob(b"k") + u64(n) + b"x"


def refused(h, n, extra=False):
    c = h.conn()
    base = h.conn().num_keys()
    for i in range(len(list(absurd(c, n)))):
        c = h.conn()
        what, req = list(absurd(c, n))[i]
        c.send(req)
        need(c.ends(4), "%s of %#x: still open after 4 s", what, n)
        h.alive("after a %s of %#x" % (what, n), 3)
    if extra and c.has("MULTI_GET"):
        for op, tail in (("MULTI_GET", blob(b"x")), ("MULTI_SET", blob(b"x") + blob(b"y"))):
            c = h.conn()
            c.send(c.code(op) + u64(n) + tail)
            need(c.ends(4), "key count of %s of %#x: still open after 4 s", op, n)
            h.alive("after a key count of %s of %#x" % (op, n), 3)


@case("wire")
def length_of_2_to_the_62(h):
    refused(h, 2 ** 62)


@case("wire")
def length_of_2_to_the_64_less_1(h):
    refused(h, 2 ** 64 - 1)


@case("libuv")
def count_of_2_to_the_62_in_multi(h):
    if "MULTI_GET" not in h.ops:
        raise Skip("dialect %s has no MULTI_GET" % h.dialect)
    refused(h, 2 ** 62, extra=True)


@case("libuv")
def length_of_2_to_the_40(h):
    if not h.danger:
        raise Skip("a legacy torch server would try to fill 1 TiB; --danger runs it")
    refused(h, 2 ** 40, extra=True)


# ---------------------------------------------------------------- many clients

@case("wire")
def clients_500(h):
    n = 100 if h.quick else 500
    k = h.key()
    t = time.monotonic()
    conns = [h.conn(handshake=False) for _ in range(n)]
    ping = h.ops.get("PING")
    for i, c in enumerate(conns):
        c.send(c.hello() + (bytes([ping]) + struct.pack("<I", i) if ping else b""))
    if ping:
        for i, c in enumerate(conns):
            same(c.recv(4, 20), struct.pack("<I", i), "ping of client %d" % i)
    for i, c in enumerate(conns):
        c.send(c.q_set(k + b"%d" % i, b"%d" % i) + c.q_add(k + b"sum", i)
               + c.q_many("WAIT", [k + b"go"]))
    sums = [c.num() for c in conns]
    same(max(sums), n * (n - 1) // 2, "the last sum")
    conns[0].silent(0.2, "a client waiting among %d" % n)
    extra = h.conn()
    need(extra.check([k + b"%d" % i for i in range(n)]), "not every client's key is there")
    extra.set(k + b"go", b"1")
    for c in conns:
        c.released(20)
    for i, c in enumerate(conns):
        c.send(c.q_get(k + b"%d" % ((i + 1) % n)))
    for i, c in enumerate(conns):
        same(c.vec(), b"%d" % ((i + 1) % n), "neighbour's value")
    took = time.monotonic() - t
    need(took < 60, "%d clients took %.0f s", n, took)


@case("wire")
def clients_500_leave_at_once(h):
    n = 100 if h.quick else 500
    conns = [h.conn(handshake=False) for _ in range(n)]
    for c in conns:
        c.send(c.hello())
    for c in conns:
        c.close()
    h.alive("after %d clients left at once" % n, 10)


@case("wire")
def connect_and_leave_200_times(h):
    for _ in range(200):
        h.conn().close()
    h.alive("after 200 short connections")


def main():
    ap = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                 description=__doc__)
    ap.add_argument("host")
    ap.add_argument("port", type=int)
    ap.add_argument("--dialect", choices=list(DIALECTS), default="2x")
    ap.add_argument("--level", choices=LEVELS, default="hard")
    ap.add_argument("--only", action="append", metavar="GLOB", help="cases to run")
    ap.add_argument("--skip", action="append", metavar="GLOB", default=[])
    ap.add_argument("--require", action="append", metavar="FEATURE",
                    help="queue, list, barrier or all: fail, not skip, where it is missing")
    ap.add_argument("--quick", action="store_true", help="no 64 MiB value, 100 clients not 500")
    ap.add_argument("--danger", action="store_true", help="cases that may exhaust a legacy server")
    ap.add_argument("--timeout", type=float, default=10.0, help="seconds for one answer")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--trace", action="store_true", help="show the traceback of a failure")
    a = ap.parse_args()
    cases = [c for c in CASES
             if LEVELS.index(c[0]) <= LEVELS.index(a.level)
             and (not a.only or any(fnmatch.fnmatch(c[1], g) for g in a.only))
             and not any(fnmatch.fnmatch(c[1], g) for g in a.skip)]
    if a.list:
        for level, name, _ in cases:
            print("%-5s %s" % (level, name))
        return 0
    try:
        import resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    except (ImportError, ValueError, OSError):
        pass
    h = Harness(a)
    try:
        socket.create_connection((a.host, a.port), timeout=a.timeout).close()
    except OSError as e:
        print("cannot reach %s:%d: %s" % (a.host, a.port, e))
        return 2
    passed = failed = skipped = 0
    for level, name, f in cases:
        t, why = time.monotonic(), ""
        try:
            f(h)
            verdict = "PASS"
        except Skip as e:
            verdict, why = "SKIP", str(e)
        except Exception as e:      # noqa: BLE001 - every kind is a failed case
            verdict = "FAIL"
            why = str(e) if isinstance(e, Fail) else "%s: %s" % (
                {"Closed": "the server closed the connection", "Late": "no answer in time"}
                .get(type(e).__name__, type(e).__name__), e)
            if a.trace:
                traceback.print_exc()
        h.done()
        passed += verdict == "PASS"
        failed += verdict == "FAIL"
        skipped += verdict == "SKIP"
        print("%s %-5s %s (%.2f s)%s" % (verdict, level, name, time.monotonic() - t,
                                         ": " + why if why else ""), flush=True)
    print("%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Drive the real torch TCPStore client against any server, or host the real server.

Run it with a Python that has torch (Debian's python3-torch is 1.13), any version.

    store_with_torch.py HOST PORT [--world-size N] [--big] [--gloo N] [--server torch]
        run torch.distributed.TCPStore(HOST, PORT, N, is_master=False) through all the
        operations that this torch has; one PASS/FAIL/SKIP line a case, then
        'N passed, N failed'; exit status 1 on any failure.
        --big   also a 64 MiB value (torch's own libuv server refuses over 8 MiB)
        --server torch   leave out what torch's own server is known not to manage
        --gloo  also N processes: init_process_group('gloo') through the server as a
                launcher's agent store, all_reduce, new_group, barrier

    store_with_torch.py --serve [PORT] [--host H] [--seconds S] [--use-libuv 0|1]
                        [--preset KEY=VALUE]... [--expect KEY=VALUE]...
        host torch's own server for a foreign client; PORT 0 (the default) picks one.
        Prints 'SERVING HOST PORT torch=... libuv=...', sets the presets, waits for
        every --expect (status 1 if one does not come), then stays until standard input
        ends, SIGTERM, or S seconds.
"""
import argparse
import datetime
import os
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

VERSION = tuple(int(x) for x in torch.__version__.split("+")[0].replace("a0", "").split(".")[:2])
SENDS_CANCEL = VERSION >= (2, 1)        # 1.13 and 2.0 leave a timed-out wait behind


class Skip(Exception):
    pass


def secs(s):
    return datetime.timedelta(seconds=s)


def same(got, want, what="value"):
    if got != want:
        a, b = repr(got), repr(want)
        raise AssertionError("%s: got %s, want %s" % (what, a[:80], b[:80]))


def raises(f, within):
    t = time.monotonic()
    try:
        r = f()
    except Exception as e:          # noqa: BLE001 - torch's own types differ by version
        took = time.monotonic() - t
        if took > within:
            raise AssertionError("raised only after %.1f s" % took)
        return e
    raise AssertionError("no error, returned %r" % (r,))


def no_libuv():
    """True for a torch that wants libuv by default (2.4 and on) but was built without it:
    even a plain client then has to say use_libuv=False."""
    if VERSION < (2, 4):
        return False
    try:
        dist.TCPStore("127.0.0.1", 0, None, True, secs(5), False)
        return False
    except RuntimeError as e:
        return "libuv" in str(e)


NO_LIBUV = no_libuv()


def new_store(host, port, world, master, timeout, wait=True, **kw):
    if NO_LIBUV:
        kw.setdefault("use_libuv", False)
    return dist.TCPStore(host, port, world, master, secs(timeout), wait, **kw)


class Drive:
    def __init__(self, a):
        self.a = a
        self.pre = "drive-%d-%x/" % (os.getpid(), int(time.time() * 1000))
        self.n = 0
        self.keep = []

    def store(self, world=None, timeout=10.0):
        s = new_store(self.a.host, self.a.port, world, False, timeout)
        self.keep.append(s)
        return s

    def key(self, name="k"):
        self.n += 1
        return "%s%d-%s" % (self.pre, self.n, name)

    def method(self, name):
        s = self.store()
        if not hasattr(s, name):
            raise Skip("torch %s has no Store.%s" % (torch.__version__, name))
        return s

    # ------------------------------------------------------------ cases
    def case_connect(self):
        s = self.store(self.a.world_size)
        same(s.port, self.a.port, "port")
        same(s.host, self.a.host, "host")
        if s.num_keys() < 1:
            raise AssertionError("a client with a world size did not count itself under init/")

    def case_connect_without_world_size(self):
        s = self.store()
        n = s.num_keys()
        self.store()
        same(s.num_keys(), n, "number of keys")

    def case_set_get(self):
        a, b, k = self.store(), self.store(), self.key()
        a.set(k, "value")
        same(a.get(k), b"value")
        same(b.get(k), b"value")
        a.set(k, "")
        same(a.get(k), b"", "empty value")

    def case_binary_value(self):
        a, k = self.store(), self.key()
        every = bytes(range(256)) * 3
        a.set(k, every)
        same(self.store().get(k), every)

    def case_odd_keys(self):
        a, b = self.store(), self.store()
        for k in (self.key("clé-鍵"), self.key(" sp ace\n"), "/" + self.key(), self.key("x" * 4000)):
            a.set(k, k)
            same(b.get(k), k.encode())

    def case_add(self):
        a, k = self.store(), self.key()
        for d, want in ((1, 1), (41, 42), (-50, -8), (0, -8), (2 ** 40, 2 ** 40 - 8)):
            same(a.add(k, d), want, "add %d" % d)
        same(a.get(k), b"%d" % (2 ** 40 - 8), "stored text")
        a.set(k, "7")
        same(a.add(k, 1), 8, "add to a text")

    def case_add_to_non_number(self):
        a, b, k = self.store(), self.store(), self.key()
        b.set(k, "abc")
        same(b.get(k), b"abc")
        raises(lambda: a.add(k, 1), 5)
        same(b.get(k), b"abc", "another client afterwards")

    def case_add_from_8_threads(self):
        k, each, seen = self.key(), 300, [[] for _ in range(8)]
        stores = [self.store() for _ in range(8)]

        def go(i):
            for _ in range(each):
                seen[i].append(stores[i].add(k, 1))
        ts = [threading.Thread(target=go, args=(i,)) for i in range(8)]
        [t.start() for t in ts]
        [t.join() for t in ts]
        same(sorted(sum(seen, [])) == list(range(1, 8 * each + 1)), True, "all sums, each once")
        same(self.store().get(k), b"%d" % (8 * each), "final sum")

    def case_compare_set(self):
        a, k = self.store(), self.key()
        same(a.compare_set(k, "guess", "new"), b"guess", "missing key, other expected")
        same(a.compare_set(k, "", "first"), b"first", "missing key, empty expected")
        same(a.compare_set(k, "wrong", "second"), b"first", "mismatch")
        same(a.compare_set(k, "first", "second"), b"second", "match")
        same(self.store().get(k), b"second", "stored")

    def case_delete_and_num_keys(self):
        a, k = self.store(), self.key()
        n = a.num_keys()
        for i in range(4):
            a.set(k + str(i), "")
        same(a.num_keys(), n + 4, "after four sets")
        same(a.delete_key(k + "0"), True, "delete")
        same(a.delete_key(k + "0"), False, "second delete")
        same(a.num_keys(), n + 3, "after a delete")

    def case_wait(self):
        a, b, k = self.store(), self.store(), self.key()
        ks = [k + str(i) for i in range(3)]
        for i in ks:
            b.set(i, "")
        a.wait(ks)
        a.wait(ks, secs(5))

    def later(self, f, after=0.4):
        t = threading.Timer(after, f)
        t.start()
        return t

    def case_blocked_get_released_by_set(self):
        a, b, k = self.store(), self.store(), self.key()
        t0 = time.monotonic()
        t = self.later(lambda: b.set(k, "late"))
        same(a.get(k), b"late")
        t.join()
        if time.monotonic() - t0 < 0.3:
            raise AssertionError("the get did not block")

    def case_blocked_wait_released_by_add(self):
        a, b, k = self.store(), self.store(), self.key()
        t = self.later(lambda: b.add(k, 1))
        a.wait([k], secs(5))
        t.join()

    def case_wait_times_out(self):
        a, k = self.store(), self.key()
        t0 = time.monotonic()
        e = raises(lambda: a.wait([k], secs(1)), 4)
        if time.monotonic() - t0 < 0.8:
            raise AssertionError("raised too early: %r" % e)
        if "imeout" not in str(e):
            raise AssertionError("not a time-out: %r" % e)
        a.set(k + "x", "1")
        same(a.get(k + "x"), b"1", "the same client afterwards")

    def case_key_set_after_the_time_out(self):
        """The awaited key comes after all.  torch 1.13 and 2.0 send no CANCEL_WAIT; with
        torch's own server of that age the client is then out of step."""
        if self.a.server == "torch" and not SENDS_CANCEL:
            raise Skip("torch's own client and server before 2.1 cannot do this")
        a, b, k = self.store(timeout=3), self.store(), self.key()
        raises(lambda: a.wait([k], secs(0.5)), 4)
        a.set(k + "x", "1")
        same(a.get(k + "x"), b"1", "before the late set")
        b.set(k, "late")
        same(b.get(k), b"late")
        same(a.get(k), b"late", "the client whose wait had timed out")
        same(a.add(k + "n", 5), 5, "its next request")

    def case_get_times_out(self):
        a, k = self.store(), self.key()
        a.set_timeout(secs(1))
        same(a.timeout, secs(1), "timeout")
        raises(lambda: a.get(k), 4)
        a.set(k + "x", "1")
        same(a.get(k + "x"), b"1", "the same client afterwards")

    def case_prefix_store(self):
        a, k = self.store(), self.key()
        p = dist.PrefixStore("outer", dist.PrefixStore(k + "/inner", a))
        p.set("x", "1")
        same(p.get("x"), b"1")
        same(a.get(k + "/inner/outer/x"), b"1", "the whole key")
        same(p.add("n", 3), 3, "add")
        same(a.get(k + "/inner/outer/n"), b"3", "the sum's key")

    def case_value_1_mib(self):
        self.big(1 << 20)

    def case_value_8_mib(self):
        self.big(8 << 20)

    def case_value_64_mib(self):
        if not self.a.big:
            raise Skip("only with --big")
        self.big(64 << 20)

    def big(self, n):
        a, b, k = self.store(timeout=60), self.store(timeout=60), self.key()
        v = os.urandom(65521) * (n // 65521 + 1)
        v = v[:n]
        a.set(k, v)
        same(b.get(k) == v, True, "the value came back unchanged")
        a.delete_key(k)

    def case_60_clients(self):
        stores = [self.store() for _ in range(60)]
        k = self.key()
        for s in stores:
            s.add(k, 1)
        same(stores[0].get(k), b"60", "sum")

    def case_check(self):
        a, k = self.method("check"), self.key()
        same(a.check([k]), False, "before")
        a.set(k, "1")
        same(a.check([k]), True, "after")
        same(a.check([k, k + "no"]), False, "one is missing")

    def case_append(self):
        a, k = self.method("append"), self.key()
        a.append(k, "one")
        a.append(k, "two")
        same(self.store().get(k), b"onetwo")

    def case_multi_set_multi_get(self):
        a, k = self.method("multi_set"), self.key()
        ks = [k + str(i) for i in range(200)]
        a.multi_set(ks, ["v" * i for i in range(200)])
        same([bytes(v) for v in self.store().multi_get(ks)], [b"v" * i for i in range(200)])

    def case_queue(self):
        a, k = self.method("queue_push"), self.key()
        a.queue_push(k, "one")
        a.queue_push(k, "two")
        same(a.queue_len(k), 2, "length")
        same(a.queue_pop(k), b"one", "first")
        same(a.queue_pop(k, False), b"two", "second")
        raises(lambda: a.queue_pop(k, False), 3)
        b = self.store()
        t = self.later(lambda: b.queue_push(k, "late"))
        same(a.queue_pop(k), b"late", "blocking pop")
        t.join()

    def case_list_keys(self):
        a, k = self.method("list_keys"), self.key()
        a.set(k, "")
        if k not in a.list_keys():
            raise AssertionError("the key is not listed")

    def case_barrier(self):
        a, b, k = self.method("barrier"), self.store(), self.key()
        t = self.later(lambda: b.barrier(k, 2, secs(5)))
        a.barrier(k, 2, secs(5))
        t.join()
        raises(lambda: a.barrier(k + "no", 2, secs(1)), 4)
        same(a.add(k + "n", 1), 1, "after a barrier that timed out")

    def case_clone(self):
        a, k = self.method("clone"), self.key()
        b = a.clone()
        b.set(k, "1")
        same(a.get(k), b"1")

    def case_env_rendezvous(self):
        if NO_LIBUV:
            raise Skip("this torch was built without libuv; its env:// with an agent store needs it")
        env = dict(MASTER_ADDR=self.a.host, MASTER_PORT=str(self.a.port), RANK="0",
                   WORLD_SIZE="1", TORCHELASTIC_USE_AGENT_STORE="True",
                   TORCHELASTIC_RESTART_COUNT="0")
        old = {k: os.environ.get(k) for k in env}
        os.environ.update(env)
        try:
            store, rank, world = next(dist.rendezvous("env://", timeout=secs(10)))
            same((rank, world), (0, 1), "rank and world")
            k = self.key()
            store.set(k, "1")
            same(store.get(k), b"1")
        finally:
            for k, v in old.items():
                os.environ.pop(k) if v is None else os.environ.__setitem__(k, v)

    def case_gloo_process_group(self):
        n = self.a.gloo
        if not n:
            raise Skip("only with --gloo N")
        if not dist.is_gloo_available():
            raise Skip("this torch has no gloo")
        ps = []
        for r in range(n):
            env = dict(os.environ, MASTER_ADDR=self.a.host, MASTER_PORT=str(self.a.port),
                       RANK=str(r), WORLD_SIZE=str(n), TORCHELASTIC_USE_AGENT_STORE="True",
                       TORCHELASTIC_RESTART_COUNT=str(int(time.time()) % 100000))
            ps.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker"],
                                       env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        bad = []
        for r, p in enumerate(ps):
            try:
                out, _ = p.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                p.kill()
                out, _ = p.communicate()
            if p.returncode or b"WORKER OK" not in out:
                bad.append("rank %d (status %s): %s" % (r, p.returncode,
                                                        out.decode(errors="replace")[-300:]))
        if bad:
            raise AssertionError("; ".join(bad))


def worker():
    if NO_LIBUV:            # env:// would ask for libuv, so do by hand what it does
        e = os.environ
        n = int(e["WORLD_SIZE"])
        store = new_store(e["MASTER_ADDR"], int(e["MASTER_PORT"]), n, False, 60)
        store = dist.PrefixStore("default_pg", dist.PrefixStore(
            "run-" + e["TORCHELASTIC_RESTART_COUNT"], store))
        dist.init_process_group("gloo", store=store, rank=int(e["RANK"]), world_size=n,
                                timeout=secs(60))
    else:
        dist.init_process_group("gloo", timeout=secs(60))
    r, n = dist.get_rank(), dist.get_world_size()
    t = torch.full((5,), float(r + 1))
    dist.all_reduce(t)
    same(t.tolist(), [n * (n + 1) / 2] * 5, "all_reduce")
    g = dist.new_group(list(range(n)))
    dist.all_reduce(t, group=g)
    dist.barrier()
    dist.destroy_process_group()
    print("WORKER OK")


def serve(a):
    kw = {}
    if a.use_libuv is not None:
        kw["use_libuv"] = bool(a.use_libuv)
    try:
        s = new_store(a.host or "127.0.0.1", a.port or 0, None, True, a.timeout, False, **kw)
    except TypeError as e:
        sys.exit("this torch does not take these arguments: %s" % e)
    print("SERVING %s %d torch=%s libuv=%s" % (s.host, s.port, torch.__version__,
                                               getattr(s, "libuvBackend", "n/a")), flush=True)
    for kv in a.preset:
        k, v = kv.split("=", 1)
        s.set(k, v)
    bad = 0
    s.set_timeout(secs(a.timeout))
    for kv in a.expect:
        k, v = kv.split("=", 1)
        try:
            got = s.get(k)
        except Exception as e:      # noqa: BLE001
            got = e
        ok = got == v.encode()
        bad += not ok
        print("%s %s=%s" % ("GOT" if ok else "BAD", k, got), flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def until_eof():
        try:
            while sys.stdin.buffer.read(4096):
                pass
        finally:
            stop.set()
    if not a.seconds:
        threading.Thread(target=until_eof, daemon=True).start()
    stop.wait(a.seconds or None)
    print("keys at the end: %d" % s.num_keys(), flush=True)
    return 1 if bad else 0


def main():
    ap = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                 description=__doc__)
    ap.add_argument("where", nargs="*", metavar="HOST PORT")
    ap.add_argument("--serve", action="store_true")
    ap.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    ap.add_argument("--host")
    ap.add_argument("--world-size", type=int, default=1)
    ap.add_argument("--timeout", type=float, default=30.0)
    ap.add_argument("--big", action="store_true")
    ap.add_argument("--gloo", type=int, default=0, metavar="N")
    ap.add_argument("--only", action="append", default=[])
    ap.add_argument("--server", choices=("other", "torch"), default="other",
                    help="'torch' skips what torch's own server is known not to manage")
    ap.add_argument("--seconds", type=float, default=0)
    ap.add_argument("--use-libuv", type=int, choices=(0, 1))
    ap.add_argument("--preset", action="append", default=[], metavar="KEY=VALUE")
    ap.add_argument("--expect", action="append", default=[], metavar="KEY=VALUE")
    a = ap.parse_args()
    if a.worker:
        return worker()
    if a.serve:
        a.port = int(a.where[-1]) if a.where else 0
        return serve(a)
    if len(a.where) != 2:
        ap.error("HOST and PORT, or --serve")
    a.host, a.port = a.where[0], int(a.where[1])
    print("torch %s against %s:%d" % (torch.__version__, a.host, a.port))
    d = Drive(a)
    passed = failed = skipped = 0
    for name in [n for n in vars(Drive) if n.startswith("case_")]:
        if a.only and name[5:] not in a.only:
            continue
        t, why = time.monotonic(), ""
        try:
            getattr(d, name)()
            verdict = "PASS"
        except Skip as e:
            verdict, why = "SKIP", str(e)
        except Exception as e:      # noqa: BLE001 - every kind is a failed case
            verdict, why = "FAIL", "%s: %s" % (type(e).__name__, str(e).split("\n")[0][:200])
        d.keep = []
        passed += verdict == "PASS"
        failed += verdict == "FAIL"
        skipped += verdict == "SKIP"
        print("%s %s (%.2f s)%s" % (verdict, name[5:], time.monotonic() - t,
                                    ": " + why if why else ""), flush=True)
    print("%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Fails when a file includes what its layer may not see.

Layers of the runtime: base < net < store < trace < cuda < comm < {ddp, train}; a layer sees those before it and public headers.
cuda/ and comm/nccl/ are the plugin: nothing outside sees them.
The launcher sees its own, base/, the store's server and net/socket.h. Public headers include std and each other.
usage: include_rule.py ROOT
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
LAYERS = ["base", "net", "store", "trace", "cuda", "comm", "ddp", "train"]
THIRD_PARTY = r"(spdlog|fmt|boost|CLI|nlohmann|doctest|cuda|nccl|cblas)"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
ISOLATED = {"runtime/src/base/log.cpp": "spdlog"}          # the only file that may include it
bad = []


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def refuse(path, number, name, why):
    bad.append(f"{path.relative_to(ROOT)}:{number}: #include {name}: {why}")


def sources(folder):
    return [p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in {".h", ".cpp", ".inc", ".cu"}]


files = 0
for folder in ("runtime/include", "launcher/include"):
    for path in sources(folder):
        files += 1
        for number, kind, name in includes(path):
            if kind == '"' or re.match(THIRD_PARTY, name):
                refuse(path, number, name, "public headers include std and <ddprun/...> only")
for path in sources("runtime/src"):
    files += 1
    own = path.relative_to(ROOT / "runtime/src").parts[0]
    seen = {"ddp": LAYERS[:7], "train": LAYERS[:6] + ["train"]}.get(own, LAYERS[: LAYERS.index(own) + 1])
    in_plugin = own == "cuda" or "nccl" in path.parts
    for number, kind, name in includes(path):
        if kind == '"' and name.startswith(("cuda/", "comm/nccl/")) and not in_plugin:
            refuse(path, number, name, "only the plugin knows CUDA and NCCL")
        if kind == '"' and name.split("/")[0] not in seen:
            refuse(path, number, name, f"{own} sees {', '.join(seen)}")
        if name.startswith("spdlog") and ISOLATED.get(str(path.relative_to(ROOT))) != "spdlog":
            refuse(path, number, name, "spdlog is included by base/log.cpp only")
        if own in ("ddp", "train") and re.match(r"(boost|CLI)", name):
            refuse(path, number, name, f"{own} uses no network and no command line")
        if re.match(r"(ddprun/launch|ddprun/spawn)", name):
            refuse(path, number, name, "the runtime does not know the launcher")
PUBLIC_FOR_LAUNCHER = {"error", "deadline", "store", "tcp_store", "worker_env", "trace", "record", "export", "launch", "spawn"}
for path in sources("launcher/src"):
    files += 1
    for number, kind, name in includes(path):
        if kind == '"' and "/" in name and not (name.startswith("base/") or name in {"store/tcp_store_server.h", "net/socket.h"}):
            refuse(path, number, name, "the launcher sees base/, net/socket.h and the store's server")
        if name.startswith("ddprun/") and name[7:-2] not in PUBLIC_FOR_LAUNCHER:
            refuse(path, number, name, "the launcher uses no collectives")
for folder in ("apps", "examples"):
    for path in sources(folder):
        files += 1
        for number, kind, name in includes(path):
            if kind == '"' and not ((path.parent / name).exists() or (ROOT / folder / name).exists()):
                refuse(path, number, name, "programs see public headers and each other's folders")
if files < 30:
    bad.append(f"only {files} files found under {ROOT}: wrong folder?")
print("\n".join(bad) or f"{files} files keep the include rule")
sys.exit(1 if bad else 0)

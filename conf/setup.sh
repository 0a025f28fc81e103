# Sourced by examples/run.sh and tests/run.sh: installs what the build needs and is missing, and nothing else.
#   need_packages NAME...   returns when all are there; a machine that has them asks no network.

build_packages=(g++ cmake ninja-build git libcli11-dev libspdlog-dev libfmt-dev libboost1.81-dev
                doctest-dev nlohmann-json3-dev zlib1g-dev libopenblas-dev python3)
test_packages=(python3-torch python3-numpy)

need_packages() {
  local missing=() name
  if ! command -v dpkg-query >/dev/null; then
    echo "setup: no dpkg here, so nothing was checked; on Debian 12 these are needed: $*" >&2
    return 0
  fi
  for name in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local install=(apt-get install -y --no-install-recommends "${missing[@]}")
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "setup: missing packages; run this once, then start again:" >&2
      echo "  sudo ${install[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "setup: installing failed; the whole output is in $log" >&2
    return 1
  fi
  rm -f "$log"
}

#!/usr/bin/env bash
# Installs the Debian packages that building hyb needs, if any is missing; with the argument "tests"
# also those that its tests need, with "format" the formatter that CI pins, with "fuzz" what
# scripts/fuzz/fuzz.sh needs.
set -euo pipefail

packages=(
  g++ cmake ninja-build git
  libcli11-dev libfmt-dev nlohmann-json3-dev doctest-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev
)
if [[ " $* " == *" tests "* ]]; then
  packages+=(python3 python3-jinja2 tmux)
fi
if [[ " $* " == *" fuzz "* ]]; then
  packages+=(clang-16 libclang-rt-16-dev)
fi
if [[ " $* " == *" format "* ]]; then
  packages+=(clang-format-14)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "hyb: not a Debian machine; going on with what is installed. Needed: ${packages[*]}" >&2
  exit 0
fi
install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" -eq 0 ]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif command -v sudo >/dev/null; then
  as_root=(sudo DEBIAN_FRONTEND=noninteractive)
else
  echo "hyb needs packages that are not installed; as root: ${install[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}" >&2
"${as_root[@]}" apt-get update -q >&2
"${as_root[@]}" "${install[@]}" >&2

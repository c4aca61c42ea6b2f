#!/usr/bin/env bash
# Installs the Debian packages that building and testing hyb needs, if any is missing.
set -euo pipefail

packages=(
  g++ cmake ninja-build git python3          # build
  libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev doctest-dev
  libpcre2-dev libutf8proc-dev libxxhash-dev
  python3-jinja2 tmux                        # tests
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null; then
  as_root=(sudo)
else
  echo "hyb needs packages that are not installed; as root: ${install[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}" >&2
"${as_root[@]}" apt-get update -q >&2
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" "${install[@]}" >&2

#!/usr/bin/env python3
"""Whether the binary starts on any x86-64 Linux with glibc 2.36 or newer: reads what it needs."""

import re
import subprocess
import sys

ALLOWED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
GLIBC_MAX = (2, 36)


def readelf(option, binary):
    return subprocess.run(["readelf", option, "--wide", binary], check=True, capture_output=True,
                          text=True).stdout


def main():
    binary = sys.argv[1]
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", readelf("-d", binary)))
    versions = {tuple(map(int, version.split(".")))
                for version in re.findall(r"GLIBC_([\d.]+)", readelf("-V", binary))}
    print("needs", sorted(needed), "and glibc", ".".join(map(str, max(versions))))
    if not needed or not needed <= ALLOWED:
        sys.exit(f"unexpected libraries: {sorted(needed - ALLOWED)}")
    if max(versions) > GLIBC_MAX:
        sys.exit(f"needs glibc {max(versions)}, promised is {GLIBC_MAX}")


if __name__ == "__main__":
    main()

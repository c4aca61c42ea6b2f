#!/usr/bin/env python3
"""ctest entries of the doctest binaries: one per TEST_SUITE (called by scripts/cmake/tests.cmake).

    scripts/cmake/ctest_entries.py build/hyb_tests_core --write FILE --card OFF [--sanitized]
    scripts/cmake/ctest_entries.py --check build    # every test case belongs to exactly one entry
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

LABELS = {"unit", "simulation", "surface", "slow", "cuda", "real"}
# (suites, labels, seconds, further properties): the first row that matches a suite holds. The time
# limits end what hangs: a shared machine may need many times what a suite takes alone on one core.
RULES = [
    # COST: the longest start first, so that none is left alone at the end.
    (r"sim/", "simulation", 1800, {"COST": 40}),
    # Types into a real terminal and waits for what it shows.
    (r"app/surface_chat_terminal$", "surface;slow", 1200, {"PROCESSORS": 2}),
    (r"app/surface_(lanes|spec)$", "surface", 1200, {"COST": 50}),
    (r"app/surface_", "surface", 1200, {}),
    (r"(cuda/(drafts|golden|reuse)|cuda_emulator/(card_lanes|session_memory))$", "cuda", 1800,
     {"SKIP_RETURN_CODE": 77, "COST": 80}),
    (r"cuda", "cuda", 1800, {"SKIP_RETURN_CODE": 77}),  # 77: no card
    (r"", "unit", 900, {}),
]
SANITIZED_SLOWDOWN = 8
SANITIZED_SCHEDULES = 2000  # of the simulations, where a run has more


def test_cases(binary):
    """(suite, file:line) of every test case of the binary."""
    listing = subprocess.run([binary, "--list-test-cases", "--reporters=xml"], check=True,
                             capture_output=True, text=True).stdout
    cases = xml.etree.ElementTree.fromstring(listing).iter("TestCase")
    return [(case.get("testsuite", ""), f"{case.get('filename')}:{case.get('line')}")
            for case in cases]


def suites_of(binary):
    cases = test_cases(binary)
    for suite, place in cases:
        if not suite:
            sys.exit(f"{place}: a test case outside of any TEST_SUITE")
        if re.search(r"[^\w/.-]", suite):
            sys.exit(f"{place}: TEST_SUITE({suite!r}) has characters that ctest or doctest expand")
    return list(dict.fromkeys(suite for suite, _ in cases))


def properties_of(suite, card, sanitized):
    labels, seconds, further = next(row[1:] for row in RULES if re.match(row[0], suite))
    properties = {"LABELS": labels, "TIMEOUT": seconds, **further}
    if labels == "cuda" and card == "ON":
        properties["RESOURCE_LOCK"] = "card"
    if sanitized:
        properties["TIMEOUT"] *= SANITIZED_SLOWDOWN
        properties["ENVIRONMENT"] = f"HYB_SIM_SCHEDULES={SANITIZED_SCHEDULES}"
    return properties


def write_entries(binary, target, card, sanitized):
    lines = []
    for suite in suites_of(binary):
        lines.append(f'add_test([=[{suite}]=] "{binary}" "--test-suite={suite}")')
        properties = properties_of(suite, card, sanitized)
        texts = " ".join(f'{name} "{value}"' for name, value in properties.items())
        lines.append(f"set_tests_properties([=[{suite}]=] PROPERTIES {texts})")
    pathlib.Path(target).write_text("\n".join(lines) + "\n")


def entries(folder):
    listing = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], check=True,
                             capture_output=True, text=True).stdout
    return json.loads(listing)["tests"]


def findings(folder):
    """Test cases that no entry or more than one runs, and entries without label or time limit."""
    suites = collections.defaultdict(collections.Counter)
    for entry in entries(folder):
        properties = {one["name"]: one["value"] for one in entry.get("properties", [])}
        labels = set(properties.get("LABELS", []))
        if not labels or not labels <= LABELS or "TIMEOUT" not in properties:
            limit = properties.get("TIMEOUT")
            yield f"{entry['name']}: labels {sorted(labels)}, time limit {limit}"
        program, *arguments = entry.get("command", [""])
        # Others run suites once more, in another setting.
        if "hyb_tests_" in pathlib.Path(program).name and arguments[0].startswith("--test-suite="):
            suites[program][arguments[0].removeprefix("--test-suite=")] += 1
    if not suites:
        yield f"{folder}: no test binary has an entry"
    for binary, counts in suites.items():
        for suite, place in test_cases(binary):
            if counts[suite] != 1:
                yield f"{place}: {counts[suite]} entries run its suite {suite!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("binary", nargs="?")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--card", default="OFF", help="HYB_CUDA_KIND of the build")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--check", metavar="FOLDER")
    options = parser.parse_args()
    if options.check:
        lines = list(findings(options.check))
        print("\n".join(lines))
        return 1 if lines else 0
    write_entries(options.binary, options.write, options.card, options.sanitized)
    return 0


if __name__ == "__main__":
    sys.exit(main())

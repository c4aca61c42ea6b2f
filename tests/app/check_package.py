#!/usr/bin/env python3
"""What scripts/package makes of a build, unpacked: the binary runs, its pages and completions are
there, and a .deb depends on the C library alone.

    check_package.py BUILD_FOLDER
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    has_deb = shutil.which("dpkg-shlibdeps") is not None
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        run("cpack", "-G", "DEB;TGZ" if has_deb else "TGZ", "-B", folder, cwd=build)
        [tarball] = out.glob("hyb-*.tar.gz")
        run("tar", "-xzf", tarball, "-C", folder)
        [top] = [path for path in out.glob("hyb-*") if path.is_dir()]
        print(run(top / "bin/hyb", "--version").strip())
        pages = {path.name for path in (top / "share/man/man1").iterdir()}
        missing = {"hyb.1", "hyb-run.1", "hyb-batch.1", "hyb-chat.1"} - pages
        assert not missing and len(pages) > 10, f"man pages: {sorted(pages)}"
        for text in ["bash-completion/completions/hyb", "zsh/site-functions/_hyb",
                     "fish/vendor_completions.d/hyb.fish", "doc/hyb/README.md"]:
            assert (top / "share" / text).stat().st_size > 0, text
        if has_deb:
            [package] = out.glob("hyb-*.deb")
            depends = run("dpkg-deb", "-f", package, "Depends").strip()
            assert depends.startswith("libc6 (") and "," not in depends, depends
            files = run("dpkg-deb", "-c", package)
            assert "./usr/bin/hyb" in files and "./usr/share/man/man1/hyb-run.1" in files, files
        print("a tarball" + (" and a .deb" if has_deb else "; no dpkg-shlibdeps, so no .deb"))


if __name__ == "__main__":
    main()

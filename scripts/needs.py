"""Imported by commands of scripts/: where a module is missing, one line says what to install."""

import sys


def say_what_is_missing(kind, error, trace):
    if isinstance(error, ModuleNotFoundError):
        name = error.name.split(".")[0]
        name = name.replace("_", "-")
        print(f"{sys.argv[0]}: {name} is missing: pip install {name}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = say_what_is_missing

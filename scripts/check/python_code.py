"""What scripts/tidy.py checks in Python without running it: imports of our own files and names that
are there, nothing that is never used. So a script that starts today still starts after a move.
"""

import ast
import builtins
import collections
import re

ALWAYS = {*dir(builtins), "__file__", "__doc__"}
FOR_ITS_EFFECT = {"needs"}  # imported, not named


def imports(tree):
    """(line, module, name of the module's or None, name here) of every import of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield node.lineno, each.name, None, (each.asname or each.name).split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                yield node.lineno, node.module, each.name, each.asname or each.name


def names(tree):
    """(names that the file binds anywhere, {name that it reads: line})"""
    bound, read = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs)) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.setdefault(node.id, node.lineno)
        elif isinstance(node, ast.Name):
            bound.add(node.id)
    return bound, read


def is_there(scripts, trees, module, name):
    """Whether a module of scripts/ has the name; None where the module is not of scripts/."""
    if not (scripts / module.split(".")[0]).is_dir():
        return None
    path = scripts / module.replace(".", "/")
    if path.is_dir():
        return name is None or (path / f"{name}.py").is_file()
    tree = trees.get(path.with_suffix(".py"))
    return tree is not None and (name is None or name in names(tree)[0]
                                 or name in {here for *_, here in imports(tree)})


def findings(top, files):
    """(rule, name, line, text) of the files, which are paths from `top`."""
    trees = {top / name: ast.parse((top / name).read_text()) for name in files}
    words = collections.Counter()
    for name in files:
        words.update(re.findall(r"\w+", (top / name).read_text()))
    for name in files:
        tree = trees[top / name]
        bound, read = names(tree)
        for line, module, part, here in imports(tree):
            bound.add(here)
            if is_there(top / "scripts", trees, module, part) is False:
                yield "import", name, line, f"scripts/ has no {module}.{part or ''}"
            if here not in read and here not in FOR_ITS_EFFECT:
                yield "unused", name, line, f"{here} is imported and not used"
        for each, line in read.items():
            if each not in bound | ALWAYS:
                yield "name", name, line, f"{each} is not defined"
        for node in ast.walk(tree):
            if (isinstance(node, (ast.FunctionDef, ast.ClassDef)) and words[node.name] == 1
                    and name.startswith("scripts/")):
                yield "unused", name, node.lineno, f"nothing calls {node.name}"

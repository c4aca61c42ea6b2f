"""What scripts/tidy.py and scripts/check/house.py read from C++ sources without a compiler."""

import bisect
import re


COMMENT = r"//[^\n]*|/\*.*?\*/"
STRING = (r'R"(?P<delimiter>\w*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|'
          r"(?<!\d)'(?:\\.|[^'\\\n])+'")


def blanked(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """Blanks comments, keeping line breaks and columns."""
    return re.sub(f"({COMMENT})|{STRING}",
                  lambda found: blanked(found.group()) if found.group(1) else found.group(), text,
                  flags=re.S)


def without_comments_and_strings(text):
    """Blanks comments, strings and character literals, keeping line breaks and columns."""
    return re.sub(f"{COMMENT}|{STRING}", lambda found: blanked(found.group()), text, flags=re.S)


def function_spans(code):
    """(first line, lines, name) of every function body in C++ code without comments."""
    spans, opened, line = [], [], 1
    for found in re.finditer(r"[{}\n]", code):
        if found.group() == "\n":
            line += 1
        elif found.group() == "{":
            head = re.split(r"[;{}]", code[:found.start()])[-1]
            head = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", "", head)
            # A body follows a parameter list and its qualifiers.
            is_body = re.search(
                r"\)\s*(const|noexcept|override|mutable|->\s*[\w:<>,\s*&]+|\s)*$", head)
            is_control = re.search(r"\b(if|for|while|switch|catch)\b", head)
            is_type = re.search(r"\b(namespace|class|struct|enum|union)\b[^()]*$", head)
            name = re.search(r"([~\w:]+)\s*\(", head)
            kind = name.group(1) if is_body and name and not is_control and not is_type else None
            opened.append((kind, line))
        elif opened:
            kind, first = opened.pop()
            if kind:
                spans.append((first, line - first + 1, kind))
    return spans


def closing(code, start):
    """The place after the bracket that closes the one at `start`."""
    depth = 0
    for found in re.compile(r"[(){}\[\]]").finditer(code, start):
        depth += 1 if found.group() in "({[" else -1
        if depth == 0:
            return found.end()
    return len(code)


def outside_angles(code):
    """Blanks template arguments, so that no parenthesis of theirs is taken for parameters."""
    code = re.sub(r"\boperator\s*(\(\s*\)|[^\w\s(]+)", lambda found: "operator".ljust(
        len(found.group()), "_"), code)
    code = re.sub(r"->|<=>|[<>]=|<<", "  ", code)
    last = None
    while last != code:
        last = code
        code = re.sub(r"<[^<>;]*>", lambda found: " " * len(found.group()), code)
    return code


def members(body):
    """The declarations of a class's body, without the bodies of functions and nested types."""
    start = at = 0
    while at < len(body):
        char = body[at]
        if char in "([":
            at = closing(body, at)
        elif char == "{":
            head = body[start:at].rstrip()
            parameters = re.search(r"\(", outside_angles(head))
            # In `X(int a) : a_{a} {}` the first brace belongs to a member, the second is the body.
            is_value = not parameters or re.search(r"\)\s*:[^:].*[\w>]$", head, re.S) or \
                re.search(r"[^=!<>]=[^=]", head[:parameters.start()])
            at = closing(body, at)
            if not is_value:
                yield head
                start = at
        elif char == ";":
            yield body[start:at]
            start = at = at + 1
        else:
            at += 1


def is_method(declaration):
    """Whether a member is a function with a body of its own, here or elsewhere.

    Accessors, constructors, operators, templates and each overload count. Functions that are
    defaulted or deleted do not, nor do friends.
    """
    text = outside_angles(re.sub(r"\[\[.*?\]\]|\b(public|protected|private)\s*:", " ", declaration))
    text = re.sub(r"\b(alignas|decltype|explicit|requires)\s*\([^()]*\)", " ", text).strip()
    if re.match(r"(friend|using|typedef|static_assert|enum|class|struct|union)\b", text):
        return False
    if re.search(r"=\s*(default|delete)\s*$", text):
        return False
    return bool(re.match(r"[^=({]*\w\s*\((?!\s*\*\s*\w+\s*\))", text, re.S))


def classes(code):
    """(first line, lines of its body, name, methods) of every class in code without comments."""
    code = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda found: re.sub(r"[^\n]", " ", found.group()),
                  code, flags=re.M)
    breaks = [found.start() for found in re.finditer("\n", code)]
    for found in re.finditer(r"(?<!enum )\b(?:class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*)?"
                             r"([\w:]+)", code):
        head = re.compile(r"[^;{}()=]*\{").match(code, found.end())
        if not head or ">" in re.sub(r"<[^<>]*(<[^<>]*>[^<>]*)*>", "", head.group()):
            continue  # declared only, or a parameter of a template
        end = closing(code, head.end() - 1)
        line, last = (bisect.bisect_left(breaks, at) + 1 for at in (found.start(), end))
        count = sum(map(is_method, members(code[head.end():end - 1])))
        yield line, last - line + 1, found.group(1), count


def declarations(code, space=""):
    """(place, namespace, text up to its body or end, has a body) of everything that is declared
    or defined in a namespace, in code without comments. A namespace without a name ends in "::".
    """
    start = at = 0
    while at < len(code):
        char = code[at]
        if char in "([":
            at = closing(code, at)
        elif char == "#":  # a line of the preprocessor
            start = at = code.find("\n", at) + 1 or len(code)
        elif char in "{;":
            head, end = code[start:at], closing(code, at) if char == "{" else at + 1
            named = re.match(r"\s*namespace\b\s*([\w:]*)\s*$", head)
            if named or re.match(r'\s*extern\s+"?\s*"?\s*$', head) and char == "{":
                inner = f"{space}::{named[1]}" if named else space
                for place, *declaration in declarations(code[at + 1:end - 1], inner):
                    yield at + 1 + place, *declaration
            else:
                yield start + len(head) - len(head.lstrip()), space, head, char == "{"
            start = at = end
        elif char == "}":
            start = at = at + 1
        else:
            at += 1


def type_or_constant(head, has_body):
    """The name of the type that this defines or of the constant, else None."""
    is_type = r"\s*(?:template\s*<[^{;]*>\s*)?(?:enum\s+class|enum|class|struct|union)\s+"
    if re.match(is_type, head):
        found = re.match(is_type + r"(?:alignas\s*\([^)]*\)\s*)?(\w+)", head)
        return found[1] if found and has_body else None
    found = re.match(r"\s*using\s+(\w+)\s*=", head)
    if not found and "(" not in head.split("=")[0]:
        found = re.match(r"\s*(?:inline |const |constexpr )+[\w:<>,\s*&]*?\b(\w+)(?:\[\w*\])?\s*"
                         r"(?:=|$)", head)
    return found and found[1]


def free_function(head):
    """The name and the types of the parameters of the function that this declares, else None."""
    text = outside_angles(head)
    found = re.match(r"[^=({]*?([\w:]+)\s*\(", text, re.S)
    is_other = re.match(r"\s*(namespace|class|struct|union|enum|using|typedef|static|"
                        r"static_assert)\b", re.sub(r"\s*template\s*<[^<>]*>", "", head))
    if not found or is_other or "::" in found[1] or found[1] == "operator":
        return None
    parameters = head[found.end():closing(text, found.end() - 1) - 1]
    types, depth, last = [], 0, 0
    for place, char in enumerate(parameters + ","):
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and depth == 0:
            one = re.sub(r"\s*=.*|\[\[.*?\]\]", "", parameters[last:place], flags=re.S).strip()
            types.append("".join(re.sub(r"(?<=[\s&*>])\w+$", "", one).split()))
            last = place + 1
    return found[1], tuple(types)

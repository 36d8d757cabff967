"""The host functions of a CUDA file, which a template cannot hold: main and what it calls.

Device code cannot call a function without `__device__`, so the kernel does not need them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from greenfast.app.cli.import_file_scope import blank, statements, without_directives
from greenfast.app.cli.import_headers import HOST_CODE
from greenfast.app.cli.import_source import CudaText, without_comments

_OF_DEVICES = re.compile(r"__(?:global|device|constant|managed|shared)__|\bconstexpr\b")
_MACRO = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)(?:[^\n]|\\\n)*?__(?:global|device)__")
_FUNCTION = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\((?:[^()]|\([^()]*\))*\)\s*(?:noexcept\s*)?\Z")
# `float f(Tensor x)`, but neither `alignas(8)` nor a macro alone.
_DECLARED = re.compile(
    r"\A\s*(?!using\b|typedef\b|return\b)[A-Za-z_][^=()]*[\s*&>](?!__)[A-Za-z_]\w*\s*\Z"
)
_DEFINE = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?:[^\\\n]|\\\n|\\.)*$")
_TYPE = re.compile(r"\b(?:struct|class|union|enum)\s+(?P<name>\w+)[^()]*\Z")
_OF_HOSTS = re.compile(
    r"(?<!operator)<<\s*<(?!<)|\bcuda[A-Z]\w*\s*\(|\bstd::(?:vector|string|chrono|cout)\b"
)
_OF_HOST_MACROS = (
    r"(?<!operator)<<\s*<(?!<)|\b(?:torch|at|c10)::"
    r"|\bstd::(?:vector|string|cout|cerr|runtime_error)\b"
)
_THRUST = re.compile(r"(?m)^([ \t]*)(#[ \t]*include[ \t]*<thrust/[^>\n]*>)")
_USING_STD = re.compile(r"(?m)^([ \t]*)using[ \t]+namespace[ \t]+std[ \t]*;")


@dataclass(frozen=True)
class _Definition:
    name: str
    begin: int
    end: int


def without_host_functions(source: CudaText) -> tuple[CudaText, tuple[str, ...]]:
    """The text without its host functions, in as many lines, and their names.

    A host's macros and headers of Thrust go too, as only these used them. A text without host
    code stays as it is.
    """
    bare = without_comments(source.text)
    if not HOST_CODE.search(bare):
        return source, ()
    text = _without_host_macros(source.text)
    functions = list(_host_functions(without_comments(text)))
    for function in reversed(functions):
        lines = "\n" * text.count("\n", function.begin, function.end)
        text = text[: function.begin] + lines + text[function.end :]
    for name in {function.name for function in functions}:
        instances = rf"\btemplate\s+(?!<)[^;{{}}<]*\b{re.escape(name)}\s*<[^;{{}}]*;"
        text = re.sub(instances, blank, text)
    if not re.search(r"\bthrust\s*::", without_comments(text)):
        text = _THRUST.sub(r"\1// \2  (a host's header)", text)
    text = _USING_STD.sub(r"\1// using namespace std;", text)
    return replace(source, text=text), tuple(function.name for function in functions)


def _without_host_macros(text: str) -> str:
    """The text without a host's macros and those that name one of these, and without their uses."""
    of_hosts, before = _OF_HOST_MACROS, ""
    names: list[str] = []
    while text != before:
        before = text
        for macro in list(_DEFINE.finditer(text)):
            if re.search(of_hosts, without_comments(macro[0])):
                names.append(macro["name"])
                of_hosts += rf"|\b{macro['name']}\b"
                text = text[: macro.start()] + blank(macro) + text[macro.end() :]
    for name in names:
        text = re.sub(rf"\b{name}\s*\((?:[^()]|\([^()]*\))*\)\s*;?", blank, text)
    return text


def _host_functions(bare: str) -> Iterator[_Definition]:
    """The functions at file scope that are for no device."""
    macros = "|".join(map(re.escape, _MACRO.findall(bare)))
    of_devices = re.compile(rf"{_OF_DEVICES.pattern}" + (rf"|\b(?:{macros})\b" if macros else ""))
    text = without_directives(bare)
    for each in statements(text):
        if each.body == each.end:
            name = None if of_devices.search(each.header) else _declared_name(each.header)
            if name:
                yield _Definition(name, each.begin + _leading(each.header), each.end)
            continue
        end, definition = each.end, _function_or_type(each.header, text[each.body : each.end])
        if definition and definition.re is _TYPE:
            semicolon = re.compile(r"\s*;").match(text, end)
            end = semicolon.end() if semicolon else end
        if definition and not of_devices.search(each.header):
            yield _Definition(definition["name"], each.begin + _leading(each.header), end)


def _function_or_type(header: str, body: str) -> re.Match[str] | None:
    """The function that a block defines, or a type with members of a host alone."""
    if found := _TYPE.search(header):
        return found if _OF_HOSTS.search(body) and not _OF_DEVICES.search(body) else None
    return None if header.rstrip().endswith("=") else _FUNCTION.search(header)


def _declared_name(header: str) -> str:
    """The function that a statement without a body declares; empty for anything else."""
    found = _FUNCTION.search(header)
    if found is None or not _DECLARED.match(header[: found.end("name")]):
        return ""
    return found["name"]


def _leading(header: str) -> int:
    return len(header) - len(header.lstrip())

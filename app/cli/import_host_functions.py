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
_TYPE = re.compile(r"\b(?:struct|class|union|enum)\s+(?P<name>\w+)[^()]*\Z")
_OF_HOSTS = re.compile(r"<<<|\bcuda[A-Z]\w*\s*\(|\bstd::(?:vector|string|chrono|cout)\b")
_THRUST = re.compile(r"(?m)^([ \t]*)(#[ \t]*include[ \t]*<thrust/[^>\n]*>)")
_USING_STD = re.compile(r"(?m)^([ \t]*)using[ \t]+namespace[ \t]+std[ \t]*;")


@dataclass(frozen=True)
class _Definition:
    name: str
    begin: int
    end: int


def without_host_functions(source: CudaText) -> tuple[CudaText, tuple[str, ...]]:
    """The text without its host functions, in as many lines, and their names.

    Headers of Thrust go too where only these used it. A text without host code stays as it is.
    """
    bare = without_comments(source.text)
    if not HOST_CODE.search(bare):
        return source, ()
    functions = list(_host_functions(bare))
    text = source.text
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


def _host_functions(bare: str) -> Iterator[_Definition]:
    """The functions at file scope that are for no device."""
    macros = "|".join(map(re.escape, _MACRO.findall(bare)))
    of_devices = re.compile(rf"{_OF_DEVICES.pattern}" + (rf"|\b(?:{macros})\b" if macros else ""))
    text = without_directives(bare)
    for each in statements(text):
        if each.body == each.end:
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


def _leading(header: str) -> int:
    return len(header) - len(header.lstrip())

"""The names of kernel.toml that become fields and variables of C++."""

from __future__ import annotations

from greenfast.runtime.operation import Operation
from greenfast.search.errors import UsageError

_KEYWORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "char8_t",
        "char16_t",
        "char32_t",
        "class",
        "co_await",
        "co_return",
        "co_yield",
        "compl",
        "concept",
        "const",
        "const_cast",
        "consteval",
        "constexpr",
        "constinit",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "requires",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
    ]
)
# Parameters of the header's functions, and fields of Call that every header has.
_OWN = frozenset({"call", "stream", "scratch", "has_library"})


def require_fields(operation: Operation) -> None:
    """UsageError unless dims, constants and tensors have names that C++ takes, and no two one."""
    tables = (
        ("dims", [dim.name for dim in operation.dims]),
        ("options", [name for name, _ in operation.options]),
        ("constants", [name for name, _ in operation.constants]),
        ("arguments", [tensor.name for tensor in operation.tensors]),
    )
    first: dict[str, str] = {}
    for table, names in tables:
        for name in names:
            taken = first.get(name)
            if taken == "options" and table == "arguments":  # the option's field has another name
                continue
            if name in _KEYWORDS | _OWN or taken:
                why = f"[{taken}] has it, too" if taken else "C++ has another use for it"
                raise UsageError(
                    f"{operation.name}, [{table}]: there is no C++ header for the name {name}: "
                    f"{why}",
                    code="cpp_name",
                    mend="rename it in kernel.toml, and tune again",
                )
            first[name] = table

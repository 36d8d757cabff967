"""An entry for a kernel that no launch can name: an instance of a C++ template, or in a namespace.

The kernel becomes a __device__ function, and the entry an `extern "C"` function that calls it with
the template's arguments. An argument may be a tunable parameter: `k<float, block_size_x>`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from greenfast.app.cli.import_parameters import split_at_commas
from greenfast.app.cli.import_source import CudaText, known_entry, without_comments
from greenfast.search.errors import UsageError
from greenfast.search.text import shortened, visible

_WANTED = re.compile(r"\s*(?:::)?(?P<name>[\w:]+?)\s*(?P<arguments><.*>)?\s*\Z", re.DOTALL)
_TEMPLATE = re.compile(r"\btemplate\s*<(?P<parameters>[^;{}#]*)>\s*(?P<words>[\w\s]*)\Z")
_NAMESPACE = re.compile(r"\b(?:inline\s+)?namespace\s*(?P<name>[\w:]*)\s*\Z")
_ATTRIBUTE = re.compile(r"\b__\w+__\b(?:\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?")
_DEFAULT = re.compile(r"\s*=[^,]*")  # of a parameter
_PLAIN_WORD = re.compile(r"[\w.]+\Z")
_STATEMENT = re.compile(r"[^;{}]+;?")
_DECLARATION = re.compile(
    r'(?:\btemplate\b|(?:(?:extern\s*"C"|static|inline|__forceinline__)\s+)*\b__global__\b)'
    r"[^;{}]*;\Z"
)
OWN_VALUE = "_value"  # ends the macro of a parameter that has the name of a template's


@dataclass(frozen=True)
class _Template:
    parameters: tuple[str, ...]  # as they are declared: `typename T`, `int block = 128`

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            each.partition("=")[0].split()[-1].lstrip(".") if each.split() else ""
            for each in self.parameters
        )

    def __str__(self) -> str:
        return f"<{', '.join(' '.join(each.split()) for each in self.parameters)}>"


def instantiated(
    source: CudaText, wanted: str | None, file: str, tuned: Collection[str]
) -> tuple[CudaText, str, dict[str, str]]:
    """The text with an entry that a launch can name, the entry, and macros of parameters.

    Text and entry are as they were where the entry has a name of its own. The macros are those of
    tuned parameters whose own name is that of a parameter of the C++ template.
    """
    match = _WANTED.match(wanted) if wanted is not None else None
    if wanted is not None and match is None:
        raise UsageError(
            f"--entry {shortened(visible(wanted), 60)!r} is not the name of a kernel",
            code="unknown_entry",
            mend="k, ns::k, or k<float, block_size_x> for an instance of a template",
        )
    bare = without_comments(source.text)
    short = match["name"].rpartition("::")[2] if match is not None else None
    name, found = known_entry(bare, short, file)
    if declarations := _declarations(bare, name):
        return instantiated(_without(source, declarations), wanted, file, tuned)
    head = bare[: found.start()]
    template = _template_before(head)
    scopes = _scopes(head)
    texts = (
        split_at_commas(match["arguments"].strip()[1:-1]) if match and match["arguments"] else []
    )
    if template is None and texts:
        raise UsageError(
            f"{file}: {name} is not a template, so it takes no {visible(match['arguments'])}",  # type: ignore[index]
            code="unknown_entry",
            mend=f"--entry {name}",
        )
    is_static = re.search(r"\b(?:static|inline)\s*\Z", head) is not None
    if template is None and not scopes and not is_static:
        begin, end = found.span("parameters")
        plain = _DEFAULT.sub("", source.text[begin:end])  # a launch passes every argument
        return replace(source, text=source.text[:begin] + plain + source.text[end:]), name, {}
    macros = {each: each + OWN_VALUE for each in tuned if template and each in template.names}
    values = _bound(template, texts, name, file, macros) if template else {}
    return _with_entry(source, found, name, scopes, values), f"{name}_entry", macros


def _declarations(bare: str, name: str) -> list[tuple[int, int]]:
    """The explicit instantiations of a kernel, and its declarations without a body."""
    named = re.compile(rf"\b{re.escape(name)}\s*[<(]")
    return [
        (statement.start() + declaration.start(), statement.end())
        for statement in _STATEMENT.finditer(bare)
        if "__global__" in statement[0]
        and (declaration := _DECLARATION.search(statement[0])) is not None
        and named.search(declaration[0])
    ]


def _without(source: CudaText, parts: Sequence[tuple[int, int]]) -> CudaText:
    """The text with only the line ends of these parts, which an entry of its own replaces."""
    text = source.text
    for begin, end in reversed(parts):
        text = text[:begin] + "\n" * text.count("\n", begin, end) + text[end:]
    return replace(source, text=text)


def _template_before(head: str) -> _Template | None:
    match = _TEMPLATE.search(head)
    if match is None:
        return None
    # An argument list may hold other lists: the template's own is the last that opens one.
    begin = head.rindex("template", 0, match.end("parameters"))
    text = head[head.index("<", begin) + 1 : match.end("parameters")]
    return _Template(tuple(split_at_commas(text)))


def _scopes(head: str) -> tuple[str, ...]:
    """The namespaces that are open at the end of a text; one without a name is an empty text."""
    open_braces: list[str | None] = []
    for brace in re.finditer(r'[{}]|"(?:\\.|[^"\\\n])*"', head):
        if brace[0] == "{":
            before = _NAMESPACE.search(head[max(brace.start() - 200, 0) : brace.start()])
            open_braces.append(before["name"] if before else None)
        elif brace[0] == "}" and open_braces:
            open_braces.pop()
    return tuple(scope for scope in open_braces if scope is not None)


def _bound(
    template: _Template,
    texts: Sequence[str],
    name: str,
    file: str,
    macros: Mapping[str, str],
) -> dict[str, str]:
    """The template's arguments by its parameters, with its defaults."""
    known: dict[str, str] = {}
    for number, (parameter, declared) in enumerate(
        zip(template.names, template.parameters, strict=True)
    ):
        _, equals, default = declared.partition("=")
        value = texts[number] if number < len(texts) else default.strip()
        if "..." in declared or (number >= len(texts) and not equals) or not parameter:
            break
        value = _substituted(value, macros if number < len(texts) else known)
        is_type = re.match(r"(?:typename|class|template)\b", declared.strip())
        known[parameter] = value if is_type or _PLAIN_WORD.match(value) else f"({value})"
    if len(known) == len(template.parameters) >= len(texts):
        return known
    example = ", ".join(_example(each) for each in template.parameters if "=" not in each)
    raise UsageError(
        f"{file}: {name} is a template {shortened(visible(template), 120)}, and the entry gives "
        f"{len(texts) or 'no'} argument{'s' if len(texts) != 1 else ''}",
        code="bad_entry",
        mend=f"for example --entry '{name}<{example}>'; a tuned parameter may be an argument",
    )


def _example(declared: str) -> str:
    word = declared.split()[0] if declared.split() else ""
    return {"typename": "float", "class": "float", "bool": "true"}.get(word, "block_size_x")


def _substituted(text: str, values: Mapping[str, str]) -> str:
    """The text with words replaced."""
    if not values:
        return text
    words = re.compile(rf"\b(?:{'|'.join(map(re.escape, values))})\b")
    return words.sub(lambda word: values[word[0]], text)


def _with_entry(
    source: CudaText,
    found: re.Match[str],
    name: str,
    scopes: Sequence[str],
    values: Mapping[str, str],
) -> CudaText:
    """The text with the kernel as a __device__ function, and at the end the entry."""
    text, spot = source.text, found.span("between")
    begin = found.start()
    parameters = _DEFAULT.sub("", found["parameters"])
    body = _ATTRIBUTE.sub(lambda word: "\n" * word[0].count("\n"), found["between"])
    device = f"__device__{body}{text[spot[1] :]}"
    text = text[:begin] + device
    attributes = _substituted(" ".join(found["between"].split()), values)
    passed = [_parameter_name(each) for each in split_at_commas(parameters) if each != "void"]
    scope = "".join(f"{each}::" for each in scopes if each)
    listed = f"<{', '.join(values.values())}>" if values else ""
    declared = _substituted(" ".join(parameters.split()), values)
    named = "::".join(filter(None, scopes))
    lines = (
        "",
        *([f"using namespace {named};"] if named else []),  # for the types of the parameters
        f'extern "C" __global__ {attributes} {name}_entry({declared})',
        "{",
        f"    {scope}{name}{listed}({', '.join(passed)});",
        "}",
    )
    places = (*source.places, *[source.places[-1]] * len(lines))
    return replace(source, text="\n".join([text, *lines]), places=places)


def _parameter_name(declared: str) -> str:
    """The name of a parameter, of an array too."""
    words = re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", declared.partition("=")[0]))
    return words[-1] if words else ""

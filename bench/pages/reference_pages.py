"""The generated pages of docs/reference/: files' keys, device primitives, commands, REST, errors.

    python -m bench.pages.reference_pages [--save]

tests/unit/test_reference_pages.py compares them with the code.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from enum import EnumType
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import typer

from bench.pages import error_codes
from bench.pages.sections import DOCS, run_page
from greenfast.app.cli.commands import SECTIONS
from greenfast.app.cli.main import make_app
from greenfast.app.service.application import create_app
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.kernels.forms import TABLES, Form

FOLDER = DOCS / "reference"
NOTICE = "<!-- Generated: python -m bench.pages.reference_pages --save -->"
FILES = {
    "kernel": """A kernel is a folder with kernel.toml, [reference.py](reference-py.md), and for
each template a [.toml](template-toml.md) and a .cu.j2. It lies in ./kernels of the folder that a
command is run in, or in a folder on GREENFAST_TEMPLATE_PATH.""",
    "template": """A template is two files: NAME.toml, described here, and NAME.cu.j2, CUDA C++ with
[Jinja](https://jinja.palletsprojects.com) in it. The text sees parameters, locals, options,
compile-time dims and `sm_count`, and includes [device primitives](gf.md) by name. Parts of a long
text lie in a folder of the template's name and are included by `{% include "NAME/PART.cu.j2" %}`,
alone on a line. Each entry is an `extern "C" __global__` function whose parameters are the
`[[arguments]]` of kernel.toml, then the scalars, workspaces and tensor maps of the template.""",
}
PRIMITIVES = """A template includes a header by name, `#include "gf/reduce.cuh"`. Flattening puts
its text into the source, so the source that is compiled and downloaded needs no other file. The
emulator has its own form of each function. Templates should use these functions instead of inline
PTX, of which the emulator supports only [the common instructions](../emulator.md#inline-ptx).

Below each declaration, *Undefined* lists uses that neither the compiler nor the hardware has to
report. Where the emulator reports one, the kind of [the finding](../emulator.md#checks) follows in
brackets. The headers hold these paragraphs in lines that begin with `//!`: notes for authors, which
flattening leaves out. A source and its digest do not depend on them. The same holds for headers of
your own, in `include/gf/` of a folder on GREENFAST_TEMPLATE_PATH."""
MACROS = ("GF_DYNAMIC_SHARED", "GF_WGMMA_SHAPE")  # that templates use
_PUBLIC = tuple(f"#define {name}(" for name in MACROS)
SCHEMA_ADVICE = """Unknown keys are refused, so a misspelt key does not go unnoticed.
`greenfast lint KERNEL` prints every problem. Editors complete and check the file with its JSON
Schema: in VS Code with *Even Better TOML*, elsewhere with
[Taplo](https://taplo.tamasfe.dev). The first line names the schema. `greenfast new` and
`greenfast import` write it, and a copy of the schema in the kernel's folder, so that you can move
or share the folder:

```toml
#:schema ./.schemas/{kind}.schema.json
```

`greenfast new template` renews the copy.

Values called *expression* are described in [expressions](expressions.md)."""


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    return {
        FOLDER / "kernel-toml.md": form_page("kernel", "kernel.toml"),
        FOLDER / "template-toml.md": form_page("template", "Template files"),
        FOLDER / "gf.md": primitives_page(),
        FOLDER / "cli.md": commands_page(),
        FOLDER / "rest.md": rest_page(),
        FOLDER / "errors.md": _page("Error codes", *error_codes.blocks()),
    }


def _page(title: str, *blocks: str) -> str:
    return "\n\n".join((f"# {title}", NOTICE, *blocks)) + "\n"


# ---- kernel.toml and template files ----


def form_page(kind: str, title: str) -> str:
    whole, *parts = TABLES[kind]
    return _page(
        title,
        whole.doc,
        FILES[kind],
        SCHEMA_ADVICE.format(kind=kind),
        "## Top level",
        _keys_table(whole),
        *(f"## `{form.header}`\n\n{form.doc}\n\n{_keys_table(form)}" for form in parts),
    )


def _keys_table(form: Form) -> str:
    rows = []
    for key in form.keys:
        default = "required" if key.default is None else _code(key.default)
        rows.append(f"| `{key.name}` | {_type(key.schema)} | {default} | {key.doc} |")
    return "\n".join(("| key | type | default | |", "|---|---|---|---|", *rows))


def _code(text: str) -> str:
    return f"`{text}`" if re.match(r"[\[{\d]|true|false|own\Z|contiguous\Z", text) else text


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if kind == ["string", "integer", "number", "boolean"]:
        return "expression"
    if kind == "array":
        size = "three " if schema.get("minItems") == 3 else ""
        return f"list of {size}{_plural(_type(schema.get('items', {})) or 'value')}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return (
            f"table of {_plural(_type(inner))}"
            if isinstance(inner, dict) and inner.get("type")
            else "table"
        )
    if isinstance(kind, list):
        return " or ".join(kind)
    return str(kind or "")


def _plural(kind: str) -> str:
    """`list of strings` becomes `lists of strings`, and `integer or boolean` both plurals."""
    container, of, inner = kind.partition(" of ")
    return (
        f"{container}s{of}{inner}" if of else " or ".join(f"{each}s" for each in kind.split(" or "))
    )


# ---- gf/ primitives ----


def primitives_page() -> str:
    headers = sorted((REPOSITORY_TEMPLATES / "include" / "gf").glob("*.cuh"))
    return _page(
        "Device primitives: gf/",
        PRIMITIVES,
        *(_header_section(path) for path in headers),
    )


def _header_section(path: Path) -> str:
    blocks = [f"## gf/{path.name}"]
    for comment, group in groupby(declarations(path.read_text("utf-8")), itemgetter(0)):
        if lines := "\n".join(declaration for _, declaration in group if declaration):
            blocks.append(f"```cpp\n{lines}\n```")
        if comment:
            blocks.append(comment)
    return "\n\n".join(blocks)


def declarations(text: str) -> Iterator[tuple[str, str]]:
    """(doc comment, declaration) of each function, type and public macro outside other bodies.

    A comment on no declaration, which a blank line ends, comes with an empty one. Notes for authors
    (`//! ...`) are a paragraph of their comment.
    """
    comment: list[str] = []
    head: list[str] = []
    depth = 0
    is_used = False  # by a declaration
    for line in _without_other_macros(text):
        stripped = line.strip()
        if depth:
            depth += line.count("{") - line.count("}")
            continue
        if stripped.startswith("//"):
            comment.append(stripped.removeprefix("//").removeprefix(" "))
        elif macro := re.match(r"#define (\w+\([^)]*\))", stripped):
            yield _prose(comment), macro[1]
            comment = []
        elif not stripped:
            if not head:
                if comment and not is_used:
                    yield _prose(comment), ""
                comment, is_used = [], False
        elif stripped.startswith(("#", "namespace", "}", "extern")) or (
            not head
            and not re.match(
                r"(template|struct|using|__device__|constexpr|inline|enum|class)\b", stripped
            )
        ):
            continue
        else:
            head.append(stripped)
            joined = " ".join(head)
            if "{" in joined or joined.endswith(";"):
                depth = joined.count("{") - joined.count("}")
                declaration = re.sub(r"\s*(\{.*|;)\Z", "", joined)
                declaration = re.sub(r"\b__forceinline__ ", "", declaration)
                yield _prose(comment), declaration
                head, is_used = [], True
                comment = (
                    [] if depth == 0 and not joined.endswith("}") and "{" in joined else comment
                )
    return


def _without_other_macros(text: str) -> Iterator[str]:
    """The lines without those of macros that only others use, and their comments.

    Of MACROS, the first line is left.
    """
    comment: list[str] = []  # lines that may belong to a macro
    is_macro = False
    for line in text.splitlines():
        if is_macro:
            is_macro = line.endswith("\\")
        elif line.startswith("//"):
            comment.append(line)
        else:
            is_macro = line.startswith("#define") and line.endswith("\\")
            if not line.startswith("#define") or line.startswith(_PUBLIC):
                yield from (*comment, line)
            comment = []


def _prose(comment: list[str]) -> str:
    """The comment as Markdown; indented lines are kept as they are, and notes come last."""
    notes = [line.removeprefix("!").strip() for line in comment if line.startswith("!")]
    if notes:
        rest = [line for line in comment if not line.startswith("!")]
        return "\n\n".join(filter(None, (_prose(rest), _prose(notes))))
    if any(line.startswith("  ") for line in comment):
        return "```\n" + "\n".join(comment) + "\n```"
    text = " ".join(line or "\n\n" for line in comment).replace(" \n\n ", "\n\n")
    parts = text.split("`")  # every second one is code
    parts[::2] = (part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2])
    return "`".join(parts)


# ---- commands ----


def commands_page() -> str:
    application = typer.main.get_command(make_app())
    sections = []
    for title, commands in SECTIONS.items():
        sections.append(f"## {title}")
        for command in commands:
            loaded = application.commands[command.name]  # type: ignore[attr-defined]
            sections.append(_command_section(f"greenfast {command.name}", loaded))
    return _page(
        "Command line",
        "`greenfast COMMAND --help` prints the same. Exit codes are 0 for success, 1 if a "
        "candidate is rejected or a check finds something, 2 for a mistake of the caller or of "
        "a kernel's author, 3 for a fault of greenfast or of the machine, and 130 after Ctrl-C. "
        "With `--json`, a command prints one JSON value, even for an error.",
        *sections,
    )


def _command_section(name: str, command: Any) -> str:
    inner = getattr(command, "commands", {})
    if inner:
        return "\n\n".join(_command_section(f"{name} {key}", each) for key, each in inner.items())
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each
        for each in command.params
        if each.param_type_name == "option" and each.name != "help" and not each.hidden
    ]
    usage = " ".join((name, *map(_in_usage, arguments), *(["[OPTIONS]"] if options else [])))
    blocks = [f"### {name}", f"Usage: `{usage}`", _help(command.help or "")]
    rows = [(f"`{_metavar(each)}`", each.help or "") for each in arguments]
    for option in options:
        words = ", ".join(f"`{word}`" for word in (*option.opts, *option.secondary_opts))
        takes = "" if option.is_flag else f" `{_value(option)}`"
        rows.append((words + takes, option.help or ""))
    if rows:
        lines = [f"| {_cell(left)} | {_cell(right)} |" for left, right in rows]
        blocks.append(
            "\n".join(("| | |", "|---|---|", *(line.replace("| `", "| `") for line in lines)))
        )
    return "\n\n".join(filter(None, blocks))


def _value(option: Any) -> str:
    """The word for an option's value, or its choices."""
    kind = option.type_descriptor.annotation
    choices = "|".join(kind) if isinstance(kind, EnumType) else ""
    return str(option.metavar or choices or "VALUE")


def _in_usage(argument: Any) -> str:
    """Brackets around what may be left out, unless its name has them."""
    name = _metavar(argument)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).replace("|", "/")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _help(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


# ---- REST ----


def rest_page() -> str:
    schema = openapi()
    operations = [
        (path, method, operation)
        for path, methods in sorted(schema["paths"].items())
        for method, operation in methods.items()
    ]
    return _page(
        "REST",
        "The service describes itself at `/api/v1/openapi.json`. Errors are "
        "`application/problem+json` with a stable [`code`](errors.md); `errors` lists every wrong "
        "field of a request. A service that is not bound to the loopback address needs "
        "`Authorization: Bearer TOKEN`.",
        *(
            _operation(*each)
            for each in operations
            if each[0].startswith(("/api", "/health", "/ready", "/metr"))
        ),
        "## Objects",
        *(_object(name, each) for name, each in sorted(schema["components"]["schemas"].items())),
    )


def openapi() -> dict[str, Any]:
    """The contract of a service with an empty database."""
    with tempfile.TemporaryDirectory() as folder:
        services = Services(Settings(data=Path(folder)))
        try:
            return create_app(services).openapi()
        finally:
            services.close()


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    text = operation.get("description") or operation.get("summary") or ""
    blocks = [f"## {method.upper()} {path}", _help(text)]
    rows = [
        f"| `{each['name']}` | {each['in']} | {_json_type(each.get('schema', {}))} "
        f"| {_cell(each.get('description', ''))} |"
        for each in operation.get("parameters", [])
    ]
    if rows:
        blocks.append("\n".join(("| parameter | in | type | |", "|---|---|---|---|", *rows)))
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        kinds = ", ".join(
            f"{_json_type(each.get('schema', {}))} ({kind})" for kind, each in body.items()
        )
        blocks.append(f"Body: {kinds}")
    answers, refusals = [], []
    for code, answer in operation.get("responses", {}).items():
        kinds = {_json_type(each.get("schema", {})) for each in answer.get("content", {}).values()}
        if code.startswith(("2", "3")):
            answers.append(f"{code} {', '.join(sorted(kinds - {'any'}))}".strip())
        else:
            refusals.append(code)
    blocks.append("Answers: " + "; ".join(answers))
    if refusals:
        blocks.append(f"Refusals: {', '.join(refusals)}, each a [Problem](#problem)")
    return "\n\n".join(filter(None, blocks))


def _object(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"| `{key}` | {_json_type(each)} | {'required' if key in required else _default(each)} "
        f"| {_cell(each.get('description', ''))} |"
        for key, each in schema.get("properties", {}).items()
    ]
    blocks = [f"### {name}", _help(schema.get("description", ""))]
    if rows:
        blocks.append("\n".join(("| field | type | default | |", "|---|---|---|---|", *rows)))
    elif "enum" in schema:
        blocks.append(_json_type(schema))
    return "\n\n".join(filter(None, blocks))


def _default(schema: Mapping[str, Any]) -> str:
    return f"`{schema['default']!r}`" if "default" in schema else ""


def _json_type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(map(_json_type, schema[key])))
    if schema.get("type") == "array":
        return f"list of {_json_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


if __name__ == "__main__":
    run_page(__doc__, pages)

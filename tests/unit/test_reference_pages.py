"""docs/reference/ is what the code says; the pages written by hand name what the code knows."""

from __future__ import annotations

import re

import pytest

from bench.pages import reference_pages
from greenfast.app.cli.commands import SECTIONS
from greenfast.search.kernels import expressions
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.kernels.reference_text import SHIPPED_MODULES
from greenfast.search.oracle.reference_contract import FIELDS, FUNCTIONS

FOLDER = reference_pages.FOLDER


def test_the_generated_pages_are_current():
    for path, text in reference_pages.pages().items():
        assert path.read_text() == text, "python -m bench.pages.reference_pages --save"


def test_every_command_has_a_section():
    text = (FOLDER / "cli.md").read_text()
    for command in (each for section in SECTIONS.values() for each in section):
        assert re.search(rf"^### greenfast {command.name}\b", text, re.MULTILINE), command.name


def test_every_function_of_every_header_is_described():
    text = (FOLDER / "gf.md").read_text()
    headers = sorted((REPOSITORY_TEMPLATES / "include" / "gf").glob("*.cuh"))
    assert len(headers) > 15
    for path in headers:
        section = text.partition(f"## gf/{path.name}\n")[2].partition("\n## gf/")[0]
        functions = set(re.findall(r"__forceinline__ [^(;=]*?(\w+)(?:<\w+>)?\(", path.read_text()))
        inside_types = {
            "to_float",
            "from_float",
            "to_float2",
            "from_float2",
            "visible_keys",
            "operator",
        }
        for function in functions - (inside_types if "struct" in path.read_text() else set()):
            assert f"{function}" in section, f"{path.name}: {function}"


def _without_undefined(text: str) -> set[str]:
    """The names in a header of which no declaration says what is undefined."""
    silent, noted = set(), set()
    for comment, declaration in reference_pages.declarations(text):
        if declaration:
            found = noted if re.search(r"\bUndefined[:,]", comment) else silent
            found.add(_name(declaration))
    return silent - noted


def _name(declaration: str) -> str:
    """What a declaration declares; a specialisation has the name of its template."""
    name = re.search(
        r"(?:struct|using) (?:alignas\(.*\) )?(\w+)|(\w+)(?:<[\w, ]+>)?[(]", declaration
    )
    name = name or re.search(r"()(\w+) =", declaration)
    return name[1] or name[2]


def test_every_primitive_says_what_is_undefined():
    headers = sorted((REPOSITORY_TEMPLATES / "include" / "gf").glob("*.cuh"))
    assert headers
    assert {
        path.name: names for path in headers if (names := _without_undefined(path.read_text()))
    } == {}


def test_a_new_primitive_without_what_is_undefined_is_found():
    for declaration, name in (
        ("template <int bytes>\n__device__ __forceinline__ void copy(void* to) {}", "copy"),
        ("struct alignas(16) Tile {\n    int words[4];\n};", "Tile"),
        ("constexpr int lanes = 4;", "lanes"),
        ("#define GF_DYNAMIC_SHARED(Type, name) Type name", "GF_DYNAMIC_SHARED"),
    ):
        known = "//! Undefined: nothing.\n__device__ __forceinline__ int known() { return 1; }\n\n"
        text = f"namespace gf {{\n{known}// It copies.\n{declaration}\n}}\n"
        assert _without_undefined(text) == {name}
        note = "//! Undefined: an address that is not aligned.\n"
        assert _without_undefined(text.replace(declaration, note + declaration)) == set()


def test_a_note_is_a_paragraph_of_its_own():
    text = "// Adds:\n//   a + b\n//! Undefined: nothing,\n//! really.\n"
    ((comment, _),) = reference_pages.declarations(f"{text}__device__ int add(int a, int b);\n")
    assert comment == "```\nAdds:\n  a + b\n```\n\nUndefined: nothing, really."


def test_the_page_of_expressions_names_every_function_and_limit():
    text = (FOLDER / "expressions.md").read_text()
    for name in expressions._FUNCTIONS:
        assert f"`{name}(" in text
    for limit in (expressions.LARGEST_POWER, expressions.LONGEST_EXPRESSION,
                  expressions.DEEPEST_EXPRESSION):  # fmt: skip
        assert str(limit) in text


def test_the_page_of_reference_py_names_functions_fields_and_helpers():
    text = (FOLDER / "reference-py.md").read_text()
    for name, parameters in FUNCTIONS.items():
        assert f"## {name}({', '.join(parameters)})" in text
    for field in FIELDS:
        assert f"| `{field}` |" in text
    module = (SHIPPED_MODULES / "greenfast_bounds.py").read_text()
    for helper in ("given", "summed", "calibrated", "as_float64"):
        assert f"def {helper}(" in module and helper in text


@pytest.mark.parametrize("page", ["kernel-toml.md", "template-toml.md"])
def test_a_page_of_keys_has_a_table_for_each_form(page):
    text = (FOLDER / page).read_text()
    kind = page.partition("-")[0]
    for form in reference_pages.TABLES[kind][1:]:
        assert f"## `{form.header}`" in text
        for key in form.keys:
            assert f"| `{key.name}` |" in text

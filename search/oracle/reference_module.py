"""Loads the text of a reference.py, with the references that it builds on."""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from greenfast.search.digest import text_digest
from greenfast.search.errors import SpecError
from greenfast.search.kernels.reference_text import file_and_function, importable_name
from greenfast.search.oracle.ending_calls import refuse_ending_calls
from greenfast.search.oracle.reference_contract import (
    check_functions,
    check_named_function,
    place_of,
    said_by,
)


def described_module(request: Mapping[str, Any]) -> types.ModuleType:
    """In a child: the reference.py of the kernel that `described_kernel` describes."""
    return reference_module(request["name"], request["text"], tuple(map(tuple, request["uses"])))


@lru_cache(maxsize=16)
def reference_module(
    name: str, text: str, uses: tuple[tuple[str, str], ...] = ()
) -> types.ModuleType:
    """reference.py, loaded. `uses`: name and text of each kernel whose reference.py it imports.

    Raises SpecError when it does not load or lacks a function.
    """
    used = {
        importable_name(other): reference_module(other, other_text) for other, other_text in uses
    }
    file, function = file_and_function(name)
    texts = "".join((text, *(other_text for _, other_text in uses)))
    module = types.ModuleType(f"greenfast_reference_{name}_{text_digest(texts)[:8]}")
    module.__dict__["__builtins__"] = {
        **vars(builtins),
        "__import__": _importing(used),
        "print": _printed,
    }
    sys.modules[module.__name__] = module
    try:
        tree = ast.parse(text, file)
        refuse_ending_calls(tree, file)
        exec(compile(tree, file, "exec"), module.__dict__)
    except SpecError:
        raise
    except (Exception, SystemExit) as error:
        raise _not_loaded(error, file, used) from error
    if function:
        check_named_function(module, function, file)
    else:
        check_functions(module, file)
    return module


def _not_loaded(error: BaseException, file: str, used: Mapping[str, types.ModuleType]) -> SpecError:
    """The sentence about a text that raises an error when it is loaded."""
    said, mend = said_by(error), ""
    for name, module in used.items():  # by the name that the author knows
        said = said.replace(f"{module.__name__!r} (unknown location)", repr(name))
    if isinstance(error, ModuleNotFoundError) and error.name not in used:
        mend = (
            "kernel.toml names greenfast_bounds and modules of your own: "
            f'reference_uses = ["{error.name}:FUNCTION"]'
        )
    return SpecError(
        f"{place_of(error, file)} does not load: {type(error).__name__}: {said}",
        code="reference_failed",
        mend=mend,
    )


def _printed(*values: object, **more: Any) -> None:
    """Print to stderr, since stdout is the command's own; a full log of a child holds no more."""
    with suppress(OSError):
        print(*values, **{"file": sys.stderr, "flush": True, **more})


def _importing(used: Mapping[str, types.ModuleType]) -> Callable[..., types.ModuleType]:
    """Python's import, with the modules of `used` found by their plain names.

    They stay out of sys.modules, because another kernel may use another text of the same name.
    """
    return lambda name, *rest, **more: used.get(name) or __import__(name, *rest, **more)

"""Loads the text of a reference.py, with the references that it builds on."""

from __future__ import annotations

import ast
import builtins
import sys
import types
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from greenfast.search.digest import text_digest
from greenfast.search.errors import SpecError
from greenfast.search.kernels.reference_text import file_and_function, importable_name
from greenfast.search.oracle.ending_calls import refuse_ending_calls
from greenfast.search.oracle.reference_contract import (
    check_functions,
    check_named_function,
    place_of,
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
        "print": partial(print, file=sys.stderr),  # stdout is the command's own
    }
    sys.modules[module.__name__] = module
    try:
        tree = ast.parse(text, file)
        refuse_ending_calls(tree, file)
        exec(compile(tree, file, "exec"), module.__dict__)
    except SpecError:
        raise
    except (Exception, SystemExit) as error:
        raise SpecError(
            f"{place_of(error, file)} does not load: {type(error).__name__}: {error}",
            code="reference_failed",
        ) from error
    if function:
        check_named_function(module, function, file)
    else:
        check_functions(module, file)
    return module


def _importing(used: Mapping[str, types.ModuleType]) -> Callable[..., types.ModuleType]:
    """Python's import, with the modules of `used` found by their plain names.

    They stay out of sys.modules, because another kernel may use another text of the same name.
    """
    return lambda name, *rest, **more: used.get(name) or __import__(name, *rest, **more)

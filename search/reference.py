"""A kernel's reference.py: inputs for a case, and what right outputs are."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from search.cases import Case
from search.digest import text_digest
from search.errors import SpecError
from search.spec import KernelSpec


@dataclass(frozen=True)
class Expected:
    """One output: `value` in float64, the pointwise `bound` on |output - value|, and a float64 model in which only
    stored values are `rounded` (None: the pointwise bound alone holds). All have the output's shape."""

    value: np.ndarray
    bound: np.ndarray
    rounded: np.ndarray | None


@dataclass(frozen=True)
class Answer:
    """Inputs by argument name (logical order, storage dtype) and the expected outputs."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, Expected]


@lru_cache(maxsize=128)
def answer(kernel: KernelSpec, case: Case) -> Answer:
    """Inputs and expected outputs of `case`; SpecError when reference.py does not keep its contract."""
    module = _module(kernel.folder.name, kernel.reference_text)
    dims, options = dict(case.dims), dict(case.options)
    where = f"{kernel.name}/reference.py"
    try:
        inputs = module.make_inputs(dims, options, case.inputs, case.seed, dict(case.tiles))
        outputs = {name: Expected(**one) for name, one in module.reference(dims, options, inputs).items()}
    except Exception as error:                   # the author's code: any of its errors is the author's
        raise SpecError(f"{where}: case {case.name}: {type(error).__name__}: {error}",
                        code="reference_failed") from error
    for one in kernel.arguments:
        shape = tuple(int(dims[dim]) for dim in one.shape)
        if one.kind == "input" and inputs.get(one.name, np.empty(0)).shape != shape:
            raise SpecError(f"{where}: make_inputs gave {one.name} another shape than {shape}",
                            code="reference_failed")
        if one.kind == "output":
            if one.name not in outputs or outputs[one.name].value.shape != shape:
                raise SpecError(f"{where}: reference gave {one.name} another shape than {shape}",
                                code="reference_failed")
            if np.isnan(outputs[one.name].value).any() or np.isnan(outputs[one.name].bound).any():
                raise SpecError(f"{where}: case {case.name}: the reference of {one.name} holds NaN",
                                code="reference_failed")
    return Answer(inputs, outputs)


@lru_cache(maxsize=16)
def _module(name: str, text: str) -> types.ModuleType:
    module = types.ModuleType(f"greenfast_reference_{name}_{text_digest(text)[:8]}")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, f"{name}/reference.py", "exec"), module.__dict__)
    except Exception as error:
        raise SpecError(f"{name}/reference.py does not load: {type(error).__name__}: {error}",
                        code="reference_failed") from error
    for needed in ("make_inputs", "reference"):
        if not callable(getattr(module, needed, None)):
            raise SpecError(f"{name}/reference.py has no function {needed}", code="reference_failed")
    return module

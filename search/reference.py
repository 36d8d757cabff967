"""A kernel's reference.py: inputs for a case, and what right outputs are."""

from __future__ import annotations

import builtins
import math
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from search import computing
from search.cases import Case
from search.digest import text_digest
from search.errors import Fault, SpecError
from search.reference_text import importable_name
from search.spec import KernelSpec

KEPT_BYTES = 2 * 2**30               # of answers, the least recently used given up first


def frobenius_norm(values: np.ndarray) -> float:
    """Without BLAS, whose threads and locks make many callers wait for each other."""
    flat = values.ravel()
    return math.sqrt(float(np.einsum("i,i->", flat, flat)))


@dataclass(frozen=True)
class Expected:
    """One output: `value` in float64, the pointwise `bound` on |output - value|, and a float64 model in which only
    stored values are `rounded` (None: the pointwise bound alone holds). All have the output's shape."""

    value: np.ndarray
    bound: np.ndarray
    rounded: np.ndarray | None

    @cached_property
    def finite(self) -> np.ndarray:
        return np.isfinite(self.value)

    @cached_property
    def all_finite(self) -> bool:
        return bool(self.finite.all())

    @cached_property
    def norm(self) -> float:
        """Frobenius, of the finite elements."""
        return frobenius_norm(self.value[self.finite])

    @cached_property
    def rounding(self) -> float:
        """The same norm of what rounding alone costs."""
        return frobenius_norm((self.rounded - self.value)[self.finite])


@dataclass(frozen=True)
class Answer:
    """Inputs by argument name (logical order, storage dtype) and the expected outputs."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, Expected]
    laid_out: dict[Hashable, Any] = field(default_factory=dict, compare=False)   # tensors made of it, to make them once

    @property
    def nbytes(self) -> int:
        arrays = [*self.inputs.values(), *(array for one in self.outputs.values()
                                           for array in (one.value, one.bound, one.rounded) if array is not None)]
        return sum(one.nbytes for one in arrays) + sum(one.nbytes for one in self.inputs.values())    # once more laid out


Arrays = dict[str, dict[str, np.ndarray | None]]     # output -> the fields of Expected
Compute = Callable[[KernelSpec, Case], Arrays | None]


class Answers:
    """What was computed once, up to a number of bytes. Who asks for what is being computed waits for it."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes, self._bytes, self._lock = kept_bytes, 0, threading.Lock()
        # The key holds the kernel's identity, since its hash walks the whole specification; the entry keeps it alive.
        self._futures: OrderedDict[Hashable, tuple[KernelSpec, Future[Answer]]] = OrderedDict()

    def get(self, kernel: KernelSpec, case: Case, compute: Compute | None) -> Answer:
        key = id(kernel), case
        with self._lock:
            _, future = self._futures.get(key, (None, None))
            if future is not None:
                self._futures.move_to_end(key)
            else:
                mine: Future[Answer] = Future()
                self._futures[key] = kernel, mine
        if future is not None:
            return future.result()
        try:
            found = _computed(kernel, case, compute)
        except BaseException as error:
            with self._lock:
                self._futures.pop(key, None)
            mine.set_exception(error)
            raise
        mine.set_result(found)
        self._count(found)
        return found

    def _count(self, found: Answer) -> None:
        """Give up what was used least recently; what is still being computed stays. Nothing is walked while there is room."""
        with self._lock:
            self._bytes += found.nbytes
            while self._bytes > self._kept_bytes and len(self._futures) > 1:
                oldest = next((key for key, (_, future) in self._futures.items() if future.done()), None)
                if oldest is None:
                    break
                self._bytes -= self._futures.pop(oldest)[1].result().nbytes


_ANSWERS = Answers(KEPT_BYTES)


def answer(kernel: KernelSpec, case: Case, compute: Compute | None = None) -> Answer:
    """Inputs and expected outputs of `case`; SpecError when reference.py does not keep its contract.

    `compute` gives what the kernel's `reference` would, from elsewhere; None from it: `reference` itself is called.
    """
    return _ANSWERS.get(kernel, case, compute)


def _computed(kernel: KernelSpec, case: Case, compute: Compute | None) -> Answer:
    module = kernel_module(kernel)
    dims, options = dict(case.dims), dict(case.options)
    where = f"{kernel.name}/reference.py"
    size_bytes = 8 * sum(math.prod(int(dims[dim]) for dim in one.shape) for one in kernel.arguments if one.kind != "scalar")
    try:
        with computing.turn(size_bytes):
            inputs = module.make_inputs(dims, options, case.inputs, case.seed, dict(case.tiles))
        found = compute(kernel, case) if compute is not None else None
        if not found:
            with computing.turn(size_bytes):
                found = module.reference(dims, options, inputs)
        outputs = {name: Expected(**one) for name, one in found.items()}
    except Fault:
        raise
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


def kernel_module(kernel: KernelSpec) -> types.ModuleType:
    """The kernel's reference.py, loaded; SpecError as below."""
    return reference_module(kernel.folder.name, kernel.reference_text, kernel.reference_uses)


@lru_cache(maxsize=16)
def reference_module(name: str, text: str, uses: tuple[tuple[str, str], ...] = ()) -> types.ModuleType:
    """reference.py, loaded, with those of the kernels that it builds on to import; SpecError when it lacks a function."""
    used = {importable_name(other): reference_module(other, its_text) for other, its_text in uses}
    texts = "".join((text, *(its_text for _, its_text in uses)))
    module = types.ModuleType(f"greenfast_reference_{name}_{text_digest(texts)[:8]}")
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importing(used)}
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


def _importing(used: Mapping[str, types.ModuleType]) -> Callable[..., types.ModuleType]:
    """Python's import with `used` found by their plain names. They are not in sys.modules, which is everybody's: another
    kernel may build on another text of the same name."""
    return lambda name, *rest, **more: used.get(name) or __import__(name, *rest, **more)

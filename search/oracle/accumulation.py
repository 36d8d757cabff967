"""The total error that float32 sums may add to an output.

A kernel's `rounded` model counts the rounding of stored values alone. Where the output is float32,
the sums that make it are held in the same type, so their error is no smaller. For a sum of k terms
in any order the error is at most gamma_k = k u / (1 - k u) times the sum of the terms' sizes
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2), u = 2^-24.
Rounding errors behave like independent ones of mean zero, so that sqrt(k) replaces k: with
lambda sqrt(k) u the bound holds with probability 1 - 2 exp(-lambda^2 / 2) (Higham and Mary, A New
Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019).

The Frobenius norm averages over all elements of an output, so lambda = 1 is generous here: added
one after another, terms of one sign give 0.33 sqrt(k) u of the output's norm, terms of mean zero
0.41 sqrt(k) u. (The variance u^2/3 s_j^2 of each partial sum s_j, summed over j, with s_j growing
as j or as sqrt(j).)

The output's norm stands for the partial sums. Where terms cancel it is too small. There the norm of
what the output changes by, when each input changes by one rounding, stands for the terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Argument, KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.expected import CaseData, Expected, frobenius_norm
from greenfast.search.oracle.reference import guard_of, kernel_module

FLOAT32_ROUNDOFF = 2.0**-24
# Where an option of the case says tf32, both factors of each product are rounded to 11 bits: an
# error of at most 2^-11 sqrt(2/3) of the product, on average.
TF32_ROUNDOFF = 2.0**-11
MOVED_BY = 2.0**-23  # of an input's size: the smallest change that float32 always holds


def accumulation_error(
    kernel: KernelSpec, case: Case, output: Argument, expected: Expected
) -> float:
    """The Frobenius norm of the error that sums in float32 may add; 0 for narrower outputs."""
    if not _is_float32(output, case):
        return 0.0
    return _share(kernel, case, output) * expected.norm


def cancellation_error(kernel: KernelSpec, case: Case, output: Argument, data: CaseData) -> float:
    """The same for terms that cancel. It computes the reference once more for each case.

    0 if the inputs hold no float32, or if reference.py cannot take the changed ones.
    """
    if not _is_float32(output, case):
        return 0.0
    key = ("changed by one rounding", output.name)
    if key not in data.laid_out:
        data.laid_out.update(
            {
                ("changed by one rounding", name): norm
                for name, norm in _changes(kernel, case, data).items()
            }
        )
    change: float = data.laid_out.get(key, 0.0)
    return _share(kernel, case, output) / MOVED_BY * change


def longest_sum(kernel: KernelSpec, case: Case, output: Argument) -> float:
    """The most terms that an element of `output` may be the sum of, estimated.

    The kernel's work gives two operations a term. A sum that several elements share, such as the
    mean of a row, is at most as long as the longest dim of an input.
    """
    dims = dict(case.dims)
    work = case.flop(kernel)
    elements = max(math.prod(_sizes(output, dims)), 1)
    longest_dim = max(
        (
            size
            for argument in kernel.arguments
            if argument.kind == "input"
            for size in _sizes(argument, dims)
        ),
        default=1,
    )
    return max(work / (2.0 * elements), float(longest_dim), 1.0)


def _sizes(argument: Argument, dims: Mapping[str, Value]) -> list[int]:
    return [int(dims[name]) for name in argument.shape]


def _is_float32(output: Argument, case: Case) -> bool:
    return (dict(case.options)["dtype"] if output.dtype == "dtype" else output.dtype) == "float32"


def _share(kernel: KernelSpec, case: Case, output: Argument) -> float:
    """The error, relative to the norm of the output."""
    share = math.sqrt(longest_sum(kernel, case, output)) * FLOAT32_ROUNDOFF
    return share + (TF32_ROUNDOFF if "tf32" in dict(case.options).values() else 0.0)


def moved_inputs(seed: int, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs with each float32 value changed by one rounding, up or down."""
    random = np.random.default_rng(seed)
    return {
        name: (array * (1.0 + MOVED_BY * random.choice((-1.0, 1.0), array.shape))).astype(
            np.float32
        )
        if array.dtype == np.float32
        else array
        for name, array in inputs.items()
    }


def _changes(kernel: KernelSpec, case: Case, data: CaseData) -> dict[str, float]:
    """By output, the norm of its change when each float32 input moves by 2^-23 of itself."""
    if all(array.dtype != np.float32 for array in data.inputs.values()):
        return {}
    try:
        outputs = _moved_outputs(kernel, case, data.inputs)
        return {
            name: frobenius_norm(
                (np.asarray(outputs[name]["value"]) - expected.value)[expected.finite]
            )
            for name, expected in data.outputs.items()
        }
    except SpecError:  # it did not end
        raise
    except Exception:  # the unchanged inputs worked: only this allowance is lost
        return {}


def _moved_outputs(
    kernel: KernelSpec, case: Case, inputs: Mapping[str, np.ndarray]
) -> Mapping[str, Any]:
    if (guard := guard_of(kernel)) is not None:
        return guard.moved(kernel, case)
    moved = moved_inputs(case.seed, inputs)
    outputs: Mapping[str, Any] = kernel_module(kernel).reference(
        dict(case.dims), dict(case.options), moved
    )
    return outputs

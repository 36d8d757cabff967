"""Checked runs of a kernel's text, one for each order of its threads, and what they found."""

from __future__ import annotations

import numpy as np
from emulator_harness import ORDERS, Kernel

HEAD = 'extern "C" __global__ void k(const float* a, float* c) {\n'
SHARED = HEAD + "__shared__ float s[64];\nconst int t = threadIdx.x;\n"


def checked(emulator, text, inputs=None, outputs=None, *, orders=ORDERS, **options):
    """Each order's result of a kernel; its arguments are a and c, 64 floats each, by default."""
    kernel = Kernel(emulator, text, flavour="checked")
    inputs = {"a": np.arange(1, 65, dtype=np.float32)} if inputs is None else inputs
    outputs = {"c": np.zeros(64, np.float32)} if outputs is None else outputs
    jobs = [
        kernel.job(inputs, outputs, check=True, order=order, name=order, **options)
        for order in orders
    ]
    return kernel.run(*jobs, deadline_s=5.0)


def lines(result, kind):
    """The line pairs of one kind, without the file, smaller first."""
    findings = [finding for finding in result.findings if finding.kind == kind]
    return {
        tuple(sorted(where[1] for where in (finding.where, finding.other_where) if where))
        for finding in findings
    }

"""How evenly the blocks of a kernel fill a GPU, as far as its launch tells.

With one block more than all multiprocessors can share evenly, one of them works longest, while a
kernel with other tiles may still share evenly. Times between two measured sizes depend on this.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass

from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, Value, expression
from greenfast.search.kernels.spec import TemplateSpec

# Of the imbalance, in logarithms: blocks that share a multiprocessor overlap. Fitted to attention
# on an H200 and an H100, where 0.3 to 0.7 are as good (bench.gpu.table_regret).
SEEN_IN_TIMES = 0.5


@dataclass(frozen=True)
class Waves:
    """The blocks of a kernel's first launch, over run-time dims, and the GPU's multiprocessors."""

    blocks: Expression
    multiprocessors: int

    def cost(self, sizes: Mapping[str, Value]) -> float:
        """The logarithm by which imbalance prolongs the kernel; 0 where no call has these sizes."""
        try:
            blocks = max(1, self.blocks(sizes))
        except SpecError:
            return 0.0
        fullest = math.ceil(blocks / self.multiprocessors)
        return SEEN_IN_TIMES * math.log(fullest * self.multiprocessors / blocks)


def waves_of(
    template: TemplateSpec, values: Mapping[str, Value], multiprocessors: int
) -> Waves | None:
    """Of a point with the values that its launches use; None where a count would be too long."""
    grid = template.launched(values)[0].grid
    sizes = [folded(size.text, values) for size in grid]
    text = " * ".join(f"({size})" for size in sizes)
    try:
        return Waves(expression(folded(text, {}), "blocks"), multiprocessors)
    except SpecError:
        return None


def folded(text: str, constants: Mapping[str, Value]) -> str:
    """The expression with the constants' values, as far as they decide it."""
    return ast.unparse(_Folding(constants).visit(ast.parse(text, mode="eval")))


class _Folding(ast.NodeTransformer):
    def __init__(self, constants: Mapping[str, Value]) -> None:
        self._constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._constants[node.id]) if node.id in self._constants else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            chosen: ast.expr = self.visit(node.body if test.value else node.orelse)
            return chosen
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [self.visit(item) for item in node.args]
        return _decided(ast.Call(node.func, arguments, []), arguments)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [self.visit(item) for item in (node.left, *node.comparators)]
        return _decided(ast.Compare(sides[0], node.ops, sides[1:]), sides)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left: ast.expr = self.visit(node.left)
        right: ast.expr = self.visit(node.right)
        if isinstance(node.op, ast.Mult) and (_is_one(left) or _is_one(right)):
            return right if _is_one(left) else left
        return _decided(ast.BinOp(left, node.op, right), [left, right])


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _decided(node: ast.expr, parts: list[ast.expr]) -> ast.expr:
    """The constant that the node is, where its parts are constants."""
    if not all(isinstance(part, ast.Constant) for part in parts):
        return node
    return ast.Constant(expression(ast.unparse(node), "a constant part")({}))

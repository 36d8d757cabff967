"""The choices for a search: kernels, templates, targets, strategies."""

from __future__ import annotations

from fastapi import APIRouter

from greenfast.app.routes.access import TheServices
from greenfast.app.views.base_schemas import Page
from greenfast.app.views.choice_schemas import (
    BrokenOut,
    KernelOut,
    StrategyOut,
    TargetOut,
    TemplateOut,
)
from greenfast.app.views.listings import (
    kernel_out,
    list_kernels,
    list_strategies,
    list_targets,
    list_templates,
    template_out,
)

router = APIRouter(tags=["choices"])


class KernelPage(Page[KernelOut]):
    broken: list[BrokenOut]


@router.get("/kernels")
def kernels(services: TheServices) -> KernelPage:
    """Every kernel; `broken` names those that cannot be loaded."""
    loaded, broken = list_kernels(services.catalogue)
    return KernelPage(items=loaded, next_cursor=None, broken=broken)


@router.get("/kernels/{kernel}")
def kernel(kernel: str, services: TheServices) -> KernelOut:
    """A kernel's dims, options and workloads, and the names of its templates."""
    return kernel_out(services.catalogue.kernel(kernel))


@router.get("/kernels/{kernel}/templates/{template}")
def template(kernel: str, template: str, services: TheServices) -> TemplateOut:
    """A template's parameters with their values, constraints and presets."""
    return template_out(services.catalogue.kernel(kernel).template(template))


@router.get("/templates")
def templates(services: TheServices, kernel: str | None = None) -> Page[TemplateOut]:
    """The templates with their parameters and presets, of one kernel or of all."""
    return Page(items=list_templates(services.catalogue, kernel), next_cursor=None)


@router.get("/targets")
def targets() -> Page[TargetOut]:
    """The targets where candidates can run on this machine; `why` explains what others lack."""
    return Page(items=list_targets(), next_cursor=None)


@router.get("/strategies")
def strategies() -> Page[StrategyOut]:
    """The strategies, each in a sentence."""
    return Page(items=list_strategies(), next_cursor=None)

"""`/kernels` and `/kernels/{name}`: kernels with their workloads, templates and parameters."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.listings import kernel_out, list_kernels

router = APIRouter(route_class=PageRoute)


@router.get("/kernels")
def kernels_page(request: Request) -> Response:
    kernels, broken = list_kernels(services_of(request).catalogue)
    return render("kernels.html", {"kernels": kernels, "broken": broken})


@router.get("/kernels/{kernel}")
def kernel_page(request: Request, kernel: str) -> Response:
    spec = services_of(request).catalogue.kernel(kernel)
    work = {workload.name: workload for workload in kernel_out(spec).workloads}
    return render("kernel.html", {"kernel": spec, "work": work})

"""Whether a bundle's baseline is a point of a template that is known here.

The bundle's times are ratios to the baseline, and nothing else of `greenfast verify` looks at its
text: a slower one would make the winner look faster.
"""

from __future__ import annotations

from greenfast.app.bundle.opened import BASELINE_LAUNCH, BASELINE_SOURCE, OpenedBundle
from greenfast.app.bundle.verify_launch import wrong_launch
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.identity import launching_digest
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters


def doubtful_baseline(
    context: EvaluationContext, bundle: OpenedBundle, known: Catalogue | None
) -> str:
    """Why the baseline may be another text than its search had; empty: it is what it says.

    `known` has the templates to compare with; None: the bundle's are trusted.
    """
    assert bundle.baseline_launch is not None
    launch, kernel = bundle.baseline_launch, context.kernel
    template = kernel.template(str(launch["template"]))
    if known is not None and not _knows(known, kernel.name, template):
        return (
            f"the baseline's template {template.name} is not one that this installation knows; "
            "read it, and pass --trust if you trust it"
        )
    candidate = Candidate(
        kernel.name,
        template.name,
        complete_parameters(template, launch["parameters"], context.compiled),
        Origin(OriginKind.SEEDED),
    )
    rendered = context.render(candidate)
    if not isinstance(rendered, RenderedSource) or rendered.digest != launch["source_digest"]:
        return (
            f"the template renders to another text than {BASELINE_SOURCE} here: the file was "
            "changed, or the primitives of kernel_templates/include/gf were"
        )
    wrong = wrong_launch(kernel, launch, context.compiled, context.target.device)
    return wrong.replace("launch.json", BASELINE_LAUNCH)


def _knows(catalogue: Catalogue, kernel: str, template: TemplateSpec) -> bool:
    if kernel not in catalogue.names():
        return False
    return any(
        own.name == template.name
        and own.text == template.text
        and launching_digest(own) == launching_digest(template)
        for own in catalogue.kernel(kernel).templates
    )

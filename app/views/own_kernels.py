"""The folders of the user's own kernels that are in use, and what is wrong there."""

from __future__ import annotations

from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import PATH_VARIABLE, Catalogue
from greenfast.search.text import visible


def own_folders(catalogue: Catalogue) -> tuple[str, ...]:
    """A line for each folder that holds kernels of the user's: the folder, and their names."""
    return tuple(
        f"{visible(root)}: {', '.join(map(visible, kernels))}"
        for root, kernels in catalogue.own.items()
        if kernels
    )


def hidden_kernels(catalogue: Catalogue) -> tuple[str, ...]:
    """A sentence for each kernel of the user's that a namesake hides."""
    return tuple(
        f"{visible(folder)} is not used, since {visible(used)} has the same name: rename it, or "
        f"put {visible(folder.parent)} on {PATH_VARIABLE}"
        for folder, used in catalogue.hidden().items()
    )


def own_problems(catalogue: Catalogue) -> tuple[str, ...]:
    """A sentence for each kernel of the user's that cannot be used."""
    sentences = list(hidden_kernels(catalogue))
    own = {folder for kernels in catalogue.own.values() for folder in kernels.values()}
    for name, folder in catalogue.folders.items():
        if folder not in own:
            continue
        try:
            catalogue.kernel(name)
        except GreenfastError as error:
            sentences.append(str(error))
    return tuple(sentences)

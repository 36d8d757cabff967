"""Textures and surfaces on the command line: `--arg 'tex:float texture linear wrap[64,64]=random'`.

The handle that a kernel gets is the address of a buffer: a header, which the emulator's
gf_emulator/textures.h knows, and the texels behind it, row by row.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from greenfast.search.diagnose.plain_argument_text import ArgumentText, refused
from greenfast.search.oracle.problem import Tensor

_TYPE = re.compile(r"(?P<base>[\w ]+?) (?P<kind>texture|surface)(?P<options>(?: \w+)*)\Z")
_ADDRESS_MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}  # as cudaTextureAddressMode
_OPTIONS = (*_ADDRESS_MODES, "linear", "normalized", "normalized_read")
_KINDS = {
    name: number
    for number, name in enumerate(
        ("float32", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16")
    )
}
HEADER = struct.Struct("<10i24x")  # 64 bytes
_MAGIC = 0x54584554
_MOST_DIMENSIONS = 3


def is_texture(argument: ArgumentText) -> bool:
    return _TYPE.match(argument.type) is not None


def texture(argument: ArgumentText, laid_out: Callable[[ArgumentText], Tensor]) -> Tensor:
    """The buffer of a texture or surface; `laid_out` makes the buffer of its texels."""
    match = _TYPE.match(argument.type)
    assert match is not None and argument.sizes is not None
    options = match["options"].split()
    if unknown := [option for option in options if option not in _OPTIONS]:
        raise refused(
            argument.text,
            f"has the option {unknown[0]!r}, which is not one of {', '.join(_OPTIONS)}",
        )
    sizes = argument.sizes
    if len(sizes) > _MOST_DIMENSIONS:
        raise refused(argument.text, "has more than three sizes: depth, height, width")
    is_surface = match["kind"] == "surface"
    role = argument.role or ("inout" if is_surface else "in")
    texels = laid_out(replace(argument, type=match["base"], role=role))
    channels = math.prod(texels.shape) // math.prod(sizes)
    if texels.dtype.name not in _KINDS or channels == 3:
        raise refused(argument.text, f"has texels of {match['base']!r}, which no texture holds")
    depth, height, width = (*(1,) * (_MOST_DIMENSIONS - len(sizes)), *sizes)
    mode = next((_ADDRESS_MODES[each] for each in options if each in _ADDRESS_MODES), 1)
    header = HEADER.pack(
        _MAGIC,
        width,
        height,
        depth,
        _KINDS[texels.dtype.name],
        channels,
        mode,
        "linear" in options,
        "normalized" in options,
        "normalized_read" in options,
    )
    image = np.concatenate([np.frombuffer(header, np.uint8), texels.image])
    image.flags.writeable = False
    return replace(
        texels,
        dtype=np.dtype(np.uint8),
        shape=(image.size,),
        strides=(1,),
        image=image,
        filled=True,
    )

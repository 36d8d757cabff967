"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from greenfast.search.devices.facts import device_names

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON value on stdout and nothing else.")
]
Kernel = Annotated[
    str, typer.Argument(metavar="KERNEL", help="A kernel; `greenfast templates` lists them.")
]
SearchId = Annotated[
    str,
    typer.Argument(
        metavar="SEARCH_ID", help="A search: its id, a beginning of it that is unique, or `last`."
    ),
]
SearchName = Annotated[
    str,
    typer.Argument(
        metavar="SEARCH", help="A search: its id, a beginning of it that is unique, or `last`."
    ),
]
Template = Annotated[
    str, typer.Option("--template", metavar="NAME", help="The template to render.")
]
Preset = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="Start from a preset instead of the defaults."),
]
ParameterValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set one parameter; may be repeated."),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="NAME|VALUES",
        help="A workload: a named shape and type of the kernel's inputs, or your own by values, "
        "such as B=8,H=16,S_q=577,D=64,dtype=bf16; may be repeated. [default: the kernel's first]",
    ),
]
WorkloadFile = Annotated[
    Path | None,
    typer.Option(
        "--workloads",
        metavar="FILE",
        help="A .toml, .json or .csv file of workloads; `greenfast workloads` checks it.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="Where candidates run: cuda:N, replay:NAME, or emulator:GPU, where GPU is "
        f"{', '.join(device_names())}; `greenfast targets` lists them. A search or tuning can use "
        "several GPUs of one model: cuda:0,1 or cuda:all. [default: emulator:h200]",
    ),
]
Executor = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="NAME",
        help="The machines that compile, emulate and measure: local, or ray for those of a Ray "
        "cluster. [default: local]",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The head of the Ray cluster, with --executor ray. [default: auto, the cluster that "
        "this machine is part of]",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="The seed of random inputs and choices."),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")
]

"""Kernel Tuner's strategies on complete spaces, in its simulation mode.

    python -m bench.speed.search_quality_kernel_tuner SPACES.json SEARCHES.jsonl [--seeds 20]

A process of its own, in an environment that has `kernel-tuner`; greenfast is not imported.
`bench.speed.search_quality --write-spaces SPACES.json` writes the spaces. Every strategy has its
default options. An evaluation is a configuration that was not asked for before, failed ones
included, as in Kernel Tuner's own budget. Searches are appended to SEARCHES.jsonl as they end; a
second run does those that are missing.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import random
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np

try:
    from constraint import FunctionConstraint
    from kernel_tuner import interface, util
    from kernel_tuner.runners.simulation import SimulationRunner
except ImportError:  # `main` says so
    interface = None

STRATEGIES = {
    "genetic_algorithm": "genetic_algorithm",
    "differential_evolution": "diff_evo",
    "simulated_annealing": "simulated_annealing",
    "pso": "pso",
    "hybrid_vndx": "hybrid_vndx",
    "adaptive_tabu_greywolf": "adaptive_tabu_greywolf",
    "bayes_opt": "bayes_opt",
    "random_sample": "random_sample",
}
PREFIX = "kernel_tuner "


@lru_cache
def spaces(path):
    return {space["name"]: space for space in json.loads(Path(path).read_text())}


def point(space, codes):
    """The values at some positions."""
    pairs = zip(codes, space["parameters"], strict=True)
    return tuple(values[code] for code, (_, values) in pairs)


def as_cache(space):
    """The space as a Kernel Tuner cache."""
    names = [name for name, _ in space["parameters"]]
    cache = {}
    for codes, time in zip(space["codes"], space["times"], strict=True):
        values = point(space, codes)
        key = ",".join(map(str, values))
        result = time if time is not None else "RuntimeFailedConfig"
        cache[key] = {**dict(zip(names, values, strict=True)), "time": result}
    return {
        "device_name": "recorded",
        "kernel_name": space["name"],
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": dict(space["parameters"]),
        "objective": "time",
        "cache": cache,
    }


@lru_cache
def prepared(path, name):
    """The cache's file, and the valid configurations."""
    space = spaces(path)[name]
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(as_cache(space), file)
    return file.name, space, {point(space, codes) for codes in space["codes"]}


_kept = {}


def read_once(cachefile, open_cache=True):
    if cachefile not in _kept:
        _kept[cachefile] = _kept["read"](cachefile, open_cache)
    return _kept[cachefile]


def run(job):
    """One search: [evaluation, time] wherever the best time improved."""
    path, name, strategy, seed, budget = job
    file, space, _ = prepared(path, name)
    np.random.seed(seed)
    random.seed(seed)
    _kept.setdefault("read", util.read_cache)
    util.read_cache = read_once
    curve, seen = [], set()
    original = SimulationRunner.run

    def watched(self, configurations, options):
        results = original(self, configurations, options)
        for configuration, result in zip(configurations, results, strict=True):
            key = tuple(configuration)
            if result is None or key in seen:
                continue
            seen.add(key)
            time = result.get("time")
            if "__error__" not in result and (not curve or time < curve[-1][1]):
                curve.append([len(seen), time])
        return results

    SimulationRunner.run = watched
    failure = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            interface.tune_kernel(
                space["name"],
                "",
                [1],
                [],
                {parameter: list(values) for parameter, values in space["parameters"]},
                restrictions=restriction(path, name),
                strategy=STRATEGIES[strategy],
                strategy_options={"max_fevals": budget},
                cache=file,
                simulation_mode=True,
                lang="CUDA",
                quiet=True,
            )
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"[:200]
    finally:
        SimulationRunner.run = original
    return {
        "space": name,
        "strategy": PREFIX + strategy,
        "seed": seed,
        "budget": budget,
        "evaluations": len(seen),
        "curve": [[number, time] for number, time in curve if number <= budget],
        "version": importlib.metadata.version("kernel_tuner"),
        **({"failure": failure} if failure else {}),
    }


@lru_cache
def restriction(path, name):
    valid = prepared(path, name)[2]
    return [FunctionConstraint(lambda *values: tuple(values) in valid)]


def missing(options):
    """The searches that the file does not have, those of a space and strategy side by side."""
    done = set()
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            row = json.loads(line)
            done.add((row["space"], row["strategy"], row["seed"], row["budget"]))
    return [
        (options.spaces, name, strategy, seed, options.evaluations)
        for strategy in options.strategy or STRATEGIES
        for name in options.space or spaces(options.spaces)
        for seed in range(options.seeds)
        if (name, PREFIX + strategy, seed, options.evaluations) not in done
    ]


def main():
    parser = argparse.ArgumentParser(
        prog="python -m bench.speed.search_quality_kernel_tuner", description=__doc__
    )
    parser.add_argument("spaces")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--strategy", action="append", choices=sorted(STRATEGIES))
    parser.add_argument("--space", action="append")
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    if interface is None:
        raise SystemExit("This comparison needs Kernel Tuner: pip install kernel-tuner")
    jobs = missing(options)
    with ProcessPoolExecutor(options.cores) as pool, options.out.open("a") as out:
        for row in pool.map(run, jobs, chunksize=5):
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()

"""The commands of a page's code blocks, run in their order in a data folder."""

from __future__ import annotations

import re
import shlex

from service_home import Ended, Home

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands_of(page: str) -> list[str]:
    """The commands in its blocks, each on one line and without its comment."""
    blocks = [text for kind, text in BLOCK.findall(page) if kind in ("", "bash", "sh")]
    joined = re.sub(r" *\\\n *", " ", "\n".join(blocks))
    lines = [line.partition("  #")[0].strip() for line in joined.splitlines()]
    return [line for line in lines if line.startswith(("greenfast ", "export "))]


class Shell:
    """Runs `greenfast ...` and `export NAME=VALUE` lines."""

    def __init__(self, home: Home) -> None:
        self.home = home
        # A page's reader has no kernels on the path.
        home.environment.pop("GREENFAST_TEMPLATE_PATH")

    def run(self, line: str) -> Ended:
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.home.environment[name] = value.replace("$PWD", str(self.home.data))
            return Ended(0, "", "")
        _, *words = shlex.split(line)
        return self.home.run(*words)

"""The process of a strategy: `python -m greenfast.search.strategies.apart_child READ_FD WRITE_FD`.

Its parent is a search, which names the file of a pickled strategy first.
"""

from __future__ import annotations

import base64
import pickle
import sys
from pathlib import Path
from typing import Any

from greenfast.search.children import serve_requests
from greenfast.search.strategies import STRATEGIES
from greenfast.search.strategies.base import Strategy


class Process:
    """Answers with the strategy of the file."""

    def __init__(self) -> None:
        self._strategy: Strategy | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"answer"}: pickled; {"failed"}: the parent's own strategy has to answer."""
        try:
            answer = self._done(request["do"], pickle.loads(base64.b64decode(request["value"])))
            return {"answer": base64.b64encode(pickle.dumps(answer)).decode()}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}

    def _done(self, do: str, value: Any) -> Any:
        if do == "hello":
            return len(STRATEGIES)
        if do == "begin":
            self._strategy = pickle.loads(Path(value).read_bytes())
            return None
        assert self._strategy is not None, "a strategy comes first"
        if do == "ask":
            self._strategy.in_haste = value
            return self._strategy.ask()
        return getattr(self._strategy, do)(*value)


if __name__ == "__main__":
    serve_requests(Process().answer, int(sys.argv[1]), int(sys.argv[2]))

"""Somebody else's kernels beside a winner: checked by the same bounds, timed in turns with it in the same process.

A kernel's folder says in peers.py who they are; that file and PyTorch are used in a child only (search/peers/child.py).
"""

from greenfast.search.peers.compare import compare_peers

__all__ = ["compare_peers"]

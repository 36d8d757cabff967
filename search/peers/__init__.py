"""Other people's kernels (peers) timed beside a winner, in turns with it in one process.

Peers must stay within the bounds that our own kernels have to meet. A kernel's folder names its
peers in peers.py; that file and PyTorch run in a child only. `compare.compare_peers` is the entry.
This file imports nothing, because the child's Python may have none of greenfast's dependencies.
"""

"""The recordings that ship: data, answered from by `replay:NAME`."""

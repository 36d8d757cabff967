"""The domain: kernels, candidates, gates, strategies and the search loop; no database, no web."""

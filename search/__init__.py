"""The domain: kernels, candidates, gates, strategies and the search loop. Knows no database and no web."""

"""`python -m bench.correctness.suites`."""

from bench.correctness.suites import main

if __name__ == "__main__":
    raise SystemExit(main())

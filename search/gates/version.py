"""The version of the checks that a verdict passed.

Raise it by one with each change after which a candidate that was judged correct or safe before
could be rejected: a gate that was mended, a new rule for texts, a new case that every kernel gets.
Do not raise it for messages, speed, or checks of one kernel (kernel.toml), which are compared by
themselves. Verdicts of another version stay in the database, and are not answered again: the
candidate is evaluated anew, and a champion is asked for a recheck.

1  the first with a number: macros of CUDA's headers in conditions, names of entries, sizes that
   contradict their defaults
2  texts are read as compilers read them: raw strings with a quote in their delimiter, attributes in
   operands of `asm`, tokens with line breaks or left-out words between them, directives behind a
   digit separator, includes in comments and under conditions, namespace std in all its forms
"""

CHECKS_VERSION = 2
CHECKS = "checks"  # the entry of an environment; one without it is from before version 1


def is_of_today(environment: dict[str, str]) -> bool:
    """Whether a verdict with this environment passed today's checks."""
    return environment.get(CHECKS) == str(CHECKS_VERSION)

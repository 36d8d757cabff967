"""How ids look. This file imports nothing of db/, because names are checked without a database."""

from __future__ import annotations

import re

SEARCH_ID = re.compile(r"s_[a-z2-7]{12}")

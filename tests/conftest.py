"""What the cross-distribution tests share."""

from __future__ import annotations

import sys
from pathlib import Path

# The tests are run from wheels with importlib's import mode: helpers beside them are found through
# this.
sys.path.insert(0, str(Path(__file__).parent))

from __future__ import annotations

import sys
from pathlib import Path

# The tests share one helper module; test modules are imported by path and don't see their neighbours otherwise.
sys.path.insert(0, str(Path(__file__).parent))

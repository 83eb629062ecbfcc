"""``python -m antiphon.cli`` is ``antiphon``."""

from __future__ import annotations

from antiphon.__main__ import main

main()

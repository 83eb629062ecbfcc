"""``python -m antiphon.cli`` is ``antiphon``."""

from __future__ import annotations

from antiphon.cli import main

main()

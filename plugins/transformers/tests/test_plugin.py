"""What the distribution registers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys


def test_the_backend_is_found_by_name():
    from antiphon.registry import get_backend
    from antiphon_transformers import TransformersBackend

    spec = get_backend("transformers")
    assert spec.load() is TransformersBackend
    assert "transformers" in spec.requires


def test_listing_the_plugin_imports_nothing_heavy():
    code = (
        "import sys, antiphon_transformers.plugin as p; list(p.antiphon_register_backends()); "
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

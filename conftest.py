"""What holds for the tests of all distributions."""

from __future__ import annotations

import os

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # in an engine's environment, whose tests have no laws
    pass
else:
    # A law holds or does not: neither how busy the machine is nor what an earlier run left in this folder
    # decides. The examples are the same each time where ANTIPHON_LAWS is "fixed", as nox sets it, and drawn
    # where it is "fresh"; by hand hypothesis' own profile decides, for which they are fixed where CI is set.
    profile = settings.default
    settings.register_profile(
        "antiphon",
        profile,
        deadline=None,
        database=None,
        derandomize={"fixed": True, "fresh": False}.get(
            os.environ.get("ANTIPHON_LAWS", ""), profile.derandomize
        ),
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("antiphon")

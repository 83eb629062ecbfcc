"""What holds for the tests of all distributions."""

from __future__ import annotations

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # in an engine's environment, whose tests have no laws
    pass
else:
    # A law holds or does not: neither how busy the machine is nor what an earlier run left in this folder
    # decides. On top of hypothesis' own profile, which draws the same examples each time where CI is set.
    settings.register_profile(
        "antiphon",
        settings.default,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("antiphon")

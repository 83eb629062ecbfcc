"""The conformance kit: what a family, a backend or an environment must do, as checks.

Three ways to use it, from the same checks:

- `check_family` and its like run all checks and return a `Report`; ``antiphon check`` prints it.
- Contract classes make them tests. A plugin's author writes, for pytest to find::

      from antiphon.testing import FamilyContract

      class TestParrot(FamilyContract):
          names = ("parrot",)
          system = True
          tools = calls = True

  Capability flags default to False, and each must say what is so. A check can be expected to fail,
  with a reason, and is then expected to fail strictly; it can't be overridden.
- Each check is a plain function that raises `CheckFailed`.

pytest is needed by the contracts and fixtures alone, hypothesis by the strategies alone, torch by
the checks of backends and environments alone.
"""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "CheckFailed": "antiphon.testing.results",
    "CheckSkipped": "antiphon.testing.results",
    "CheckResult": "antiphon.testing.results",
    "Report": "antiphon.testing.results",
    "Case": "antiphon.testing.scenarios",
    "corpus": "antiphon.testing.scenarios",
    "hostile_texts": "antiphon.testing.scenarios",
    "StandInTokenizer": "antiphon.testing.stand_in",
    "FamilySubject": "antiphon.testing.subject",
    "Capabilities": "antiphon.testing.capabilities",
    "FAMILY_CHECKS": "antiphon.testing.running",
    "BACKEND_CHECKS": "antiphon.testing.running",
    "ENV_CHECKS": "antiphon.testing.running",
    "check_family": "antiphon.testing.running",
    "check_model": "antiphon.testing.running",
    "check_backend": "antiphon.testing.running",
    "check_environment": "antiphon.testing.running",
    "FamilyContract": "antiphon.testing.contracts",
    "BackendContract": "antiphon.testing.contracts",
    "EnvContract": "antiphon.testing.contracts",
    "BackendSubject": "antiphon.testing.backend_checks",
    "EnvSubject": "antiphon.testing.env_checks",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)

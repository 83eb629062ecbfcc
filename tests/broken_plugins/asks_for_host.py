"""Uses the registry while it is being loaded."""

from antiphon.registry import get_family

FAMILY = get_family("chatml")

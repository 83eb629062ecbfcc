"""It prints, at import and in its hook."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl

print("Thank you for installing Parrot!")


@hookimpl
def antiphon_register_families():
    print("registering parrots")
    return [ModelFamily("grey", "parrot", "nowhere:grey.jinja")]

"""Registers a dialect under a name that means another one in TorchRL's way of naming."""

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl


@hookimpl
def antiphon_register_families():
    return [ModelFamily("qwen", "bird", "nowhere:bird.jinja")]

"""Its hook is asynchronous, and nobody awaits it."""

from antiphon.plugins import hookimpl


@hookimpl
async def antiphon_register_families():
    return []

"""A hook that is not marked."""


def antiphon_register_families():
    return []

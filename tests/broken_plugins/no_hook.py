"""A module without any hook."""

"""Rendering, turns, ids and masks: what a model sees, and who wrote it."""

"""Gemma 3 for Antiphon."""

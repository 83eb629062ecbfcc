"""Sampling conversations from an environment, written so that none is lost."""

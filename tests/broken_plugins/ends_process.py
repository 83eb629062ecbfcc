"""Ends the process where nothing can hold it."""

import os

os._exit(5)

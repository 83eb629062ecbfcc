"""Ends the process while it is imported."""

import sys

sys.exit("unsupported platform")

"""It brings the interpreter down, as a broken extension does."""

import ctypes

ctypes.string_at(0)

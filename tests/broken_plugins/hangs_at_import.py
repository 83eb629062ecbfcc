"""It waits at import for something that never comes."""

import threading

threading.Event().wait()

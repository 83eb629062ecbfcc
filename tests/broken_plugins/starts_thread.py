"""It starts a thread when it is imported."""

import threading
import time

from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl

threading.Thread(target=time.sleep, args=(60,), name="parrot-watch", daemon=True).start()


@hookimpl
def antiphon_register_families():
    return [ModelFamily("parrot", "parrot", "antiphon:templates/chatml.jinja")]

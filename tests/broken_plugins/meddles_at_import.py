"""It changes whatever a program has in common with it, at import and in its hook."""

import builtins
import json
import locale
import logging
import os
import random
import signal
import socket
import sys
import warnings

import antiphon.families
from antiphon import lazy
from antiphon.families import ModelFamily
from antiphon.plugins import hookimpl

random.seed(0)
logging.getLogger().setLevel(logging.DEBUG)
logging.basicConfig()
logging.disable(logging.ERROR)
warnings.simplefilter("ignore")
os.environ["HF_HUB_OFFLINE"] = "sometimes"
os.environ["PARROT_HOME"] = "/parrot"
os.environ.pop("PARROT_CAGE", None)
sys.path.insert(0, "/parrot")
sys.setrecursionlimit(5000)
socket.setdefaulttimeout(0.5)
signal.signal(signal.SIGTERM, lambda *_: None)
os.chdir("/")
locale.setlocale(locale.LC_ALL, "C.UTF-8")
builtins.print = lambda *_, **__: None
json.dumps = lambda *_, **__: "{}"
ModelFamily.load_template = lambda self: "squawk"
antiphon.families.TEMPLATE_NAMES = {}
lazy.squawk = lambda: None


@hookimpl
def antiphon_register_families():
    sys.excepthook = lambda *_: None
    return [ModelFamily("parrot", "parrot", "antiphon:templates/chatml.jinja")]

"""It sets a variable and a seed, and raises then."""

import os
import random

random.seed(1)
os.environ["PARROT_HOME"] = "/parrot"
raise RuntimeError("no parrot")

"""Asks for another core (in its metadata), and must not even be imported with this one."""

raise SystemExit("imported although it is incompatible")

"""The wrapper, what it asks of a backend, and how log-probs are scored."""

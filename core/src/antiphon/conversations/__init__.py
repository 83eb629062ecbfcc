"""History and the containers, and the ways between conversations, text and tokens."""

"""Conversations as people look at them: rollouts, tokenised data and chats, in a terminal or as a page."""

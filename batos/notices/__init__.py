"""Notices: how missions end, or what they ask, sent as effects to where their user wants to hear of it."""

"""Notices: what missions come to, or ask, told where their user wants to hear of it. They are sent as effects."""

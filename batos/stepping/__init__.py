"""Stepping into missions: they are thought again in a mirror of the image, looked at, changed, and continued."""

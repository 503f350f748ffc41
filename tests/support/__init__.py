"""Helpers that tests share: doubles, builders, and programs that tests start. No test stands here, and no test module imports another."""

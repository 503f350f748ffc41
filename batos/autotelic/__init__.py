"""What the system does of its own accord."""

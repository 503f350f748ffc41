"""The handbook: small methods with their purposes, from which an expert that writes a new one is shown the nearest."""

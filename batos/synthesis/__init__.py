"""Program search: a specification and examples in, candidate methods out. It knows no mind and no model."""

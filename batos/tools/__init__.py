"""Tools: what the system may do outside itself, and the record of each act. See section *Tools and effects* of docs/architecture.md."""

"""Running generated methods: guardian, sandbox, signatures, and locks on what is being written."""

"""The autotelic loop: missions, audits and changes that the system starts itself."""

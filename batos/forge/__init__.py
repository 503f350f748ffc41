"""The forge: writes the methods that a message asks for, tries them, and learns them from examples."""

"""Running untrusted code in isolation."""

"""Plug-ins into other people's tools. Each is imported by the tool alone, and needs it to be there."""

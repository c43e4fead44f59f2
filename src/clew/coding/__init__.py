"""Tools for code: where a bug report points, which checks a change deserves, and how to tune a kernel."""

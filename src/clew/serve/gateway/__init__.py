"""The gateway: programs that Clew did not write, recorded as runs. Reading what they left needs no server."""

"""Whether rules survive the compaction of a long conversation (specs/E164)."""

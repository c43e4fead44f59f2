"""What a model is sent of a long conversation: compaction, pinned rules, and adapters for other frameworks."""

"""Session logs that coding agents leave on the disk: ``claude_code``, ``codex`` and ``mini_swe`` (mini-swe-agent).

``log_lines`` holds what the readers share. A log is one run; sub-agents, and what follows a compaction, are further
conversations of it. A broken line loses itself alone.
"""

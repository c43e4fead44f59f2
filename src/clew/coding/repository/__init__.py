"""What is read of a repository: git, files, languages, imports, past fixes."""

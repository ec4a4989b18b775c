"""What must not be published, looked for in every file of a tree."""

"""What is measured: one module a client, each run as a child process of its own."""

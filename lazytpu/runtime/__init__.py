"""PJRT: the client, device buffers, executables, and waiting for them."""

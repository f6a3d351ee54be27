"""What PyTorch's dispatcher calls: kernels on the ``PrivateUse1`` key that record instead of computing."""

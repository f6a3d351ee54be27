"""What PyTorch expects of an accelerator: ``torch.tpu``, generators, streams, autocast, serialization."""

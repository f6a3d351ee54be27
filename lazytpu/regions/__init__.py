"""Compiled regions: what ``torch.compile`` hands over, recorded once and spliced into traces as one op."""

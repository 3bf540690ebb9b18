"""What workers tell of themselves: whether they are well, and which models they serve."""

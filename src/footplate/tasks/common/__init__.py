"""What all tasks share: from flags to result files."""

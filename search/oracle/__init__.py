"""What a correct output is: cases, problems laid out in memory, references."""

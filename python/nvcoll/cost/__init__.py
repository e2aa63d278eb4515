"""What calls cost on a machine: prices, comparisons of algorithms, reports of programs, training steps."""

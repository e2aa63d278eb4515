"""What model servers need beside the libraries of NVIDIA: a file per server."""

"""``nvcoll dryrun`` runs a training script on virtual GPUs; ``nvcoll price`` predicts steps from files."""

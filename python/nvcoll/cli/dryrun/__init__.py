"""``nvcoll dryrun`` runs a training script on virtual GPUs; ``nvcoll price`` predicts its recording on machines."""

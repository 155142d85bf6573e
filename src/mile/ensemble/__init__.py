"""The deep ensemble: how one network is trained, all members side by side, embeddings that are trained first."""

"""The artifact store: built kernels, stored under the digest of all build inputs."""

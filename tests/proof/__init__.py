"""Programs that check the claims of the package: `truth`, `verified` and `mutations`."""

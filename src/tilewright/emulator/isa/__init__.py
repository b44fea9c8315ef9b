"""What AMD's instructions compute: one table, from which every engine is made."""

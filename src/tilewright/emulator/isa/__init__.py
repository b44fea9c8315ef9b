"""The operations of AMD's instructions: one table, from which both engines are generated."""

"""The report of a sweep: columns, figures, pictures and tables from records."""

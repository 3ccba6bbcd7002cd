"""Pure functions of records: tables, statistics, abstention, plots, and a report on one page. Plots never touch a model."""

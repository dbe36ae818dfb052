"""Cases: found, shown in a table, checked and edited."""

"""PUMITTrain: cases, plans, runs and results, without and with widgets."""

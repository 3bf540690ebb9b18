"""The sections of the settings, one frozen model each; `settings.py` has the whole."""

"""The screens, one file for each. A new file that declares a `screen` is in the navigation by itself."""

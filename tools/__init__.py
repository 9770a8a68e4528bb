"""Programs of the authors: extract the package, run the notebooks, build the site."""

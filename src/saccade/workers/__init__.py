"""Where work is done: in processes of this machine, or by Dask."""

"""Define the commands of ``drq``, one file each: read options, call the library, and show the results."""

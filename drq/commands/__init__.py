"""The commands of ``drq``, one file each. A command reads its options, calls the library, and shows what came back."""

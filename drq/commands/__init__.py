"""The commands of ``drq``, by kind of work. A command reads its options, calls the library, and shows what came back."""

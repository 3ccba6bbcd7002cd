"""What the paper shows and says, beside what came out here."""

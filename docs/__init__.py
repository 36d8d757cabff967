"""The pages that `greenfast docs` shows: data, in the checkout and in the wheel."""

"""What the pages of the web viewer show: plain functions from a store to values that JSON can hold."""

"""Reports as text and as a web page: numbers in, words and pictures out."""

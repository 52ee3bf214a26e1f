"""Pure text to structure: knows SGLang's formats and nothing about signatures."""

"""The words of the project as frozen data: what is observed, what is held true, what is concluded. Standard library only."""
